"""The one place that chooses the database: DATABASE_URL when it is set, else a PostgreSQL of our own."""

import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def database_url(profile: str = "demo") -> str:
    if given := os.environ.get("DATABASE_URL"):
        return given
    from example_project import embedded_postgres  # noqa: PLC0415 - not needed, and not loaded, with a DATABASE_URL

    return embedded_postgres.start(profile)


def django_databases(profile: str = "demo") -> dict[str, Any]:
    """For DATABASES in a settings module."""
    import dj_database_url  # noqa: PLC0415 - a dependency of the example; database_url works without it

    url = database_url(profile)
    return {"default": dict(dj_database_url.parse(url))}
