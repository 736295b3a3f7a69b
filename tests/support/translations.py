"""The catalogues of translations: python -m tests.support.translations reads the sources, and writes .po and .mo.

It needs no GNU gettext: Babel reads Python, and Django turns its templates into calls that Babel can read.  What Django
translates itself is left to Django: an entry of ours would change the word on all of its pages.
"""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation import template

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "django_pgqueue"
LANGUAGES = ("de",)
KEYWORDS: dict[str, Any] = {
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
}


class Plain(Catalog):
    """A catalogue whose head has nothing that changes by itself, such as times."""

    @property
    def mime_headers(self) -> list[tuple[str, str]]:
        return [
            ("Content-Type", "text/plain; charset=UTF-8"),
            ("Language", str(self.locale_identifier)),
            ("Plural-Forms", self.plural_forms),
        ]


def file_of(language: str, ending: str = "po") -> Path:
    return PACKAGE / "locale" / language / "LC_MESSAGES" / f"django.{ending}"


@functools.cache
def words_of_django() -> frozenset[str]:
    """Returns every msgid of Django and its apps: each has a catalogue of the English words."""
    root = Path(django.__file__).parent
    found: set[str] = set()
    for path in [
        root / "conf/locale/en/LC_MESSAGES/django.po",
        *root.glob("contrib/*/locale/en/LC_MESSAGES/django.po"),
    ]:
        found |= {singular(entry.id) for entry in catalogue(path) if entry.id and entry.context is None}
    return frozenset(found)


def catalogue(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file)


def singular(msgid: Any) -> str:
    return str(msgid if isinstance(msgid, str) else msgid[0])


def in_sources() -> Catalog:
    """Returns all msgids of Python and templates, with the files that have them."""
    found = Catalog(project="django_pgqueue", header_comment="")
    for path in sorted(PACKAGE.rglob("*.py")):
        _add(found, path, path.read_text())
    for path in sorted(PACKAGE.rglob("*.html")):
        _add(found, path, template.templatize(path.read_text(), origin=path.name))
    return found


def _add(found: Catalog, path: Path, source: str) -> None:
    name = path.relative_to(PACKAGE.parent).as_posix()
    for _, msgid, _, context in extract("python", io.BytesIO(source.encode()), KEYWORDS):
        if context is None and singular(msgid) in words_of_django():
            continue
        # No line numbers: a change of the code is no change of the catalogue.
        if (known := found.get(msgid, context)) and known.id == msgid:
            known.locations = sorted({*known.locations, (name, 0)})
        else:
            found.add(msgid, locations=[(name, 0)], context=context)


def current(language: str) -> Plain:
    """Returns the catalogue of a language, with the words of the sources and no others."""
    path = file_of(language)
    known = catalogue(path) if path.exists() else Catalog()
    made = Plain(language, project="django_pgqueue", header_comment="")
    for entry in sorted(in_sources(), key=lambda entry: (entry.context or "", singular(entry.id))):
        if entry.id:
            before = known.get(entry.id, entry.context)
            string = before.string if before is not None and before.id == entry.id else ""
            made.add(entry.id, string or None, locations=entry.locations, context=entry.context)
    return made


def written(made: Plain) -> bytes:
    into = io.BytesIO()
    write_po(into, made, omit_header=True, include_lineno=False, width=100)
    head = "".join(f'"{name}: {value}\\n"\n' for name, value in made.mime_headers)
    return f'msgid ""\nmsgstr ""\n{head}\n'.encode() + into.getvalue()


def compiled(made: Plain) -> bytes:
    into = io.BytesIO()
    write_mo(into, made)
    return into.getvalue()


def untranslated(made: Catalog) -> Iterator[Any]:
    for entry in made:
        strings = entry.string if isinstance(entry.string, (list, tuple)) else (entry.string,)
        if entry.id and not all(strings):
            yield entry.id


def main() -> None:
    for language in LANGUAGES:
        made = current(language)
        path = file_of(language)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written(made))
        file_of(language, "mo").write_bytes(compiled(made))
        missing = list(untranslated(made))
        print(f"{path}: {len(made)} entries, {len(missing)} not translated")
        for msgid in missing:
            print(f"  {msgid!r}")


if __name__ == "__main__":
    main()
