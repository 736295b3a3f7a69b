"""Settings of the workers of a project with two databases.  The tests themselves have these from conftest.py."""

from tests.support.site.settings import *  # noqa: F403
from tests.support.site.settings import DATABASES

DATABASES["jobs"] = {**DATABASES["default"], "NAME": f"{DATABASES['default']['NAME']}_jobs"}
DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]

BACKEND = "django_pgqueue.backend.PgQueueBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"DATABASE": "jobs"}},  # type: ignore[dict-item]
    "here": {"BACKEND": BACKEND, "QUEUES": []},
}
