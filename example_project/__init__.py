"""A small tea shop whose receipts are sent by background jobs: start it with ``python3 example_project``."""
