"""Writes docs/pages/reference/api.md: the signature and the docstring of each public name.

    python -m tests.project.docs.api_reference

The page has a place for each promised name (tests/support/promised.py), between ``<!-- api: MODULE.NAME -->`` and
``<!-- end -->``; what stands between them is replaced.  All else on the page is written by hand: the example of each
name, which tests run.  A test runs this script and finds nothing to change.

The ``>>>`` lines of a docstring are for the reader of the code, so they are left out.
"""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.support.pages import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = FOLDER / "reference" / "api.md"
PLACE, END = "<!-- api: ", "<!-- end -->"
OURS = "django_pgqueue"
MAX_LINE = 100
WITHOUT_MEMBERS = {f"{OURS}.{room}" for room in ("backend", "exceptions", "logs", "models", "routers", "stand_ins")}
"""Modules whose classes are used as they are: Django, logging or the ORM calls their methods."""
MADE_INSIDE = {
    *("Clock", "DurableContext", "JsonFormatter", "PgQueueBackend", "PgQueueContext", "ReceivedMessage", "Suspension"),
    "pgqueue",
}
"""Names that the package itself calls, or decorators and settings bring: their parameters are nobody's business."""


def written(page: str) -> str:
    """Returns the page with everything in its places."""
    parts = page.split(PLACE)
    for number, part in enumerate(parts[1:], start=1):
        path, _, rest = part.partition(" -->\n")
        _, _, after = rest.partition(END)
        parts[number] = f"{path} -->\n{description(path)}{END}{after}"
    return PLACE.join(parts)


def description(path: str) -> str:
    """Returns the Markdown of a name: its signature, its docstring, and its members."""
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name)
    if not is_ours(found):
        return ""
    parts = [signature_block(name, found), markdown(inspect.getdoc(found) or "")]
    if inspect.isclass(found) and module not in WITHOUT_MEMBERS:
        parts += class_parts(name, found)
    return "\n".join(f"{part}\n" for part in parts if part)


def is_ours(found: Any) -> bool:
    """Returns whether the package defines it: Django's own names are described on the page by hand."""
    return getattr(found, "__module__", "").startswith(OURS)


def class_parts(name: str, found: type) -> Iterator[str]:
    documented, attributes, variants = [], [], []
    for member, value in members(found):
        text = inspect.getdoc(value) or ""
        if not text:
            attributes.append(member)
        elif text.startswith("The ``async`` variant of"):
            variants.append(member)
        else:
            documented.append((member, value))
    if attributes:
        yield f"Attributes: {', '.join(f'`{each}`' for each in attributes)}."
    for member, value in documented:
        yield f"#### {name}.{member}"
        yield signature_block(member, value)
        yield markdown(inspect.getdoc(value) or "")
    if variants:
        yield f"#### {name} in async code"
        yield f"The `async` variants: {', '.join(f'`{each}`' for each in variants)}."


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties that the package gives a class, in the order of its file."""
    seen: set[str] = set()
    for base in owner.__mro__:
        if not base.__module__.startswith(OURS):
            continue
        for name, value in vars(base).items():
            member = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if name.startswith("_") or name in seen or not is_documented(member):
                continue
            seen.add(name)
            yield name, member


def is_documented(member: Any) -> bool:
    return isinstance(member, property | cached_property) or (inspect.isfunction(member) and bool(member.__doc__))


def signature_block(name: str, found: Any) -> str:
    """Returns a block with the call; empty for values that are not called."""
    is_called = inspect.isclass(found) or inspect.isfunction(found)
    module = getattr(found, "__module__", "")
    if not is_called or name in MADE_INSIDE or (inspect.isclass(found) and is_used_as_it_is(module)):
        return ""
    return f"<!-- not run: a signature -->\n```python\n{call(name, found)}\n```"


def is_used_as_it_is(module: str) -> bool:
    """Returns whether nobody calls the classes of a module.  Errors are caught, with the exception of Retry."""
    return any(module.startswith(used) for used in WITHOUT_MEMBERS - {f"{OURS}.backend", f"{OURS}.exceptions"})


def call(name: str, found: Callable[..., Any]) -> str:
    if inspect.isclass(found) and is_dataclass(found):
        parameters, returns = field_texts(found), ""
    else:
        parameters, returns = parameter_texts(found)
    word = "async " if inspect.iscoroutinefunction(found) else ""
    line = f"{word}{name}({', '.join(parameters)}){returns}"
    if len(line) <= MAX_LINE:
        return line
    inside = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{word}{name}(\n{inside}){returns}"


def own_fields(found: Any) -> list[Any]:
    """Returns the fields that the package declares: those of a class of Django's stand in Django's documentation."""
    ours = {name for base in found.__mro__ if base.__module__.startswith(OURS) for name in base.__annotations__}
    return [field for field in fields(found) if field.name in ours and field.init and not field.name.startswith("_")]


def field_texts(found: Any) -> list[str]:
    texts: list[str] = []
    for field in own_fields(found):
        if field.kw_only and "*" not in texts:
            texts.append("*")
        default = f"{field.default_factory.__name__}()" if field.default_factory is not MISSING else None
        if field.default is not MISSING:
            default = default_text(field.default)
        text = f"{field.name}: {annotation_text(field.type)}"
        texts.append(f"{text} = {default}" if default else text)
    return texts


def parameter_texts(found: Callable[..., Any]) -> tuple[list[str], str]:
    signature = inspect.signature(found)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        if parameter.name != "self":
            shown.append(parameter_text(parameter))
    returns = signature.return_annotation
    has_none = returns is signature.empty or inspect.isclass(found)
    return shown, "" if has_none else f" -> {annotation_text(returns)}"


def parameter_text(parameter: inspect.Parameter) -> str:
    text = str(parameter).partition(":")[0].partition("=")[0].strip()  # with its stars
    if parameter.annotation is not parameter.empty:
        text += f": {annotation_text(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {default_text(parameter.default)}"


def annotation_text(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b_?([A-Z]\w+)", r"\1", text.strip("'\""))


def default_text(default: Any) -> str:
    return (
        default.__name__ if inspect.isfunction(default) or inspect.isclass(default) else repr(default).replace("'", '"')
    )


def markdown(docstring: str) -> str:
    """Returns a docstring as Markdown: code in single marks, literal blocks as blocks, no ``>>>`` lines."""
    paragraphs = [part for part in docstring.split("\n\n") if not part.lstrip().startswith(">>>")]
    return "\n\n".join(map(paragraph, paragraphs)).strip()


def paragraph(text: str) -> str:
    if text.startswith("    "):
        return f"```python\n{inspect.cleandoc(text)}\n```"
    return re.sub(r"::$", ":", text).replace("``", "`").replace(".  ", ". ")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
