"""A schema for each tenant: the search_path changes with the tenant, and the queue is in another schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction

from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.models import Message
from django_pgqueue.monitoring.doctor import installation
from django_pgqueue.monitoring.doctor.subject import Subject
from django_pgqueue.testing import drain
from tests.support import tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db


@pytest.fixture
def own_schema(db: None) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("select current_schema()")
        [found] = cursor.fetchone()
        cursor.execute("create schema tenant")
        yield found
        cursor.execute("select set_config('search_path', %s, false)", (found,))


def search(*path: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select set_config('search_path', %s, true)", (", ".join(path),))


def test_a_tenant_enqueues_into_the_queue_of_all(own_schema: str) -> None:
    search("tenant", own_schema)
    result = tasks.echo.enqueue("hello")
    assert Message.objects.count() == 1
    search(own_schema)
    assert Message.objects.count() == 1
    drain()
    search("tenant", own_schema)
    result.refresh()
    assert result.return_value["args"] == ["hello"]


def test_a_tenant_whose_path_lacks_the_queue_is_told_so(own_schema: str) -> None:
    search("tenant")
    words = "schema that the search_path of this connection does not name"
    with pytest.raises(OutdatedQueue, match=words), transaction.atomic():
        tasks.echo.enqueue("hello")


def test_the_doctor_works_where_each_cursor_sets_the_path_anew(
    own_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(installation.parts(Subject("default")))
    django: Any = connection
    make = django._cursor

    def make_for_a_tenant(name: str | None = None) -> Any:
        cursor = make(name)
        cursor.execute("select set_config('search_path', %s, false)", (own_schema,))
        return cursor

    monkeypatch.setattr(django, "_cursor", make_for_a_tenant)
    assert list(installation.parts(Subject("default"))) == before
