"""The table that jobs of the benchmark write; ``database.prepare`` makes it."""

from __future__ import annotations

from django.db import models


class Row(models.Model):
    id = models.BigAutoField(primary_key=True)
    number = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "bench_row"

    def __str__(self) -> str:
        return f"row {self.pk}"
