"""What the commands say on a terminal, in a pipe or as JSON."""
