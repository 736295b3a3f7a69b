"""How fast the queue is, beside a raw SQL loop measured in the same run: ``python3 tests/bench``."""
