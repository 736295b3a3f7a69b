"""What must not be shown: neither in the admin nor in logs.

A task says it (``@task(sensitive=["card"])``, or ``sensitive=True`` for all that its messages say), or the option
``SENSITIVE`` says it for all messages.  Nothing is encrypted: the database has it as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import UnknownTask
from django_pgqueue.tasks import registry
from django_pgqueue.values.names import is_name

if TYPE_CHECKING:
    from django_pgqueue.compat import AnyTask
    from django_pgqueue.conf import Options

HIDDEN = "(hidden)"


def is_possible(said: object) -> bool:
    """Whether a task or a setting can say this: True, False, or the names of arguments and keys.

    >>> is_possible(["card"]), is_possible("card")
    (True, False)
    """
    if isinstance(said, bool):
        return True
    return isinstance(said, (list, tuple, set, frozenset)) and all(is_name(name) for name in said)


def validate(task: AnyTask) -> None:
    said = getattr(task, "sensitive", False)
    if not is_possible(said):
        message = f"sensitive must be True, False or a list of names of arguments, such as ['card'], not {said!r}."
        raise InvalidTask(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What of a message is not shown."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    """Of arguments, and of keys at any depth."""
    places: frozenset[int] = frozenset()
    """Of positional arguments."""
    unknown: bool = False
    """The task is not in the code (any more)."""
    why: str = "It is sensitive, and so it is not shown."

    @classmethod
    def of(cls, path: str | None, options: Options) -> Sensitivity:
        """``path``: the task of a message, None for a raw one.

        What a task that is not in the code (any more) held sensitive nobody knows: nothing of it is shown.
        """
        if options.sensitive is True or not is_possible(options.sensitive):  # a mistake must not show anything
            return cls(everything=True)
        names = frozenset(options.sensitive or ())
        if path is None:
            return cls(names=names)
        try:
            task = registry.find(path)
        except UnknownTask:
            why = f"There is no task {path} in this code, and so nobody knows what of it is sensitive: it is not shown."
            return cls(everything=True, unknown=True, why=why)
        own = getattr(task, "sensitive", False)
        if own is True:
            return cls(everything=True)
        names |= frozenset(own or ())
        return cls(names=names, places=_places(task, names))

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    def redacted(self, text: str | None) -> str | None:
        """JSON, to be read by people, without what is sensitive in it.  What cannot be read is not shown at all.

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

    def _called(self, said: Any) -> Any:
        """A call without those of its positional arguments that are sensitive."""
        match said:
            case {"args": list(args), **others} if self.places:
                shown = [HIDDEN if place in self.places else arg for place, arg in enumerate(args)]
                return {"args": shown, **others}
            case _:
                return said

    def _without(self, said: Any) -> Any:
        if isinstance(said, dict):
            return {key: HIDDEN if key in self.names else self._without(value) for key, value in said.items()}
        return [self._without(item) for item in said] if isinstance(said, list) else said


def _places(task: AnyTask, names: frozenset[str]) -> frozenset[int]:
    """Of the arguments of these names, where they are given by their place.  All from a sensitive ``*args`` on."""
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
    """Whether errors may not quote what a call of the task says."""
    return bool(options.sensitive or getattr(task, "sensitive", False))


def hides_message(path: str | None, options: Options) -> bool:
    """The same of a message, whose task may not be there."""
    try:
        return bool(options.sensitive) or (path is not None and hides(registry.find(path), options))
    except UnknownTask:
        return True


def hides_error(path: str | None, options: Options) -> bool:
    """Whether a log may not say what the error of an attempt says.

    A task that is not there did not run: its error says that, and of the message nothing but the task's name.
    """
    return not (path is not None and is_unknown(path)) and hides_message(path, options)


def is_unknown(path: str) -> bool:
    """Whether there is no task at a path in this code (any more)."""
    try:
        registry.find(path)
    except UnknownTask:
        return True
    return False
