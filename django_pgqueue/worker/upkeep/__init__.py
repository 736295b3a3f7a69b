"""Work that any worker does for the whole queue, beside its jobs."""
