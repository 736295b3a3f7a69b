"""Settings of the storm: its own server, whose addresses stand in the environment."""

import os

import django

from tests.support.server_settings import POOLED, database

SECRET_KEY = "storm only"
USE_TZ = True
TIME_ZONE = os.environ.get("STORM_TIME_ZONE", "UTC")
INSTALLED_APPS = ["django_pgqueue", "tests.proofs.reliability"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")


DATABASES = {"default": database()}
TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "QUEUES": [],
        "OPTIONS": ({"LISTEN": False} if POOLED else {})
        | ({"VERSION": os.environ["STORM_DEPLOY"]} if "STORM_DEPLOY" in os.environ else {}),
    }
}
