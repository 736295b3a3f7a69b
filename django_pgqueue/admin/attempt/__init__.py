"""The history: what has ended, and how."""
