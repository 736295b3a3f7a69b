"""What waits and what runs."""
