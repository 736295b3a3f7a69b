"""A small shop with real orders, whose receipts are sent by background jobs. The first start makes its environment.

  python3 example_project [--port PORT]   the shop: web server (Django's runserver), one qworker, orders and their jobs
  python3 example_project manage.py ...   any command of Django's manage.py, in the same environment and database

Without --port the shop takes 8000, or a free port where that is taken. Ctrl-C (or SIGTERM) stops everything.

What the demo keeps (its secrets, the admin's password, the mails that it "sent") stands in the folder .example, or in
the one that PGQUEUE_EXAMPLE_HOME names. Its PostgreSQL is its own, unless DATABASE_URL names another; look into it with
.venv/bin/python -m example_project.development.embedded_postgres psql
"""

# Any Python must be able to read this file: the one that starts it may be older than what the project needs.

import sys

if sys.version_info < (3,):  # noqa: UP036 - it may be Python 2
    sys.exit("Python 3.11 or newer is needed, and this is Python 2. Type: python3 example_project")

from pathlib import Path

# Python put this folder first on the path. Its parent belongs there: a module must not have two names.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from example_project.development import bootstrap  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        sys.exit()
    bootstrap.enter("demo")

    with bootstrap.until_interrupted():
        from example_project import demo

        sys.exit(demo.main(sys.argv[1:]))
