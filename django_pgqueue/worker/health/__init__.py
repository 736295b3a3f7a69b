"""What programs see of a worker from outside: its numbers, and whether it is well.

Each process writes what it has done, and that it goes on, to its place on a board in shared memory.  Another process
reads the board and serves HTTP: it can answer when others hang, and the supervisor forks with no threads beside it.
There are no files that somebody would have to clean up, and what a process has counted outlives it.
"""
