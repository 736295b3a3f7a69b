"""The ``TaskResult`` of this backend: it names the right call to people who come from another queue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import MISSING, astuple, fields
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import TaskError, TaskResult
from django_pgqueue.tasks import habits

if TYPE_CHECKING:
    Base = TaskResult[..., Any]
else:  # Django 5.2's results are not generic at run time
    Base = TaskResult


class PgQueueTaskResult(Base):
    """Result of django.tasks, with an answer for the attributes that results of other queues have."""

    __slots__ = ()

    if not TYPE_CHECKING:  # for type checkers, a result has the attributes of Django's and no others

        def __getattr__(self, name: str) -> Any:
            raise habits.missing(self, name, habits.of_result(name))


class PgQueueTaskError(TaskError):
    """Error of django.tasks, which itself cannot import a class in another one, such as ``Order.DoesNotExist``."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return astuple(self) == astuple(other) if isinstance(other, TaskError) else NotImplemented

    __hash__ = TaskError.__hash__

    @property
    def exception_class(self) -> type[BaseException]:
        try:
            return TaskError.exception_class.fget(self)  # type: ignore[attr-defined,no-any-return]
        except ImportError:
            with suppress(ImportError, AttributeError, ValueError):
                found = resolve_name(self.exception_class_path)
                if isinstance(found, type) and issubclass(found, BaseException):
                    return found
            raise


def of_values(**values: Any) -> PgQueueTaskResult:
    """Returns a result without normalising its values, for values that are normalised already."""
    result = object.__new__(PgQueueTaskResult)
    for name, value in values.items():
        object.__setattr__(result, name, value)
    for newer in NEWER:
        value = newer.default if newer.default_factory is MISSING else newer.default_factory()
        object.__setattr__(result, newer.name, value)
    return result


KNOWN = {
    "task", "id", "status", "enqueued_at", "started_at", "last_attempted_at", "finished_at", "args", "kwargs",
    "backend", "errors", "worker_ids", "_return_value",
}  # fmt: skip
NEWER = tuple(item for item in fields(PgQueueTaskResult) if item.name not in KNOWN)
"""Fields that a later release of Django has added.  They get their defaults."""
