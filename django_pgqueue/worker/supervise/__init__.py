"""The process that starts the others."""
