"""Sensitive values, which neither the admin nor the logs show.

A task names them with ``@task(sensitive=["card"])``, or hides all content of its messages with ``sensitive=True``.  The
option ``SENSITIVE`` does the same for all messages.  Nothing is encrypted: the database has the plain values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks import registry
from django_pgqueue.values.names import is_name
from django_pgqueue.values.signatures import signature

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
    from django_pgqueue.conf import Options

HIDDEN = "(hidden)"


def is_possible(names: object) -> bool:
    """Whether ``sensitive`` of a task or a setting may be this: True, False, or the names of arguments and keys.

    >>> is_possible(["card"]), is_possible("card")
    (True, False)
    """
    if isinstance(names, bool):
        return True
    return isinstance(names, (list, tuple, set, frozenset)) and all(is_name(name) for name in names)


def validate(task: AnyTask) -> None:
    names = getattr(task, "sensitive", False)
    if not is_possible(names):
        message = f"sensitive must be True, False or a list of names of arguments, such as ['card'], not {names!r}."
        raise InvalidTask(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Values of a message that are not shown."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    """Names of arguments, and of keys at any depth."""
    places: frozenset[int] = frozenset()
    """Positions of positional arguments."""
    unknown: bool = False
    """The task is not in the code (any more)."""
    path: str | None = None
    """The task that is unknown."""

    @classmethod
    def of(cls, path: str | None, options: Options) -> Sensitivity:
        """Returns the sensitivity of a message.  ``path``: its task, None for a raw message.

        If the task is not in the code (any more), its sensitive arguments are unknown: then everything is hidden.
        """
        if options.sensitive is True or not is_possible(options.sensitive):  # a mistake must not show anything
            return cls(everything=True)
        names = frozenset(options.sensitive or ())
        if path is None:
            return cls(names=names)
        try:
            task = registry.find(path)
        except UnknownTask:
            return cls(everything=True, unknown=True, path=path)
        own = getattr(task, "sensitive", False)
        if own is True:
            return cls(everything=True)
        names |= frozenset(own or ())
        return cls(names=names, places=_places(task, names))

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    def redacted(self, text: str | None) -> str | None:
        """Returns JSON for people, without its sensitive values.  JSON that cannot be parsed is hidden completely.

        >>> print(Sensitivity(names=frozenset(["card"])).redacted('{"args": [], "kwargs": {"card": "4711", "n": 1}}'))
        {
            "args": [],
            "kwargs": {
                "card": "(hidden)",
                "n": 1
            }
        }
        """
        if text is None:
            return None
        if self.everything:
            return HIDDEN
        try:
            return json.dumps(self._without(self._called(json.loads(text))), indent=4, ensure_ascii=False)
        except (ValueError, RecursionError):
            return HIDDEN

    def _called(self, value: Any) -> Any:
        """Returns a call without its sensitive positional arguments."""
        match value:
            case {"args": list(args), **others} if self.places:
                shown = [HIDDEN if place in self.places else arg for place, arg in enumerate(args)]
                return {"args": shown, **others}
            case _:
                return value

    def _without(self, content: Any) -> Any:
        if isinstance(content, dict):
            return {key: HIDDEN if key in self.names else self._without(value) for key, value in content.items()}
        return [self._without(item) for item in content] if isinstance(content, list) else content


def _places(task: AnyTask, names: frozenset[str]) -> frozenset[int]:
    """Returns the positions of the arguments with these names; for a sensitive ``*args`` all positions from it on."""
    parameters = list(signature(task.func).parameters.values())[1 if task.takes_context else 0 :]
    places: set[int] = set()
    for place, parameter in enumerate(parameters):
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}:
            break
        if parameter.name in names:
            places |= set(range(place, MAX_ARGUMENTS)) if parameter.kind is parameter.VAR_POSITIONAL else {place}
    return frozenset(places)


MAX_ARGUMENTS = 1_000


def hides(task: AnyTask, options: Options) -> bool:
    """Whether errors may not quote the arguments of a call of the task."""
    return bool(options.sensitive or getattr(task, "sensitive", False))


def hides_message(path: str | None, options: Options) -> bool:
    """Whether errors may not quote the arguments of a message, whose task may not be in the code."""
    try:
        return bool(options.sensitive) or (path is not None and registry.is_sensitive(path))
    except UnknownTask:
        return True


def hides_error(path: str | None, options: Options) -> bool:
    """Whether a log may not have the error text of an attempt.

    A task that is not in the code did not run.  Its error says so, and has nothing of the message but the task's name.
    """
    return not (path is not None and is_unknown(path)) and hides_message(path, options)


def is_unknown(path: str) -> bool:
    """Whether this code has no task at a path (any more)."""
    try:
        registry.find(path)
    except UnknownTask:
        return True
    return False
