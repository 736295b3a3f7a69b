"""The steps from an empty project to the first job, each with what is there or what to do: ``qdoctor --setup``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError, OperationalError, ProgrammingError, connections

from django_pgqueue import functions
from django_pgqueue.backend.lookup import databases, pgqueue_backends
from django_pgqueue.conf import TASKS_SETTING
from django_pgqueue.monitoring.overview.workers import workers
from django_pgqueue.tasks import registry
from django_pgqueue.values.products import other_product

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class SetupStep:
    title: str
    found: str
    remedy: str | None = None
    """What to do next.  None: the step is done."""

    @property
    def is_done(self) -> bool:
        return self.remedy is None


def walk() -> Iterator[SetupStep]:
    """Yields the steps in their order, up to the first that is not done: those after it depend on it."""
    for title, look in STEPS:
        try:
            step = look(title)
        except OperationalError as error:  # a time limit
            step = SetupStep(title, str(error), "Try again; manage.py qdoctor shows locks and other causes.")
        yield step
        if not step.is_done:
            return


def backend(title: str) -> SetupStep:
    backends = pgqueue_backends()
    if backends:
        return SetupStep(
            title, ", ".join(f"{alias} in the database {one.settings.database!r}" for alias, one in backends.items())
        )
    if not settings.is_overridden("TASKS"):
        return SetupStep(title, "the settings have no TASKS", f"Write into the settings: {TASKS_SETTING}")
    return SetupStep(title, f"no alias of TASKS ({', '.join(settings.TASKS)}) uses it", f"Write: {TASKS_SETTING}")


def server(title: str) -> SetupStep:
    """Looks whether each database is PostgreSQL and answers."""
    found = []
    for database in sorted(databases()):
        if database not in connections.settings:
            known = ", ".join(connections.settings)
            return SetupStep(title, f"DATABASES has no {database!r}", f"Name one of {known} as DATABASE in OPTIONS.")
        vendor = connections[database].vendor
        if vendor != "postgresql":
            return SetupStep(
                title,
                f"{database!r} is {vendor}",
                "Let ENGINE be django.db.backends.postgresql, or DATABASE in OPTIONS an alias that is PostgreSQL.",
            )
        try:
            with connections[database].cursor() as cursor:
                cursor.execute("select version(), current_setting('server_version'), current_setting('datestyle')")
                [version, number, style] = cursor.fetchone()
        except DatabaseError as error:
            return SetupStep(
                title, f"{database!r} cannot be reached: {error}", "Start the server, or correct DATABASES."
            )
        if (product := other_product(version)) is not None:
            return SetupStep(title, f"{database!r} is {product}", "The queue needs PostgreSQL itself.")
        if not style.startswith("ISO"):
            return SetupStep(title, f"DateStyle is {style} in {database!r}", "Set it to ISO: see manage.py qdoctor.")
        found.append(f"{database!r} is PostgreSQL {number}")
    return SetupStep(title, ", ".join(found))


def tables(title: str) -> SetupStep:
    found = []
    for database in sorted(databases()):
        there = functions.installed_queue(connections[database])
        if there is None or there.is_outdated:
            for schema, user in functions.hidden_queues(connections[database]):
                what = f"the user {user} may not use the schema {schema} of {database!r}, where a queue is"
                remedy = (
                    "Grant usage on it, with a role of sql/roles.sql: see manage.py qdoctor. "
                    f"If it is the queue of others, run manage.py migrate --database {database}"
                )
                return SetupStep(title, what, remedy)
            what = f"no tables in {database!r}" if there is None else f"the queue of {there.version} in {database!r}"
            return SetupStep(title, what, f"Run manage.py migrate --database {database}")
        found.append(f"the queue of {there.version} in {database!r}")
    return SetupStep(title, ", ".join(found))


def tasks(title: str) -> SetupStep:
    try:
        registry.autodiscover()
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- a module may raise anything when it is imported
        return SetupStep(title, f"a module cannot be imported: {type(error).__name__}: {error}", "Correct the module.")
    found = declared()
    if not found:
        return SetupStep(
            title,
            "no module 'tasks' of an installed app declares one",
            "Write tasks.py in an app of INSTALLED_APPS, with: from django_pgqueue.tasks import task",
        )
    shown = ", ".join(found[:3])
    return SetupStep(title, shown if len(found) <= 3 else f"{shown} and {len(found) - 3} more")


def worker(title: str) -> SetupStep:
    found = []
    for database in sorted(databases()):
        try:
            now = functions.now(connections[database])
            there = workers(now, using=database)
        except ProgrammingError as error:  # a producer may not read
            remedy = "Run this with a login that has the role pgqueue_reader of sql/roles.sql."
            return SetupStep(title, f"it is unknown in {database!r}: {error}", remedy)
        alive = there.busy + there.idle
        if not alive:
            return SetupStep(title, f"none is alive in {database!r}", "Run manage.py qworker in another terminal.")
        found.append(f"{alive} in {database!r}")
    return SetupStep(title, ", ".join(found))


STEPS: tuple[tuple[str, Callable[[str], SetupStep]], ...] = (
    ("TASKS names the backend", backend),
    ("Its database is PostgreSQL", server),
    ("The tables are there", tables),
    ("Tasks are declared", tasks),
    ("A worker runs", worker),
)


def declared() -> list[str]:
    """Returns the paths of the project's tasks."""
    return [task.module_path for task in registry.imported() if not registry.is_internal(task.module_path)]
