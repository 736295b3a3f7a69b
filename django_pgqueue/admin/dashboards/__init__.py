"""The overview, the reports and the errors."""
