"""The messages that wait or run."""
