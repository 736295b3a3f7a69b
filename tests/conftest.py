"""What every test may need."""
