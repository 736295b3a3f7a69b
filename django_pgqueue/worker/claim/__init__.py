"""What to take, and when."""
