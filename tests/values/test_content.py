"""Values as JSON: they come back equal, or they are refused before any SQL."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import enum
import json
import math
import traceback
import uuid
from types import MappingProxyType
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, example, given, settings, strategies as st

from django_pgqueue.exceptions import ContentTooLarge, InvalidContent
from django_pgqueue.models import Message
from django_pgqueue.queue import Queue
from django_pgqueue.values import content, names

pytestmark = pytest.mark.django_db

TEN_MEGABYTES = 10 * 1024 * 1024
MAX_INT = 10**4299  # Python writes integers of up to 4 300 digits
in_the_database = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
integers = st.integers() | st.integers(-MAX_INT, MAX_INT)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | text
storable = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)

any_text = st.text(st.characters(codec=None))
oddities = (
    scalars
    | any_text
    | st.floats()
    | st.binary()
    | st.integers(10**4299, 10**4310)
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.complex_numbers()
    | st.sets(st.integers())
)
keys = any_text | st.integers() | st.none() | st.booleans() | st.binary() | st.floats()
anything = st.recursive(
    oddities,
    lambda inner: (
        st.lists(inner) | st.dictionaries(keys, inner) | st.tuples(inner, inner) | st.builds(iter, st.lists(inner))
    ),
    max_leaves=10,
)


def through_the_database(value: Any) -> Any:
    """The value as a consumer gets it that was sent as content."""
    message_id = Queue("mail").send(value)
    with connection.cursor() as cursor:
        cursor.execute("select content::text from pgqueue_message where id = %s", [message_id])
        return json.loads(cursor.fetchone()[0])


@pytest.mark.slow
@in_the_database
@given(storable)
@example(2**53 + 0.0)
@example(1e16)
@example(1e22)
@example(1e23)
@example(-1.7976931348623157e308)
@example(5e-324)
@example(0.1 + 0.2)
@example(-0.0)
@example(MAX_INT)
@example('\U0010ffff￿\u2028\\u0000"\\\x7f\x01')
@example({"": {"": []}})
def test_every_json_value_comes_back_equal(value: Any) -> None:
    returned = through_the_database(value)
    assert returned == value
    assert repr(returned) == repr(content.as_stored(content.normalize(value)))


@pytest.mark.slow
@in_the_database
@given(anything)
@example(math.nan)
@example([math.inf])
@example({"a": -math.inf})
@example("\x00")
@example({"a\x00": 1})
@example("\ud800")
@example({"\udfff": 1})
@example("\ud83d\ude00")
@example(b"\xff")
@example(b"a\x00")
@example(10**4300)
@example({1: "a", "1": "b"})
def test_any_value_comes_back_normalized_or_is_refused_without_breaking_the_transaction(value: Any) -> None:
    count = Message.objects.count()
    try:
        normal = content.normalize(value)
        got = through_the_database(value)
    except InvalidContent as refused:
        assert str(refused)  # noqa: PT017 -- what it says is told below
        assert Message.objects.count() == count, "the transaction is as it was"
    else:
        assert got == normal


@settings(derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(storable | anything)
@example([-0.0, 2.0**53, -(2.0**53), True, ("é", None)])
@example([10**4305])
def test_the_fast_path_returns_the_same_as_the_slow_one(value: Any) -> None:
    try:
        quick = content._plain(value)
    except (content.Unusual, UnicodeEncodeError):
        return
    assert is_same(quick, content._normalize(value, "content"))


def is_same(one: Any, other: Any) -> bool:
    """Of one type and one value all the way down.  Their texts cannot be compared: Python prints no longest numbers."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ((1, (2,)), [1, [2]]),
        (b"caf\xc3\xa9", "café"),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (range(3), [0, 1, 2]),
        (collections.deque([1]), [1]),
        (array.array("b", [1, 2]), [1, 2]),
        (enum.IntEnum("Size", {"SMALL": 3}).SMALL, 3),  # type: ignore[attr-defined]
        (enum.StrEnum("Colour", {"RED": "red"}).RED, "red"),  # type: ignore[attr-defined]
        (1e300, int(1e300)),
        (True, True),
    ],
)
def test_a_value_with_a_close_json_equivalent_becomes_that(value: Any, becomes: Any) -> None:
    normal = content.normalize({"value": value})["value"]
    assert normal == becomes
    assert through_the_database(value) == becomes


def _endless() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


