"""Decides what a worker claims, and when."""
