"""What any worker does beside its jobs, for all."""
