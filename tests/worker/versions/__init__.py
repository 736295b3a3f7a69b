"""Tasks of a deploy: a worker that imports them is the new one, and one that does not is the old one."""
