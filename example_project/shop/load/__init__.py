"""A large load for the demo: what the admin is like at three in the morning, with a hundred thousand messages."""
