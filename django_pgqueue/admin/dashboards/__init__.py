"""The pages Overview, Insights and Errors."""
