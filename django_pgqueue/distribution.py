"""The name under which an installer finds the package.  Every message that tells users what to install takes it here.

The package of a stranger has the name ``django_pgqueue`` with a hyphen: a message that is typed with that name would
replace this package.
"""

from __future__ import annotations

DISTRIBUTION = "django-tasks-pgqueue"


def install_command(extra: str) -> str:
    """Returns the command that installs what an extra of this package needs.

    >>> install_command("cli")
    "pip install 'django-tasks-pgqueue[cli]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
