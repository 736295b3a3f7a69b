"""Settings of the example project: a demo on your own machine, not a template for production."""

import logging

import django

from example_project import state
from example_project.database import django_databases

DEBUG = True
SECRET_KEY = state.secret("secret-key", 50)
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_pgqueue",
    "example_project.shop",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")  # the tasks API before Django had its own

DATABASES = django_databases("demo")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# The whole set-up of the queue. Workers serve all queues by default.
TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "QUEUES": ["default", "mail", "reports"],
        # Where "manage.py qpipeline" keeps the history as data.
        "OPTIONS": {"LAKE": state.FOLDER / "lake"},
    }
}

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

STATIC_URL = "static/"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True

# Every mail becomes a file. Django 6.1 has a new name for this setting, and refuses the old one beside it.
DEFAULT_FROM_EMAIL = "Harbour Tea <shop@example.com>"
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": state.FOLDER / "mail"},
        }
    }
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = state.FOLDER / "mail"

# A session cookie of its own: cookies ignore ports, and other projects run on localhost too.
SESSION_COOKIE_NAME = "harbour_tea_session"
CSRF_COOKIE_NAME = "harbour_tea_csrf"


def worth_a_line(record: logging.LogRecord) -> bool:
    """Whether to log a request: a page's files and its polling would push everything else off the screen."""
    line = record.getMessage()
    return record.levelno > logging.INFO or not ("/static/" in line or "/status.json" in line)


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"worth_a_line": {"()": "django.utils.log.CallbackFilter", "callback": worth_a_line}},
    "handlers": {
        "requests": {"class": "logging.StreamHandler", "formatter": "django.server", "filters": ["worth_a_line"]}
    },
    "formatters": {"django.server": {"()": "django.utils.log.ServerFormatter", "format": "{message}", "style": "{"}},
    "loggers": {
        "django.server": {"handlers": ["requests"], "level": "INFO", "propagate": False},
        # The worker logs one line for each job, and the admin shows the tracebacks.
        "django.tasks": {"level": "CRITICAL"},
        "django_tasks": {"level": "CRITICAL"},
    },
}
