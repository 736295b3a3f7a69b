"""Settings of the workers that the tests start: the database of the tests, and what a test wants to be different."""

import json
import os

import django

from tests.settings import *  # noqa: F403 -- whatever the tests have, less the apps that no worker needs
from tests.settings import DATABASES, TASKS

INSTALLED_APPS = ["django_pgqueue", "tests.support.site"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
ROOT_URLCONF = ""
MIDDLEWARE = []
TEMPLATES = []

DATABASES["default"]["OPTIONS"] = json.loads(os.environ.get("PGQUEUE_TEST_DATABASE_OPTIONS", "{}"))
DEBUG = os.environ.get("PGQUEUE_TEST_DEBUG") == "1"
TASKS = {"default": {**TASKS["default"], "OPTIONS": json.loads(os.environ.get("PGQUEUE_TEST_OPTIONS", "{}"))}}
