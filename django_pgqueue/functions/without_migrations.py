"""The queue of a database that is made without migrations: ``pytest --no-migrations``, ``MIGRATION_MODULES``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.migrations.loader import MigrationLoader

from django_pgqueue.functions import sql_files

if TYPE_CHECKING:
    from django.apps import AppConfig

# What the models alone make: the tables, and none of the functions.
BARE = """
select to_regclass(quote_ident(current_schema()) || '.pgqueue_message') is not null and not exists (
    select from pg_proc p
    where p.pronamespace = current_schema()::regnamespace and p.proname = 'pgqueue_message_create'
)
"""


def install(sender: AppConfig, using: str, **_: Any) -> None:
    """Replaces the tables that ``migrate`` has made from the models by the queue of ``sql/``: called after it."""
    module, _is_given = MigrationLoader.migrations_module(sender.label)
    connection = connections[using]
    if module is not None or connection.vendor != "postgresql":
        return
    with transaction.atomic(using=using), connection.cursor() as cursor:
        cursor.execute(BARE)
        if not cursor.fetchone()[0]:
            return
        names = [model._meta.db_table for model in sender.get_models()]  # noqa: SLF001 -- Django's public name
        cursor.execute(f"drop table {', '.join(map(connection.ops.quote_name, names))}")
        for name in sql_files.install_order():
            cursor.execute(sql_files.current(name))
        cursor.execute("select pgqueue_attempt_maintain()")
