"""Metrics and health of a worker, for programs outside.

Each process writes its numbers, and that it goes on, to its place on a board in shared memory.  Another process reads
the board and serves HTTP: it can answer when others hang, and the supervisor forks without threads.  There are no files
to clean up, and the numbers of a process outlive it.
"""
