"""The process that starts the worker processes."""
