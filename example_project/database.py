"""The one place that chooses the database: DATABASE_URL when it is set, else the demo's own PostgreSQL."""

import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def database_url(profile: str = "demo") -> str:
    return superuser_url(profile) or os.environ["DATABASE_URL"]


def superuser_url(profile: str = "demo") -> str | None:
    """URL of the demo's own PostgreSQL. None where DATABASE_URL names another, with a login that is used as it is."""
    if os.environ.get("DATABASE_URL"):
        return None
    from example_project.development import embedded_postgres  # noqa: PLC0415 - not needed, and not loaded, with a DATABASE_URL

    return embedded_postgres.start(profile)


def login_url() -> str:
    """URL of the demo's database, for the login of this process."""
    superuser = superuser_url()
    if superuser is None:
        return os.environ["DATABASE_URL"]
    from example_project import logins  # noqa: PLC0415 - as above

    return logins.url_of(logins.current(), superuser)


def django_databases(profile: str = "demo") -> dict[str, Any]:
    """Value for DATABASES in a settings module."""
    import dj_database_url  # noqa: PLC0415 - a dependency of the example; database_url works without it

    url = login_url() if profile == "demo" else database_url(profile)
    return {"default": dict(dj_database_url.parse(url))}
