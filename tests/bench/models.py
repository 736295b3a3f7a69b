"""The table that jobs of the benchmark write; ``database.prepare`` makes it."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Row(models.Model):
    id = models.BigAutoField(primary_key=True)
    number = models.BigIntegerField()

    objects: ClassVar[models.Manager[Row]] = models.Manager()

    class Meta:
        app_label = "bench"  # the tests of the benchmark import this without its settings
        managed = False
        db_table = "bench_row"

    def __str__(self) -> str:
        return f"row {self.pk}"
