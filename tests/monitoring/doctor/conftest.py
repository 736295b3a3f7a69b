"""A patient, and other sessions that do to it what makes it ill."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from django_pgqueue.monitoring.doctor import Finding, Subject
from django_pgqueue.monitoring.doctor.examination import Check, looked
from tests.support.address import conninfo
from tests.support.fixtures.admin import sql
from tests.support.fixtures.consumers import consume
from tests.support.fixtures.workers import diary, rows, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["consume", "diary", "rows", "session"]


class Find:
    """The findings of a name, with these values, of one check; it must have been able to look."""

    def __call__(self, name: str, look: Callable[[Subject], Any], **values: Any) -> list[Finding]:
        found = looked(Check(name, look), Subject("default"))
        assert [finding.found for finding in found if finding.name == "could-not-look" != name] == []
        return [
            finding
            for finding in found
            if finding.name == name and all(finding.values.get(key) == value for key, value in values.items())
        ]

    def only(self, name: str, look: Callable[[Subject], Any], **values: Any) -> Finding:
        [finding] = self(name, look, **values)
        return finding

    def cured(self, found: Finding, look: Callable[[Subject], Any], **values: Any) -> None:
        """Runs the command of a finding: the check finds it no more."""
        sql(found.command)
        assert self(found.name, look, **values) == []


@pytest.fixture
def find(db: None) -> Find:
    return Find()


@pytest.fixture
def another(transactional_db: None) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Opens sessions beside ours."""
    with ExitStack() as stack:

        def connect(**more: Any) -> psycopg.Connection[Any]:
            session = psycopg.connect(conninfo(), autocommit=True, **more)
            stack.callback(session.close)
            return session

        yield connect
