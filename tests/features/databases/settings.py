"""Settings of the workers of a project with two databases, each with a queue."""

from typing import Any

from tests.worker.settings import *  # noqa: F403
from tests.worker.settings import DATABASES as ONE_DATABASE

# For the processes of workers only: the tests themselves have these databases from conftest.py.
JOBS: dict[str, Any] = {**ONE_DATABASE["default"], "NAME": f"{ONE_DATABASE['default']['NAME']}_jobs"}
DATABASES: dict[str, Any] = {**ONE_DATABASE, "jobs": JOBS}
DATABASE_ROUTERS = ["django_pgqueue.routers.PgQueueRouter"]

BACKEND = "django_pgqueue.backend.PgQueueBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"DATABASE": "jobs"}},
    "here": {"BACKEND": BACKEND, "QUEUES": []},
}
