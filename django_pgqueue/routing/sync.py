"""Brings the declarations of the code into the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import DataError, connections, transaction

from django_pgqueue import functions
from django_pgqueue.exceptions import InvalidPattern
from django_pgqueue.routing.declared import DECLARED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_pgqueue.functions import KnownBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A difference between the code and the database."""

    sign: str
    """``+`` is missing in the database, ``~`` is different there, ``-`` is declared only there."""
    exchange: str
    binding: KnownBinding | None = None

    @property
    def is_left_over(self) -> bool:
        return self.sign == "-"

    def __str__(self) -> str:
        return f"{self.sign} {self.what}"

    @property
    def what(self) -> str:
        if self.binding is None:
            return f"exchange {self.exchange}"
        pattern = f"/{self.binding.pattern}/" if self.binding.kind == "regex" else repr(self.binding.pattern)
        whose = f"{self.binding.task} in" if self.binding.task else "raw messages in"
        return f"{self.exchange} {pattern} to {whose} {self.binding.queue}"

    def apply(self, connection: Any) -> None:
        if self.binding is not None and self.is_left_over:
            functions.binding_delete(connection, self.binding)
        elif self.binding is not None:
            functions.binding_declare(connection, self.binding, declared=True)
        elif self.is_left_over:
            functions.exchange_delete(connection, self.exchange)
        else:
            functions.exchange_declare(connection, self.exchange, declared=True)


def changes(database: str) -> list[Change]:
    """Returns the changes after which the database has what the code declares.  A left-over entry may be another
    project's.
    """
    connection = connections[database]
    return [*_missing(connection, database), *_left_over(connection, database)]


def synchronise(database: str, *, prune: bool) -> list[Change]:
    """Applies ``changes`` and returns them.  One at a time, so that two deployments do not disturb each other."""
    connection = connections[database]
    with transaction.atomic(using=database):
        functions.bindings_lock(connection)
        wanted = [change for change in changes(database) if prune or not change.is_left_over]
        for change in wanted:
            try:
                change.apply(connection)
            except DataError as error:
                message = f"{change}: {functions.refusal_of(error)}"
                raise InvalidPattern(message) from error
    return wanted


def _missing(connection: Any, database: str) -> Iterator[Change]:
    """Yields what the database lacks: exchanges before their bindings."""
    exchanges = functions.exchanges(connection)
    for name in sorted(DECLARED.exchanges_in(database)):
        if not exchanges.get(name):
            yield Change(sign="+", exchange=name)
    known = {binding.key: (binding, declared) for binding, declared in functions.bindings(connection)}
    for key, binding in sorted(DECLARED.bindings_in(database).items()):
        there, declared = known.get(key, (None, False))
        if there != binding or not declared:
            yield Change(sign="+" if there is None else "~", exchange=binding.exchange, binding=binding)


def _left_over(connection: Any, database: str) -> Iterator[Change]:
    """Yields what only the database declares: exchanges after their bindings, and none with a binding made by hand."""
    wanted, by_hand = DECLARED.bindings_in(database), set()
    for binding, declared in functions.bindings(connection):
        if not declared:
            by_hand.add(binding.exchange)
        elif binding.key not in wanted:
            yield Change(sign="-", exchange=binding.exchange, binding=binding)
    for name, declared in functions.exchanges(connection).items():
        if declared and name not in DECLARED.exchanges_in(database) and name not in by_hand:
            yield Change(sign="-", exchange=name)
