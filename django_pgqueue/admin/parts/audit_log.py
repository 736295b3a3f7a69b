"""Writes Django's admin log: which user did what to which message."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import router, transaction
from django.utils.translation import gettext

from django_pgqueue.admin.parts.database import alias
from django_pgqueue.backend.lookup import default_database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from django.db.models import Model
    from django.http import HttpRequest

BATCH = 1_000


def name_of_user(request: HttpRequest) -> str:
    """Returns the name that the queue keeps of a user.  In a user model of the project it may be a number, a UUID, …"""
    user: Any = request.user
    return str(user.get_username())


def newest() -> int:
    """Returns the newest entry of the log; 0: it has none."""
    entries = LogEntry.objects.using(log_database())  # a replica may not have it yet
    return entries.order_by("-pk").values_list("pk", flat=True).first() or 0


def log_database() -> str:
    """Returns the database that has the log."""
    return str(router.db_for_write(LogEntry))


def in_one_transaction(request: HttpRequest) -> AbstractContextManager[None]:
    """Surrounds a request whose transaction is one of the queue's database: its entries are in one transaction, too."""
    if request.method != "POST" or log_database() == alias():
        return nullcontext()
    return transaction.atomic(using=log_database())


def written(request: HttpRequest, model: type[Model], keys: Iterable[object], text: str) -> None:
    """Writes an entry for each row: "History" on the row's page shows it."""
    where = "" if alias() == default_database() else " " + gettext("(In the database {name}.)").format(name=alias())
    kind = ContentType.objects.get_for_model(model)
    user: Any = request.user
    LogEntry.objects.bulk_create(
        [
            LogEntry(
                user_id=user.pk,
                content_type_id=kind.pk,
                object_id=str(key),
                object_repr=f"{model._meta.verbose_name} {key}"[:200],  # noqa: SLF001 -- Django's own way
                action_flag=CHANGE,
                change_message=f"{text}{where}",
            )
            for key in keys
        ],
        batch_size=BATCH,
    )
