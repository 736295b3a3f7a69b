"""A PostgreSQL from a wheel, for the example and the tests on a machine that has none; standard library only.

`start("demo")` returns the URL of a server that runs until its last user has ended, however that one ended::

    users ──lease (shared lock)──> folder <──watches── supervisor ──owns──> postmaster

On a command line: ``python -m example_project.development.embedded_postgres psql``.
"""

from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from example_project.development.embedded_postgres.server import start

__all__ = ["EmbeddedPostgresError", "start"]
