"""System checks: mistakes that can be found before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.migrations.recorder import MigrationRecorder

from django_pgqueue import conf, functions, traces
from django_pgqueue.backend import lookup, schedules
from django_pgqueue.compat import task_backends
from django_pgqueue.conf import TASKS_SETTING, Options
from django_pgqueue.distribution import install_command
from django_pgqueue.tasks import registry, sensitive
from django_pgqueue.values import arguments, limits, versions
from django_pgqueue.values.names import NAMES_ARE, are_names
from django_pgqueue.values.products import other_product

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.apps import AppConfig

    from django_pgqueue.backend.pgqueue import PgQueueBackend


ALIKE = ("TASK", "TASK_BACKENDS", "TASKS_BACKENDS", "TASK_BACKEND", "TASKS_BACKEND", "DJANGO_TASKS")
"""Names under which TASKS has been written by mistake."""
KEYS = ("BACKEND", "QUEUES", "OPTIONS")
MIN_TOKEN = 16
OF_HISTORY = ("history_days", "lake_days")
OF_QUEUES = ["lock_seconds", "grace_seconds", "listen", "idle_poll_seconds", "unknown_task_seconds", "version"]
"""Options that count for all messages that a worker takes."""
MIGRATIONS = "django_migrations"
BINDINGS = ("pgqueue_exchange", "pgqueue_binding")


@checks.register(checks.Tags.compatibility)
def check_backends(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks every alias in TASKS without making backends of other packages."""
    found: list[checks.CheckMessage] = []
    for alias, params in task_backends.settings.items():
        if not isinstance(params, Mapping):
            found.append(
                checks.Error(
                    f"TASKS[{alias!r}] is of the type {type(params).__name__}.",
                    hint=f"It must be a dictionary: {TASKS_SETTING}",
                    id="pgqueue.E002",
                )
            )
        elif lookup.is_pgqueue_backend(params.get("BACKEND")):
            found += _check_keys(alias, params)
            found += _check_queues(alias, params.get("QUEUES", ()))
            found += _check_options(alias, params.get("OPTIONS", {}))
    return found


