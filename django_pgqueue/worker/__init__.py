"""The worker: takes messages from the queue, runs their tasks, and records how they ended."""
