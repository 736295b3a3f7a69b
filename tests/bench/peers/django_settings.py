"""A Django project for the peers that are backends of django.tasks."""

import os

from tests.bench.peers.adapter import DATABASE_URL

SECRET_KEY = "benchmark only"
USE_TZ = True
DEBUG = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APP, BACKEND, OPTIONS = {
    "django_tasks_db": ("django_tasks_db", "django_tasks_db.DatabaseBackend", {}),
    "django_ox": ("django_ox", "django_ox.backend.OxBackend", {}),
    "dj_queue": (
        "dj_queue",
        "dj_queue.backend.DjQueueBackend",
        {"workers": [{"queues": "*", "threads": 8, "processes": int(os.environ.get("PEER_PROCESSES", "1"))}]},
    ),
    "qraft": ("qraft", "qraft.backend.QraftTaskBackend", {}),
}[os.environ["PEER_APP"]]
INSTALLED_APPS = ["django_q", APP] if APP == "qraft" else [APP]
Q_CLUSTER = {
    "name": "default",
    "workers": int(os.environ.get("PEER_PROCESSES", "1")),
    "timeout": 60,
    "retry": 90,
    "orm": "default",
    "broker_class": "qraft.brokers.QraftOrmBroker",
    "log_level": "ERROR",
}
QRAFT_CLUSTER = {"threads": 1}
TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": OPTIONS}}

_credentials, _, _place = DATABASE_URL.partition("://")[2].rpartition("@")
_address, _, _name = _place.partition("/")
_host, _, _port = _address.partition(":")
_user, _, _password = _credentials.partition(":")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _name,
        "HOST": _host,
        "PORT": _port,
        "USER": _user,
        "PASSWORD": _password,
        # Or each task would connect anew: whoever runs a worker for its speed sets this.
        "CONN_MAX_AGE": None,
    }
}
