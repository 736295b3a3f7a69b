"""Arguments of a message: that they fit a task is known before it begins."""

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from django_pgqueue.tasks.parameters import MAX_REMEMBERED, Parameters

if TYPE_CHECKING:
    from collections.abc import Iterator


def of(function: Any, *, takes_context: bool = False) -> Parameters:
    return Parameters.of(SimpleNamespace(func=function, takes_context=takes_context))


def plain(a: int, b: int = 2) -> None: ...


def named(a: int, *, b: int) -> None: ...


def anything(*args: Any, **kwargs: Any) -> None: ...


def positional(a: int, /, b: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "refusal"),
    [
        (plain, [1], {}, None),
        (plain, [1, 2], {}, None),
        (plain, [], {"a": 1}, None),
        (plain, [], {}, "missing a required argument: 'a'"),
        (plain, [1, 2, 3], {}, "too many positional arguments"),
        (plain, [1], {"c": 3}, "got an unexpected keyword argument 'c'"),
        (plain, [1], {"a": 1}, "multiple values for argument 'a'"),
        (named, [1], {"b": 2}, None),
        (named, [1], {}, "missing a required argument: 'b'"),
        (anything, [1, 2, 3], {"x": 1}, None),
        (positional, [1], {"b": 2}, None),
        (positional, [], {"a": 1, "b": 2}, "'a' parameter is positional only, but was passed as a keyword"),
    ],
)
def test_arguments_that_the_call_would_refuse_are_refused(
    function: Any, args: list[Any], kwargs: dict[str, Any], refusal: str | None
) -> None:
    found = of(function).refusal(args, kwargs)
    assert (found is None) == (refusal is None), found
    assert of(function).refusal(args, kwargs) == of(function).refusal(args, kwargs)
    try:
        function(*args, **kwargs)
    except TypeError:
        assert found is not None
    else:
        assert found is None


def test_the_context_is_the_first_argument() -> None:
    def with_context(context: Any, a: int) -> None: ...

    assert of(with_context, takes_context=True).refusal([1], {}) is None
    assert of(with_context, takes_context=True).refusal([], {"a": 1}) is None
    assert of(with_context, takes_context=True).refusal([], {}) is not None
    assert of(with_context, takes_context=True).refusal([1, 2], {}) is not None


def test_a_decorator_may_pass_other_arguments_than_it_takes() -> None:
    def connected(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function("connection", *args, **kwargs)

        return wrapper

    @connected
    def send(connection: str, to: str) -> None: ...

    assert of(send).refusal(["ann"], {}) is None


@contextlib.contextmanager
def managed() -> Iterator[None]:
    yield


class Asynchronous(contextlib.AsyncContextDecorator):
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("decorator", [transaction.atomic, managed(), Asynchronous(), transaction.atomic(durable=True)])
def test_a_context_manager_passes_the_arguments_it_takes(decorator: Any) -> None:
    found = of(decorator(managed()(plain)))
    assert found.refusal([1, 2], {}) is None
    assert found.refusal([], {"a": 1}) is None
    assert found.refusal([], {}) == "missing a required argument: 'a'"
    assert found.refusal([1, 2, 3], {}) == "too many positional arguments"


def test_a_context_manager_with_its_own_call_may_pass_others() -> None:
    class Connected(contextlib.ContextDecorator):
        def __call__(self, function: Any) -> Any:
            @functools.wraps(function)
            def inner(*args: Any, **kwargs: Any) -> Any:
                return function("connection", *args, **kwargs)

            return inner

    assert of(Connected()(plain)).refusal([], {}) is None
    assert of(transaction.atomic(Connected()(plain))).refusal([], {}) is None


def test_a_callable_without_a_signature_accepts_any_call() -> None:
    assert of(functools.partial(plain, 1)).refusal([1, 2, 3], {"z": 1}) is None

    def lies(a: int) -> None: ...

    lies.__signature__ = None  # type: ignore[attr-defined]
    assert of(lies).refusal([1, 2, 3], {}) is None


def test_names_of_unknown_arguments_are_not_kept_in_memory() -> None:
    parameters = of(anything)
    for n in range(2 * MAX_REMEMBERED):
        assert parameters.refusal([], {f"name{n}": 1}) is None
    assert len(parameters.good) == MAX_REMEMBERED
