"""Parts that a worker and a listener of raw messages share."""
