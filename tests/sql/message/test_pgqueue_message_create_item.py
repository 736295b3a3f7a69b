"""One object of the array that pgqueue_message_create_many takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.message.test_pgqueue_message_create_many import DESCRIPTIONS

if TYPE_CHECKING:
    from tests.support.sessions import Session


@pytest.mark.parametrize("key", [None, "invoice 7"])
@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_an_item_makes_the_same_row_as_a_single_message(
    session: Session, description: dict[str, Any], key: str | None
) -> None:
    item = session.value("pgqueue_message_create_item", message=Jsonb({**description, "unique_key": key}))
    single = session.create(**description)
    assert session.message(item)._replace(id=0) == session.message(single)._replace(id=0, unique_key=key)


def test_an_item_may_have_its_own_conflict_policy(session: Session) -> None:
    item = {"content": "first", "unique_key": "invoice 7", "until_started": True}
    first = session.value("pgqueue_message_create_item", message=Jsonb(item))
    replaced = session.value(
        "pgqueue_message_create_item", message=Jsonb({**item, "content": "second", "on_conflict": "replace"})
    )
    assert replaced == first
    message = session.message(first)
    assert (message.content, message.unique_until_started) == ("second", True)
