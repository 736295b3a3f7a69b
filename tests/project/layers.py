"""The rooms of the package and who imports whom; draws them into docs/pages/contributing/map.md.

    python -m tests.project.layers

A room is a folder or a file at the top of ``django_pgqueue/``.  The floors are those of ``[tool.importlinter]`` in
pyproject.toml.  Imports inside functions and under ``TYPE_CHECKING`` count like all others.  The page has the picture
between two marks; what stands between them is replaced.  A test runs this and finds nothing to change.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "django_pgqueue"
PAGE = ROOT / "docs" / "pages" / "contributing" / "map.md"
BEGIN, END = "<!-- layers -->\n", "<!-- end layers -->\n"
WIDTH = 76

ROOMS = {
    "admin": "the pages of Django's admin",
    "templatetags": "what the templates of these pages ask for",
    "management": "the commands, and what they print on a terminal",
    "stand_ins": "backends without a queue, for the `TASKS` of test settings",
    "pytest_plugin": "fixtures",
    "apps": "Django's `AppConfig`; registers the checks",
    "metrics": "`/metrics` of the queue, and of a worker",
    "testing": "drain, clock, inline mode, assertions, crashes",
    "monitoring": "what is going on: the overview, the doctor, why a message waits",
    "checks": "system checks",
    "queue": "raw messages: `Queue`, `ReceivedMessage`, `Listener`",
    "routing": "exchanges, bindings, subscriptions",
    "control": "cancel, pause, resume, limits of channels, run a schedule now",
    "worker": "`manage.py qworker`: claim, run, record",
    "routers": "`PgQueueRouter`",
    "contrib": "`shared_task` for code that was written for Celery",
    "durable": "durable tasks: steps, waits, events, decisions, children",
    "backend": "`PgQueueBackend`, many at once, results, signals, which backend and database is meant",
    "traces": "spans of OpenTelemetry",
    "logs": "lines of the log as JSON",
    "tasks": "what a task may say: `task`, schedules, retries, unique keys, channels, `after`, context",
    "consumer": "what a worker and a listener share: connection, statements, session, wake-up, polling",
    "functions": "the Python side of the SQL functions: whatever changes the queue",
    "models": "Django's view of the tables",
    "values": "JSON, names, arguments, times, errors, redaction: no database, no state",
    "exceptions": "every error of the package",
    "conf": "the options of a backend, from `TASKS`",
    "compat": "where the tasks API comes from: Django 6 or the backport",
    "distribution": "the name to install, for every message that says what to install",
    "spark": "the second binding, for Apache Spark; no Django in it",
    "migrations": "the tables and functions, for `manage.py migrate`",
    "bulk": "old path of names of `backend`",
    "dependencies": "old path of names of `tasks`",
    "recurrence": "old path of names of `tasks`",
    "retry": "old path of names of `tasks`",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Import:
    """A line of a module that imports another module of the package."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A contract of the type ``layers``: the floors of a package, the highest first."""

    container: str
    floors: tuple[tuple[str, ...], ...]
    apart: frozenset[str] = frozenset()
    """Rooms that stand on no floor."""
    ignored: frozenset[tuple[str, str]] = frozenset()
    """Pairs of modules, importer and imported, that are allowed all the same."""
    exhaustive: bool = False

    def room(self, module: str) -> str | None:
        """Returns the part of the container that a module is in; None for the container itself and what is outside."""
        inside = module.removeprefix(f"{self.container}.")
        return None if inside == module else inside.partition(".")[0]

    def arrows(self) -> dict[tuple[str, str], list[Import]]:
        """Returns the imports between two rooms, by both rooms."""
        found: dict[tuple[str, str], list[Import]] = {}
        for each in imports():
            importer, imported = self.room(each.importer), self.room(each.imported)
            ignored = (each.importer, each.imported) in self.ignored
            if importer and imported and importer != imported and not ignored:
                found.setdefault((importer, imported), []).append(each)
        return found

    def floor(self, room: str) -> int | None:
        return next((number for number, rooms in enumerate(self.floors) if room in rooms), None)

    def broken(self) -> list[Import]:
        """Returns the imports that do not point down: up, or to a sibling on the same floor."""
        found = []
        for (importer, imported), lines in self.arrows().items():
            from_floor, to_floor = self.floor(importer), self.floor(imported)
            if from_floor is not None and to_floor is not None and from_floor >= to_floor:
                found += lines
        return found


def modules(package: str = PACKAGE) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Returns every import of the package from itself, wherever it stands in a file."""
    known = modules()
    return tuple(
        Import(importer=name, imported=target, line=node.lineno)
        for name, path in known.items()
        for node in statements(path.read_text(encoding="utf-8"))
        for target in sorted(set(targets(node, known)))
        if target in known
    )


def inside_functions() -> list[str]:
    """Returns the lines of the package that import something, of whatever package, inside a function."""
    return sorted(
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules().values()
        for line in {
            statement.lineno
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for statement in ast.walk(function)
            if isinstance(statement, ast.Import | ast.ImportFrom)
        }
    )


def statements(text: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yields the imports of a text, wherever they stand in it."""
    yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom))


def targets(node: ast.Import | ast.ImportFrom, known: Iterable[str]) -> Iterator[str]:
    """Yields the modules that a statement imports: ``from package import module`` means the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        assert node.level == 0, "imports are absolute here"
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            yield module if module in known else str(node.module)


def rooms() -> set[str]:
    return {name.split(".")[1] for name in modules() if "." in name}


def contracts() -> list[Layers]:
    """Returns the contracts of pyproject.toml that are about layers."""
    settings: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [
        Layers(
            container=container,
            floors=tuple(tuple(map(str.strip, floor.split("|"))) for floor in contract["layers"]),
            apart=frozenset(contract.get("exhaustive_ignores", ())),
            ignored=frozenset(tuple(pair.split(" -> ")) for pair in contract.get("ignore_imports", ())),
            exhaustive=contract.get("exhaustive", False),
        )
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
    ]


def of_the_package() -> Layers:
    [found] = [each for each in contracts() if each.container == PACKAGE]
    return found


def picture() -> str:
    """Returns the floors as boxes, and a table of the rooms with what each one imports."""
    layers = of_the_package()
    return "\n".join(["```text", *boxes(layers), "```", "", *table(layers)]) + "\n"


def boxes(layers: Layers) -> Iterator[str]:
    edge = "─" * WIDTH
    for number, floor in enumerate(layers.floors):
        yield f"┌{edge}┐" if number == 0 else f"├{'▼'.center(WIDTH, '─')}┤"
        yield f"│{'   '.join(floor).center(WIDTH)}│"
    yield f"└{edge}┘"
    yield f"Beside them: {', '.join(sorted(layers.apart))}."
    yield f"{len(rooms())} rooms, {len(layers.floors)} floors, {len(layers.arrows())} arrows from room to room."


def table(layers: Layers) -> Iterator[str]:
    in_order = [room for floor in layers.floors for room in floor] + sorted(layers.apart)
    arrows = layers.arrows()
    yield "| room | what it is | imports |"
    yield "|---|---|---|"
    for room in in_order:
        imported = [to for to in in_order if (room, to) in arrows]
        yield f"| `{room}` | {ROOMS[room]} | {', '.join(imported) or 'nothing'} |"


def drawn(page: str) -> str:
    """Returns the page with the picture between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        message = f"{PAGE} has no {BEGIN.strip()} with its {END.strip()}."
        raise ValueError(message)
    return f"{before}{BEGIN}{picture()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
