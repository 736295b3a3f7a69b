"""How fast the queue is, beside limits and peers that are measured in the same run: ``python3 tests/bench``."""
