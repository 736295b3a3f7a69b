"""What the backends of django.tasks have in common."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.bench.peers.adapter import PYTHON, Adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bench.peers.django_settings"


class DjangoPeer(Adapter):
    app = ""

    def open(self) -> None:
        os.environ["PEER_APP"] = self.app
        import django

        django.setup()
        from django.db import connection

        from tests.bench.peers.django_task import noop

        connection.ensure_connection()
        self.noop = noop

    def install(self) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)

    def django(self, *words: str, **environment: str) -> list[str]:
        """A management command; the environment of a worker is that of its settings."""
        own = {"DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"], "PEER_APP": self.app} | environment
        return ["env", *[f"{name}={value}" for name, value in own.items()], PYTHON, "-m", "django", *words]

    def enqueue(self, number: int) -> Any:
        self.noop.enqueue(number)

    def bulk(self, numbers: Sequence[int]) -> Any:
        """For who offers nothing better: one transaction."""
        from django.db import transaction

        with transaction.atomic():
            for number in numbers:
                self.noop.enqueue(number)

    def ahead(self, count: int) -> Any:
        from django.db import transaction
        from django.utils import timezone

        later = self.noop.using(run_after=timezone.now() + timedelta(days=1), priority=50)
        with transaction.atomic():
            for _ in range(count):
                later.enqueue(-1)
