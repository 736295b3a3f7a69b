"""The protocols between transactions and workers, as machines that are small enough to try every interleaving.

Each module is one protocol.  Its docstring says which lines of sql/ and of django_pgqueue/worker it stands for,
statement by statement, so that a reader can lay them side by side; ``VARIANTS`` are ways to get it wrong that somebody
may think of, or has thought of.  A step is what happens at once: a statement of one transaction, a commit, a crash.
"""
