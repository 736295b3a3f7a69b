"""What is going on in a queue, and why a message does not run."""
