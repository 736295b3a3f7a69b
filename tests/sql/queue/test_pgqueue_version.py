"""Which release is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_pgqueue import functions

if TYPE_CHECKING:
    from tests.support.sessions import Session


def test_it_is_the_release_that_this_code_needs(session: Session) -> None:
    assert session.value("pgqueue_version") == functions.needed()


def test_the_code_reads_the_same_version_without_a_call(session: Session) -> None:
    found = functions.installed_queue(session.connection)
    assert found is not None
    assert (found.schema, found.version) == ("public", session.value("pgqueue_version"))
    assert not found.is_outdated
