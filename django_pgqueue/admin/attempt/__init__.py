"""The history: ended attempts and their outcomes."""
