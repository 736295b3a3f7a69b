"""The parameters of a task, and whether the arguments of a message fit them."""

from __future__ import annotations

from contextlib import AsyncContextDecorator, ContextDecorator
from dataclasses import dataclass, field
from inspect import Parameter, Signature, unwrap
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

MAX_REMEMBERED = 64
"""So many ways to call a task are remembered as good: names of arguments may come from anybody."""
HANDS_OVER = {kind()(abs).__code__ for kind in (ContextDecorator, AsyncContextDecorator)}
"""Code of the wrappers that hand over what they take: those of transaction.atomic and of each context manager."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Checked before each attempt: a call without names of arguments costs a comparison of two numbers."""

    signature: Signature | None
    """None: whatever fits is not known, and the call itself finds out."""
    least: int
    most: int
    """A call with so many arguments, and none by its name, fits."""
    context: int
    """1 if the first argument is the context."""
    good: set[tuple[Any, ...]] = field(default_factory=set)

    @classmethod
    def of(cls, task: Any) -> Self:
        context = int(bool(task.takes_context))
        function = unwrap(task.func, stop=lambda one: getattr(one, "__code__", None) not in HANDS_OVER)
        # Any other decorator may hand over other arguments than it takes, and may say anything in __signature__.
        if type(function) is not FunctionType or hasattr(function, "__signature__"):
            return cls(None, 0, 2**31, context)
        # Without its annotations, which may name what does not exist while the program runs.
        bare = FunctionType(function.__code__, {}, "bare", function.__defaults__, function.__closure__)
        bare.__kwdefaults__ = function.__kwdefaults__
        signature = Signature.from_callable(bare)
        least = most = -context
        for parameter in signature.parameters.values():
            is_required = parameter.default is Parameter.empty
            if parameter.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}:
                least, most = least + is_required, most + 1
            elif parameter.kind is Parameter.VAR_POSITIONAL:
                most = 2**31
            elif parameter.kind is Parameter.KEYWORD_ONLY and is_required:
                least = 2**32  # never without names
        return cls(signature, least, most, context)

    def refusal(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Returns why a call with these arguments fails before it begins; None: it does not.

        >>> from types import SimpleNamespace
        >>> def send(to, *, subject=""): ...
        >>> parameters = Parameters.of(SimpleNamespace(func=send, takes_context=False))
        >>> parameters.refusal(["ann"], {}), parameters.refusal([], {})
        (None, "missing a required argument: 'to'")
        """
        if not kwargs and self.least <= len(args) <= self.most:
            return None
        return self._refusal(args, kwargs)

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns one form of the calls that give the parameters the same values: without names, as far as possible.

        >>> from types import SimpleNamespace
        >>> def send(to, *, subject=""): ...
        >>> Parameters.of(SimpleNamespace(func=send, takes_context=False)).bound([], {"to": "ann", "subject": "Hi"})
        {'args': ['ann'], 'kwargs': {'subject': 'Hi'}}
        """
        if self.signature is None or self.refusal(args, kwargs):
            return {"args": list(args), "kwargs": dict(kwargs)}
        bound = self.signature.bind(*[None] * self.context, *args, **kwargs)
        return {"args": list(bound.args[self.context :]), "kwargs": bound.kwargs}

    def _refusal(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        if self.signature is None:
            return None
        call = (len(args), *kwargs)
        if call in self.good:
            return None
        try:
            self.signature.bind(*[None] * (len(args) + self.context), **dict.fromkeys(kwargs))
        except TypeError as error:
            return str(error)
        if len(self.good) < MAX_REMEMBERED:
            self.good.add(call)
        return None