@checks.register(checks.Tags.compatibility)
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the project has TASKS: without it, Django runs each task inside of its enqueue."""
    if settings.is_overridden("TASKS"):
        return []
    alike = [name for name in ALIKE if settings.is_overridden(name)]
    return [
        checks.Warning(
            "The settings have no TASKS"
            + (f", but {alike[0]}, which Django does not read" if alike else "")
            + ": each enqueue runs its task at once, and nothing comes into the queue.",
            hint=TASKS_SETTING,
            id="pgqueue.W007",
        )
    ]


def _check_keys(alias: str, params: Mapping[Any, Any]) -> Iterator[checks.CheckMessage]:
    for key in params:
        if key not in KEYS:
            is_option = str(key).upper() in Options.names()
            yield checks.Warning(
                f"TASKS[{alias!r}] has the key {key!r}, which the backend does not read.",
                hint="It is an option: write it into OPTIONS." if is_option else f"The keys are {', '.join(KEYS)}.",
                id="pgqueue.W008",
            )


def _check_queues(alias: str, queues: Any) -> Iterator[checks.CheckMessage]:
    if not are_names(queues):
        yield checks.Error(
            f"TASKS[{alias!r}]['QUEUES'] is {queues!r}.",
            hint=f"It must be a list of names, empty for any name; {NAMES_ARE}.",
            id="pgqueue.E005",
        )


def _check_options(alias: str, options: Any) -> Iterator[checks.CheckMessage]:
    if not isinstance(options, Mapping):
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS'] is of the type {type(options).__name__}, so every option has its default.",
            hint="It must be a dictionary.",
            id="pgqueue.E002",
        )
    known = Options.names()
    for key in options if isinstance(options, Mapping) else ():
        if key not in known:
            yield checks.Error(
                f"TASKS[{alias!r}]['OPTIONS'] has the unknown key {key!r}.",
                hint=f"The options are {', '.join(known)}.",
                id="pgqueue.E001",
            )
    settings = Options.of(options)
    yield from _check_values(alias, settings)
    yield from _check_version(alias, settings.version)
    yield from _check_traces(alias, settings)
    yield from _check_database(alias, settings.database)


def _check_values(alias: str, settings: Options) -> Iterator[checks.CheckMessage]:
    rules = {
        "max_attempts": (
            arguments.is_max_attempts,
            f"a whole number from 1 to {limits.MAX_MAX_ATTEMPTS:,}, or None",
        ),
        "max_content_bytes": (
            lambda value: type(value) is int and 1 <= value <= limits.MAX_STORED_BYTES,
            f"a whole number from 1 to {limits.MAX_STORED_BYTES:,}",
        ),
        "lock_seconds": (_is_duration, "a number of seconds above 0, and at most a billion"),
        "grace_seconds": (_is_duration, "a number of seconds above 0, and at most a billion"),
        "unknown_task_seconds": (
            lambda value: type(value) is int and 0 <= value <= 1e9,
            "a whole number of seconds from 0 (unknown tasks fail at once) to 1,000,000,000",
        ),
        "history_days": (
            lambda value: value is None or (type(value) is int and 1 <= value <= 100_000),
            "a whole number of days from 1 to 100,000, or None",
        ),
        "lake_days": (
            lambda value: type(value) is int and 0 <= value <= 100_000,
            "a whole number of days from 0 (history does not wait for lakes) to 100,000",
        ),
        "listen": (lambda value: isinstance(value, bool), "True or False"),
        "idle_poll_seconds": (
            lambda value: type(value) in (int, float) and 1 <= value <= limits.MAX_IDLE_POLL_SECONDS,
            f"a number of seconds from 1 to {limits.MAX_IDLE_POLL_SECONDS:,}",
        ),
        "metrics_token": (
            lambda value: value is None or (isinstance(value, str) and len(value) >= MIN_TOKEN),
            f"a text of at least {MIN_TOKEN} characters, or None",
        ),
        "traces": (lambda value: isinstance(value, bool), "True or False"),
        "sensitive": (sensitive.is_possible, "True, False or a list of names of arguments and keys"),
        "version": (
            lambda value: value is None or versions.is_version(value),
            f"a text of at most {versions.MAX_BYTES} bytes, such as '2024.10.1', or None",
        ),
        "lake": (lambda value: value is None or bool(value and isinstance(value, str | Path)), "a folder or a URL"),
    }
    for name, (is_possible, words) in rules.items():
        value = getattr(settings, name)
        if not is_possible(value):
            yield checks.Error(
                f"TASKS[{alias!r}]['OPTIONS'][{name.upper()!r}] is {_shown(name, value)}.",
                hint=f"It must be {words}.",
                id="pgqueue.E002",
            )


def _shown(name: str, value: Any) -> str:
    """The output of a check is a log, where no secret may stand, not even one that is too short."""
    if name != "metrics_token":
        return repr(value)
    return f"{len(value)} characters long" if isinstance(value, str) else f"of the type {type(value).__name__}"


def _check_version(alias: str, version: Any) -> Iterator[checks.CheckMessage]:
    if versions.is_version(version) and versions.looks_like_a_hash(version):
        yield checks.Warning(
            f"TASKS[{alias!r}]['OPTIONS']['VERSION'] is {version!r}, which looks like the hash of a commit. Hashes "
            "have no order, so workers cannot tell which deploy is the later one.",
            hint="Use what grows from deploy to deploy: a date, a number of a build, or a number of a release.",
            id="pgqueue.W006",
        )


def _check_traces(alias: str, settings: Options) -> Iterator[checks.CheckMessage]:
    if settings.traces is True and not traces.is_installed():
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS']['TRACES'] is True, but OpenTelemetry is not installed, so the backend makes "
            "no traces.",
            hint=f"Install its API: {install_command('otel')}",
            id="pgqueue.E009",
        )


def _is_duration(value: object) -> bool:
    return type(value) in (int, float) and 0 < cast("float", value) <= 1e9


def _check_database(alias: str, database: Any) -> Iterator[checks.CheckMessage]:
    if database not in list(connections.settings):
        yield checks.Error(
            f"TASKS[{alias!r}]['OPTIONS']['DATABASE'] is {database!r}, which is not in DATABASES.",
            hint=f"DATABASES has {', '.join(connections.settings)}.",
            id="pgqueue.E003",
        )
    elif (vendor := connections[database].vendor) != "postgresql":
        yield checks.Error(
            f"The queue of TASKS[{alias!r}] is in the database {database!r}, which is {vendor}.",
            hint="The queue needs PostgreSQL: point DATABASE in OPTIONS at a PostgreSQL database.",
            id="pgqueue.E004",
        )
    elif not connections[database].settings_dict["AUTOCOMMIT"]:
        yield checks.Error(
            f"DATABASES[{database!r}]['AUTOCOMMIT'] is {connections[database].settings_dict['AUTOCOMMIT']!r}: nothing "
            "commits what a job writes, nor the completion of an atomic task.",
            hint="Remove AUTOCOMMIT from this database, or give the queue another alias of it by DATABASE in OPTIONS.",
            id="pgqueue.E013",
        )


@checks.register(checks.Tags.compatibility)
def check_label(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that no AppConfig of the project renames the app: its migrations depend on each other by the label."""
    return [
        checks.Error(
            f"The app 'django_pgqueue' has the label {config.label!r}, by {type(config).__qualname__}: its migrations, "
            "permissions and the router know it as 'django_pgqueue'.",
            hint="Remove label from that AppConfig; verbose_name changes what people read.",
            id="pgqueue.E014",
        )
        for config in apps.get_app_configs()
        if config.name == "django_pgqueue" and config.label != conf.APP_LABEL
    ]


