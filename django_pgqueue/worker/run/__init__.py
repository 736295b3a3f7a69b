"""One attempt at one task."""
