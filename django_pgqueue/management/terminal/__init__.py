"""The output of the commands on a terminal, in a pipe or as JSON."""
