"""Edits: what everything that matches is to become, and how far that is."""
