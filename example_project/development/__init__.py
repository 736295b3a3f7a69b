"""Tools of this repository, which the example and the tests start with: a Python, an environment, a PostgreSQL,
processes.  A project of your own needs none of them.
"""
