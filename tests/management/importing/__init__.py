"""A project that has five queues in one database."""
