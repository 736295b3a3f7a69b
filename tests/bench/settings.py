"""Settings of the benchmark: a durable PostgreSQL, and nothing else installed."""

import os
from typing import Any

import dj_database_url
import django

SECRET_KEY = "benchmark only"
USE_TZ = True
INSTALLED_APPS = ["django_pgqueue", "tests.bench"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")

SERVER_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "max_connections": "300",
}


def database() -> Any:
    if given := os.environ.get("DATABASE_URL"):
        return dj_database_url.parse(given)
    from example_project.development import embedded_postgres

    return dj_database_url.parse(embedded_postgres.start("bench", settings=SERVER_SETTINGS, keep=False))


# As for any worker whose tasks use the database and are short: without it each of them would connect anew.
DATABASES = {"default": database() | {"CONN_MAX_AGE": None}}
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": []}}
