from __future__ import annotations

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy

from django_pgqueue.conf import APP_LABEL


class PgQueueConfig(AppConfig):
    name = "django_pgqueue"
    label = APP_LABEL
    verbose_name = gettext_lazy("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_pgqueue import checks  # noqa: F401, PLC0415 -- registers the checks
        from django_pgqueue.tasks import discovery  # noqa: PLC0415 -- registers the checks

        discovery.own_modules = own_modules


def own_modules() -> list[str]:
    """Returns this package's modules with tasks: only the admin enqueues one, and only on a backend of this package."""
    from django_pgqueue.backend import lookup  # noqa: PLC0415 -- not before the apps are ready

    admin = apps.is_installed("django.contrib.admin") and lookup.pgqueue_backends()
    return ["django_pgqueue.admin.attempt.reenqueue_task"] if admin else []
