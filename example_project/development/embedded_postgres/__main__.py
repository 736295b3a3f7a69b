"""Run a program of PostgreSQL against the embedded server.

python -m example_project.development.embedded_postgres url
python -m example_project.development.embedded_postgres psql -c 'select count(*) from pgqueue_message'
python -m example_project.development.embedded_postgres --profile bench pgbench -i
"""

import argparse
import sys

from example_project.development.embedded_postgres import programs
from example_project.development.embedded_postgres.errors import EmbeddedPostgresError
from example_project.development.embedded_postgres.server import start


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m example_project.development.embedded_postgres",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--profile", default="demo", help="whose server: demo (default), test, or a name of your own")
    parser.add_argument("program", help='"url" to print the address, or a program: psql, pg_dump, pgbench ...')
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    wanted = parser.parse_args()
    try:
        url = start(wanted.profile)
        if wanted.program == "url":
            print(url)
            return 0
        return programs.run(wanted.program, wanted.arguments, url).returncode
    except EmbeddedPostgresError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
