"""The queue of a database that is made without migrations: ``pytest --no-migrations``, ``MIGRATION_MODULES``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.migrations.loader import MigrationLoader

from django_pgqueue.functions import installed, sql_files

if TYPE_CHECKING:
    from django.apps import AppConfig


def install(sender: AppConfig, using: str, **_: Any) -> None:
    """Replaces the tables that ``migrate`` has made from the models by the queue of ``sql/``: called after it."""
    module, _is_given = MigrationLoader.migrations_module(sender.label)
    connection = connections[using]
    if module is not None or connection.vendor != "postgresql":
        return
    with transaction.atomic(using=using), connection.cursor() as cursor:
        # The models alone make tables, and none of the functions.
        if installed.parts_here(connection, ["pgqueue_message", "pgqueue_message_create"]) != {"pgqueue_message"}:
            return
        names = [model._meta.db_table for model in sender.get_models()]  # noqa: SLF001 -- Django's public name
        cursor.execute(f"drop table {', '.join(map(connection.ops.quote_name, names))}")
        for name in sql_files.install_order():
            cursor.execute(sql_files.current(name))
        cursor.execute("select pgqueue_attempt_maintain()")