DELETED_BY_PEOPLE = frozenset({"binding", "exchange", "queuestate", "schedule"})


@checks.register(checks.Tags.models)
def check_foreign_keys(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that no model of the project holds rows that the queue deletes: what ends a message deletes its row."""
    return [
        checks.Error(
            f"{field} is a foreign key to {field.related_model._meta.label}. The queue deletes its rows by SQL, which "  # noqa: SLF001
            "the constraint refuses. The job of a message that is kept so cannot end, and runs again.",
            hint="Keep the id, as BigIntegerField(null=True), or use db_constraint=False with on_delete=DO_NOTHING.",
            id="pgqueue.E015",
        )
        for model in apps.get_models(include_auto_created=True)
        if model._meta.app_label != conf.APP_LABEL and model._meta.managed  # noqa: SLF001
        for field in cast("list[Any]", model._meta.local_fields)  # noqa: SLF001
        if getattr(field, "db_constraint", False) and loses_rows(field.related_model)
    ]


def loses_rows(model: Any) -> bool:
    """Whether the queue deletes rows of a model.  A text names none that exists: Django's own check says so."""
    if isinstance(model, str):
        return False
    table = model._meta.concrete_model._meta  # noqa: SLF001
    return table.app_label == conf.APP_LABEL and table.model_name not in DELETED_BY_PEOPLE


@checks.register(checks.Tags.compatibility)
def check_sharing(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks backends whose messages the same workers take."""
    return [
        problem
        for one, other in combinations(lookup.pgqueue_backends().values(), 2)
        if one.settings.database == other.settings.database
        for problem in _contradictions(one, other)
    ]


def _contradictions(one: PgQueueBackend, other: PgQueueBackend) -> Iterator[checks.CheckMessage]:
    shared = _shared_queues(one, other)
    names = [*OF_HISTORY, *(OF_QUEUES if shared else [])]
    for name in names:
        values = getattr(one.settings, name), getattr(other.settings, name)
        if values[0] != values[1]:
            what = "the history" if name in OF_HISTORY else shared
            yield checks.Warning(
                f"TASKS[{one.alias!r}] and TASKS[{other.alias!r}] share {what} in the database "
                f"{one.settings.database!r}, but {name.upper()} is {values[0]!r} there and {values[1]!r} here.",
                hint="The worker's --backend decides which value counts. Set the same value in both"
                + ("." if name in OF_HISTORY else ", or give them different QUEUES."),
                id="pgqueue.W001",
            )


def _shared_queues(one: PgQueueBackend, other: PgQueueBackend) -> str:
    """Returns the shared queues as text, empty if there are none.  A backend without QUEUES serves all queues."""
    if not one.queues or not other.queues:
        return "queues" if not one.queues and not other.queues else f"the queues {_listed(one.queues or other.queues)}"
    both = one.queues & other.queues
    return f"the queues {_listed(both)}" if both else ""


def _listed(names: set[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


ROUTER_FIRST = 'Put "django_pgqueue.routers.PgQueueRouter" first in DATABASE_ROUTERS.'
TENANTS = ("TENANT_APPS", "TENANT_TYPES")
TO_SHARED_APPS = (
    'Put "django_pgqueue" into SHARED_APPS, and not into TENANT_APPS. In TENANT_TYPES it stands in the APPS of the '
    "public schema alone."
)


@checks.register(checks.Tags.compatibility)
def check_routing(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks in which databases migrations would make the tables."""
    wanted = _databases()
    found: list[checks.CheckMessage] = [
        checks.Error(
            f"The queue is in the database {database!r}, but DATABASE_ROUTERS allow no migration of {conf.APP_LABEL!r} "
            "in it.",
            # With PgQueueRouter in front of the router of django-tenants, each tenant had a queue.
            hint=TO_SHARED_APPS if any(hasattr(settings, name) for name in TENANTS) else ROUTER_FIRST,
            id="pgqueue.E007",
        )
        for database in sorted(wanted)
        if not router.allow_migrate(database, conf.APP_LABEL) and not _is_in_a_tenant(database)
    ]
    if wanted and not lookup.holds_a_queue(DEFAULT_DB_ALIAS) and router.allow_migrate(DEFAULT_DB_ALIAS, conf.APP_LABEL):
        found.append(
            checks.Warning(
                f"The queue is in the database {', '.join(map(repr, sorted(wanted)))}, but DATABASE_ROUTERS allow "
                f"migrations of {conf.APP_LABEL!r} in {DEFAULT_DB_ALIAS!r}, too.",
                hint=ROUTER_FIRST,
                id="pgqueue.W002",
            )
        )
    if wanted and _tenants_have_it():
        found.append(
            checks.Warning(
                'TENANT_APPS or TENANT_TYPES has "django_pgqueue" for tenants: each has a queue of its own, which no '
                "worker serves.",
                hint=f"{TO_SHARED_APPS} First take its migrations back in the tenants: enqueues go on into their "
                "tables.",
                id="pgqueue.W009",
            )
        )
    return found


def _is_in_a_tenant(database: str) -> bool:
    """Whether django-tenants has put this connection into the schema of a tenant, whose migrations it checks there."""
    public = _public_schema()
    return getattr(connections[database], "schema_name", public) != public


def _tenants_have_it() -> bool:
    """Whether django-tenants makes the tables of the queue in the schema of each tenant."""
    names = [*(getattr(settings, "TENANT_APPS", None) or ())]
    for kind, values in (getattr(settings, "TENANT_TYPES", None) or {}).items():
        if kind != _public_schema():
            names += values["APPS"]
    return any(name.partition(".")[0] == "django_pgqueue" for name in names)


def _public_schema() -> str:
    return str(getattr(settings, "PUBLIC_SCHEMA_NAME", "public"))


@checks.register(checks.Tags.compatibility)
def check_atomic(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the transactions of atomic tasks are in a database that the project writes to."""
    backends = lookup.pgqueue_backends()
    _import_tasks(bool(backends))
    paths: dict[str, list[str]] = {}
    for task in registry.imported():
        if getattr(task, "atomic", False) and task.backend in backends:
            paths.setdefault(backends[task.backend].settings.database, []).append(task.module_path)
    written = _written_databases() if paths else set()
    return [
        checks.Warning(
            f"The queue is in the database {database!r}, but DATABASE_ROUTERS write no model of the project there: "
            f"{' and '.join(atomic)} with atomic=True may write to {_listed(written)}, which is no part of that "
            "transaction.",
            hint="Put the queue into the database of the models, by DATABASE in OPTIONS, or leave atomic out. Silence "
            "this if the tasks only enqueue, or name that database themselves.",
            id="pgqueue.W010",
        )
        for database, atomic in paths.items()
        if written and database not in written
    ]


def _written_databases() -> set[str]:
    """Returns the databases to which the project writes its models.  None are known if a router needs a request."""
    with suppress(Exception):
        return {router.db_for_write(model) for model in apps.get_models() if model._meta.app_label != conf.APP_LABEL}  # noqa: SLF001
    return set()


def _import_tasks(wanted: bool) -> None:
    if wanted:
        with suppress(Exception):  # the worker reports a module that cannot be imported, and migrate must still run
            registry.autodiscover()


@checks.register(checks.Tags.compatibility)
def check_schedules(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Looks for names that two declared schedules share."""
    databases = sorted(_databases())
    _import_tasks(bool(databases))
    return [
        checks.Error(
            f"The schedule {name!r} is declared {len(paths)} times, by {' and by '.join(paths)}: only one would run.",
            hint="Give each a name of its own: cron(..., name=...) or every(..., name=...).",
            id="pgqueue.E008",
        )
        for database in databases
        for name, paths in schedules.clashes(database).items()
    ]


@checks.register(checks.Tags.database)
def check_server(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that PostgreSQL answers, before ``manage.py migrate`` fails in the middle."""
    found: list[checks.CheckMessage] = []
    for database in sorted(_databases() & set(databases or ())):
        if connections[database].vendor == "postgresql":
            with connections[database].cursor() as cursor:
                cursor.execute("select version()")
                [version] = cursor.fetchone()
            if (product := other_product(version)) is not None:
                found.append(
                    checks.Error(
                        f"The server of the database {database!r} is {product}: {version}",
                        hint="The queue needs PostgreSQL itself. Put it into a PostgreSQL database of its own, by "
                        "DATABASE in OPTIONS.",
                        id="pgqueue.E012",
                    )
                )
    return found


@checks.register(checks.Tags.database)
def check_tables(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the tables exist, in commands that may query the database.

    This is a warning: an error would keep ``manage.py migrate`` from making the tables.
    """
    if _is_migrating():
        return []
    return [
        checks.Warning(
            f"The database {database!r} has no tables of the queue yet.",
            hint=f"Run manage.py migrate --database {database}.{_hidden(database)}",
            id="pgqueue.W003",
        )
        for database in sorted(_databases() & set(databases or ()))
        if connections[database].vendor == "postgresql"
        and not _has_tables(database)
        and conf.APP_LABEL not in (_recorded(database) or ())  # check_records reports it: migrate would make no tables
    ]


@checks.register(checks.Tags.database)
def check_version(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the queue is not older than this code.

    This is a warning: an error would keep ``manage.py migrate`` from upgrading it.
    """
    found: list[checks.CheckMessage] = []
    for database in sorted(_databases() & set(databases or ())) if not _is_migrating() else ():
        if connections[database].vendor == "postgresql":
            there = functions.installed_queue(connections[database])
            if there is not None and there.is_outdated and functions.apart(connections[database]) is None:
                found.append(
                    checks.Warning(
                        f"The database {database!r} has the queue of {there.version}, and this code needs that of "
                        f"{functions.needed()}: workers do not start.",
                        hint=f"Run manage.py migrate {conf.APP_LABEL} --database {database} or, without Django, "
                        "psql -f sql/upgrade.sql",
                        id="pgqueue.W005",
                    )
                )
    return found


@checks.register(checks.Tags.database)
def check_records(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the recorded migrations fit the tables.  If not, ``manage.py migrate`` makes none, or fails.

    Records of a stranger's package in a database without tables are no error: ``migrate`` makes the tables there.
    """
    return [
        problem
        for database in sorted(_databases() & set(databases or ()))
        if connections[database].vendor == "postgresql"
        for problem in _contradicting_records(database)
    ]


def _contradicting_records(database: str) -> Iterator[checks.CheckMessage]:
    recorded, has_tables = _recorded(database), _has_tables(database)
    if recorded is None:
        return
    if conf.APP_LABEL in recorded and not has_tables:
        zero = f"manage.py migrate {conf.APP_LABEL} zero --fake --skip-checks --database {database}"
        yield checks.Error(
            f"The database {database!r} has no tables of the queue, but its django_migrations lists the migrations of "
            f"{conf.APP_LABEL!r} as applied, so that migrate makes none. The tables were dropped, are in a schema "
            "outside of the search_path, or were never made (--fake, or a restored django_migrations).",
            hint=f"Restore the tables or the search_path. For a new queue: {zero}, then manage.py migrate "
            f"--database {database}.",
            id="pgqueue.E011",
        )
    elif has_tables and conf.APP_LABEL not in recorded and conf.FORMER_LABEL in recorded and not _has_former_app():
        yield checks.Error(
            f"The database {database!r} has the tables of the queue, but its django_migrations lists their migrations "
            f"under the former label {conf.FORMER_LABEL!r}, so that migrate would make the tables again, and fail.",
            hint="Run update django_migrations set app = 'django_pgqueue' where app = 'pgqueue'; and, for permissions, "
            "update django_content_type set app_label = 'django_pgqueue' where app_label = 'pgqueue';",
            id="pgqueue.E011",
        )


def _has_former_app() -> bool:
    """Returns whether an app of the project has the former label, so that the records are its own."""
    return any(config.label == conf.FORMER_LABEL for config in apps.get_app_configs())


def _recorded(database: str) -> set[str] | None:
    """Returns the labels of apps with recorded migrations.  None: this login may not read them."""
    if _has_tables(database, MIGRATIONS) and not _may_read(database, MIGRATIONS):
        return None
    return {label for label, _ in MigrationRecorder(connections[database]).applied_migrations()}


@checks.register(checks.Tags.database)
def check_pins(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the ``search_path`` of the queue's functions still names the schema that they are in."""
    found: list[checks.CheckMessage] = []
    for database in sorted(_databases() & set(databases or ())):
        if connections[database].vendor == "postgresql" and _has_tables(database):
            strayed = functions.strayed(connections[database])
            if strayed is not None:
                found.append(
                    checks.Error(
                        f"In the database {database!r}: {strayed}",
                        hint="The schema was renamed, or the tables were moved. Repair the functions as the owner of "
                        "the queue: psql -f sql/repin.sql",
                        id="pgqueue.E010",
                    )
                )
    return found


@checks.register(checks.Tags.database)
def check_bindings(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:  # noqa: ARG001
    """Checks that the databases have the bindings that the code declares."""
    from django_pgqueue.routing.sync import changes  # noqa: PLC0415 -- imports backends

    found: list[checks.CheckMessage] = []
    for database in sorted(_databases() & set(databases or ())):
        if connections[database].vendor == "postgresql" and _may_read(database, *BINDINGS):
            registry.autodiscover()
            missing = [change.what for change in changes(database) if not change.is_left_over]
            if missing:
                found.append(
                    checks.Warning(
                        f"The database {database!r} differs from the declarations in the code: {'; '.join(missing)}.",
                        hint="Run manage.py qbind.",
                        id="pgqueue.W004",
                    )
                )
    return found


def _is_migrating() -> bool:
    """Returns whether this is ``manage.py migrate``, which is about to do what a warning would ask for."""
    return sys.argv[1:2] in (["migrate"], ["migrate_schemas"])  # the latter is of django-tenants


def _databases() -> set[str]:
    """Returns the databases that hold a queue.  An alias that is not in DATABASES is left to another check."""
    known = list(connections.settings)
    return {
        backend.settings.database
        for backend in lookup.pgqueue_backends().values()
        if backend.settings.database in known
    }


def _has_tables(database: str, name: str = "pgqueue_message") -> bool:
    with connections[database].cursor() as cursor:
        cursor.execute("select to_regclass(%s) is not null", (name,))
        return bool(cursor.fetchone()[0])


def _hidden(database: str) -> str:
    """Says where there is a queue that looks as if it were missing."""
    return "".join(
        f" Or grant the user {user} usage on the schema {schema}, where a queue is."
        for schema, user in functions.hidden_queues(connections[database])
    )


def _may_read(database: str, *names: str) -> bool:
    return all(functions.may_read(connections[database], name) for name in names)
