"""Bridges for projects that come from another queue."""