def _deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": ({"price": math.nan}, r"content\['price'\] is nan"),
    "infinity": ([1, math.inf], r"content\[1\] is inf"),
    "NUL": ({"a": ["b\x00c"]}, r"content\['a'\]\[0\] contains the character NUL"),
    "NUL in a key": ({"a": {"b\x00": 1}}, r"the key 'b\\x00' of content\['a'\] contains the character NUL"),
    "lone surrogate": ("\ud800", r"content is not valid Unicode \(surrogates not allowed\)"),
    "two surrogates that are no pair in Python": ("\ud83d\ude00", "not valid Unicode"),
    "lone surrogate in a key": ({"\udfff": 1}, "not valid Unicode"),
    "bytes that are no text": (b"\xff\xfe", r"content is bytes that are not UTF-8.*base64"),
    "bytes with NUL": (b"a\x00b", "NUL"),
    "key that is a number": ({1: "a"}, r"content has the key 1, which JSON would turn into text"),
    "key that is None": ({"a": {None: 1}}, r"content\['a'\] has the key None"),
    "integer without end": (10**5000, "content cannot be stored as JSON"),
    "object": (
        {"when": dt.datetime(2024, 5, 1, tzinfo=dt.UTC)},
        r"content\['when'\] is datetime.datetime\(2024.*Unsupported type: datetime\. Pass str\(\) of it\.$",
    ),
    "decimal": (decimal.Decimal("1.5"), r"Unsupported type: Decimal\. Pass str\(\) of it\.$"),
    "uuid": ([uuid.UUID(int=7)], r"content\[0\] is UUID.*Unsupported type: UUID"),
    "set": ({1, 2}, "Unsupported type: set"),
    "generator": (
        (n for n in range(3)),
        r"Unsupported type: generator\. None of its code has run",
    ),
    "object whose repr raises": (Shy(), "Shy"),
    "exception": (ValueError("x"), "Unsupported type: ValueError"),
    "lazy text": ({"a": SimpleLazyObject(lambda: "x")}, r"content\['a'\] is .*Unsupported type: SimpleLazyObject"),
    "lazy number": (SimpleLazyObject(lambda: 7), "Unsupported type: SimpleLazyObject"),
    "lazy key": ({SimpleLazyObject(lambda: "x"): 1}, "content has the key <SimpleLazyObject: 'x'>"),
    "translation": ([gettext_lazy("Yes")], r"content\[0\] is 'Yes'.* pass str\(\) of it\."),
    "itself": (_endless(), "nested too deeply, or contains itself"),
    "depth": (_deep(100_000), "nested too deeply"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_value_is_named_with_its_place_and_nothing_is_lost(name: str) -> None:
    value, said = REFUSED[name]
    with transaction.atomic():
        kept = Queue("mail").send("before")
        with pytest.raises(InvalidContent, match=said) as refused:
            Queue("mail").send(value)
        assert "During handling" not in "".join(traceback.format_exception(refused.value))
        with pytest.raises(InvalidContent):
            Queue("mail").send_many(["fine", value])
        Queue("mail").send("after")
    messages = Queue("mail").receive_many(10)
    assert [message.content for message in messages] == ["before", "after"]
    assert messages[0].id == kept


def test_the_error_of_a_coroutine_says_what_makes_one() -> None:
    """A task whose decorator is not async returns it, and the function has not run."""

    async def nothing() -> None: ...

    coroutine = nothing()
    with pytest.raises(InvalidContent, match="A decorator of an async function has to be async itself"):
        content.normalize(coroutine)
    coroutine.close()


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(InvalidContent) as refused:
        content.normalize("x" * 1_000_000 + "\x00")
    assert len(str(refused.value)) < 300


def test_content_may_be_deeply_nested() -> None:
    assert through_the_database(_deep(200)) == _deep(200)


def test_ten_megabytes_come_back_as_they_were_sent() -> None:
    queue = Queue("mail", max_content_bytes=TEN_MEGABYTES + 100)
    value = {"page": "é" * (TEN_MEGABYTES // 2)}
    queue.send(value)
    message = queue.receive()
    assert message is not None
    assert message.content == value


def test_content_beyond_the_limit_is_refused_with_its_size_and_the_next_step() -> None:
    with pytest.raises(ContentTooLarge, match=r"content has 10,485,762 bytes as JSON and may have 1,048,576.*its key"):
        Queue("mail").send("x" * TEN_MEGABYTES)
    with pytest.raises(ContentTooLarge, match=r"contents\[1\] has"):
        Queue("mail").send_many(["small", "x" * TEN_MEGABYTES])
    with pytest.raises(ContentTooLarge, match="headers has"):
        Queue("mail").send("small", headers={"x": "x" * TEN_MEGABYTES})
    assert Message.objects.count() == 0


@pytest.mark.parametrize("number", [1e-300, -5e-324])
def test_content_too_large_as_text_in_postgresql_is_refused_before_any_sql(number: float) -> None:
    """PostgreSQL prints each of these numbers with more than 300 digits."""
    queue = Queue("mail", max_content_bytes=TEN_MEGABYTES)
    with pytest.raises(ContentTooLarge, match=r"as PostgreSQL prints it, and may have 16,777,216.*its key"):
        queue.send([number] * 60_000)
    queue.send([number] * 40_000)
    assert len(Message.objects.get().content) == 40_000


@pytest.mark.parametrize(("value", "size"), [("é", 4), ("\U0001f375", 6), ("a", 3), ([1, 2], 5), ('"', 4)])
def test_the_size_limit_counts_the_bytes_of_the_json(value: Any, size: int) -> None:
    content.encode(value, max_bytes=size)
    with pytest.raises(ContentTooLarge, match=f"{size} bytes"):
        content.encode(value, max_bytes=size - 1)


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("mail", True),
        ("é \U0001f375/-'\"%", True),
        ("x" * 255, True),
        ("\U0001f375" * 63, True),
        ("\U0001f375" * 64, False),
        ("é" * 128, False),
        ("a\nb", False),
        ("\x1b[31m", False),
        ("a\x7f", False),
        ("", False),
        ("x" * 256, False),
        ("a\x00", False),
        ("\ud800", False),
        (None, False),
        (7, False),
        (b"mail", False),
    ],
)
def test_names_of_queues_fit_into_an_index(name: Any, may_be: bool) -> None:
    assert names.is_name(name) is may_be
    if may_be:
        Queue(name).send("x", channel=name)
        message = Queue(name).receive()
        assert message is not None
        assert (message.queue, message.channel) == (name, name)
