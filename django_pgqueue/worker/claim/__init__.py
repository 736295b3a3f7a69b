"""What a worker claims, and when."""
