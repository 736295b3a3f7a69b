from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy

from django_pgqueue.conf import APP_LABEL


class PgQueueConfig(AppConfig):
    name = "django_pgqueue"
    label = APP_LABEL
    verbose_name = gettext_lazy("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_pgqueue import checks  # noqa: F401, PLC0415 -- registers the checks
        from django_pgqueue.functions import without_migrations  # noqa: PLC0415 -- needs the apps

        post_migrate.connect(without_migrations.install, sender=self)
