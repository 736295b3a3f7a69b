"""The state of a queue, and why a message does not run."""
