"""The settings of a project that moves."""

import os

from psycopg.conninfo import conninfo_to_dict

server = conninfo_to_dict(os.environ["PGQUEUE_TEST_CONNINFO"])
SECRET_KEY, USE_TZ, TIME_ZONE = "tests only", True, "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django_pgqueue",
    "django_tasks",
    "django_tasks_db",
    "procrastinate.contrib.django",
    "django_q",
    "django_celery_beat",
    "tests.management.importing",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": server["dbname"],
        **{name.upper(): str(server.get(name) or "") for name in ("user", "password", "host", "port")},
    }
}
TASKS = {
    "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default", "mail"]},
    "old": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default", "mail", "post"]},
}
Q_CLUSTER = {"name": "shop", "orm": "default"}
