#!/usr/bin/env python3
"""Django's command line for the example project; ``python3 example_project manage.py ...`` runs it anywhere."""

import os
import sys
from pathlib import Path


def main() -> None:
    # Python puts this file's folder first on the path: its modules would be imported under two names.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]
    # Whoever develops a project may have its settings in the environment.
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"

    try:
        import django  # noqa: F401, PLC0415 - only whether it is there
    except ModuleNotFoundError:
        sys.exit("This Python has no Django. Run: python3 example_project manage.py " + " ".join(sys.argv[1:]))
    from example_project import logins  # noqa: PLC0415 - the path has to be right first

    os.environ.setdefault(logins.VARIABLE, logins.of("".join(sys.argv[1:2])))

    from django.core.management import execute_from_command_line  # noqa: PLC0415 - as above

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
