"""Other queues, each driven by a small adapter that runs in an environment of its own."""
