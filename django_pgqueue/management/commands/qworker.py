"""``manage.py qworker``: runs the jobs."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings as django_settings
from django.core.management.base import CommandError
from django.utils.log import AdminEmailHandler

from django_pgqueue import functions
from django_pgqueue.backend.lookup import pgqueue_backends
from django_pgqueue.compat import TASKS_LOGGER
from django_pgqueue.conf import TASKS_SETTING
from django_pgqueue.consumer.connection import connect
from django_pgqueue.consumer.forks import can_fork, guarded
from django_pgqueue.distribution import install_command
from django_pgqueue.exceptions import OutdatedQueue
from django_pgqueue.logs import JsonFormatter, without_failures
from django_pgqueue.management import databases
from django_pgqueue.management.terminal.colours import formatter
from django_pgqueue.management.terminal.dry_run import explain
from django_pgqueue.management.terminal.output import PrintingCommand
from django_pgqueue.tasks import registry
from django_pgqueue.values import redaction
from django_pgqueue.values.names import NAMES_ARE, is_name
from django_pgqueue.worker.health.monitor import PortTaken
from django_pgqueue.worker.process import WorkerProcess
from django_pgqueue.worker.record.lines import LineHandler
from django_pgqueue.worker.settings import WorkerSettings
from django_pgqueue.worker.supervise.signal_handlers import Requests, handling

if can_fork():  # these modules need signals that Windows has not
    from django_pgqueue.worker.supervise.reloader import ReloadedSupervisor, Reloader, is_started_by_reloader
    from django_pgqueue.worker.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.core.management.base import CommandParser

    from django_pgqueue.worker.health.server import Exposed


MAX_SECONDS = 1e9
MOST = {"processes": 1000, "threads": 100_000, "max_jobs": 10**9, "max_memory": 10**9, "dry_run": 10**6}
"""Limits of the flags that are numbers: larger ones ended in a traceback."""
LAST_PORT = 65_535


class Command(PrintingCommand):
    _has_command_line = False  # --reload can restart only a command line

    help = "Runs the jobs of the queue until SIGTERM or Ctrl-C (a second signal stops the worker at once)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", "-Q", metavar="a,b", help="Serve only these queues (default: all).")
        parser.add_argument("--exclude-queues", "-X", metavar="a,b", default="", help="Serve all queues but these.")
        parser.add_argument("--processes", type=int, default=1, metavar="N", help="Worker processes (default: 1).")
        parser.add_argument(
            "--threads", "--concurrency", type=int, default=4, metavar="N",
            help="Jobs that run at a time in each process (default: 4).",
        )  # fmt: skip
        parser.add_argument(
            "--burst",
            "--batch",
            action="store_true",
            help="Exit when no message is ready, instead of waiting for more.",
        )
        parser.add_argument(
            "--exit-when-idle", type=float, metavar="S",
            help="Exit when nothing has been ready or has run for S seconds, in any process.",
        )  # fmt: skip
        parser.add_argument(
            "--max-jobs",
            "--max-tasks",
            type=int,
            metavar="N",
            help="Replace a process that has run this number of jobs.",
        )
        reload = parser.add_mutually_exclusive_group()
        reload.add_argument(
            "--reload", action="store_true", default=None, help="Restart when code changes (default with DEBUG)."
        )
        reload.add_argument("--noreload", action="store_false", dest="reload", help="Do not restart when code changes.")
        parser.add_argument(
            "--max-memory", type=int, metavar="MB", help="Replace a process that uses more than this many MB of memory."
        )
        parser.add_argument("--lock-seconds", type=float, metavar="S", help="Overrides LOCK_SECONDS of the backend.")
        parser.add_argument("--grace-seconds", type=float, metavar="S", help="Overrides GRACE_SECONDS of the backend.")
        parser.add_argument(
            "--log-format", choices=("text", "json"), default="text",
            help="Write log lines as text (default), or each as a JSON object.",
        )  # fmt: skip
        parser.add_argument(
            "--metrics-port", type=int, metavar="PORT",
            help="Serve /metrics for Prometheus, /healthz and /readyz at this port. 0: any free port. Needs "
            f"prometheus-client: {install_command('prometheus')}.",
        )  # fmt: skip
        parser.add_argument(
            "--health-port", type=int, metavar="PORT", help="Serve only /healthz and /readyz at this port."
        )
        parser.add_argument(
            "--metrics-host", default="127.0.0.1", metavar="HOST",
            help="Address of both ports (default: 127.0.0.1, for this host only; 0.0.0.0: for all hosts).",
        )  # fmt: skip
        parser.add_argument(
            "--dry-run", "--explain", type=int, nargs="?", const=20, metavar="N",
            help="Show the next N messages (default: 20) and why others are not among them; change nothing, and exit.",
        )  # fmt: skip
        parser.add_argument("--backend", metavar="ALIAS", help="Alias in TASKS (default: the first PgQueueBackend).")

    def run_from_argv(self, argv: list[str]) -> None:
        self._has_command_line = True
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        open_standard_files()
        settings = self._settings(options)
        refuse_green_threads()
        if not can_fork():
            refuse_what_needs_forks(options)
        reload = self._reload(options)
        log_to_terminal(options)
        if options["verbosity"] > 0 and (not reload or is_started_by_reloader()):
            self._doubt_queues(settings)
        try:
            registry.autodiscover()
            if options["dry_run"] is not None:
                look_for_the_queue(settings)
                self._explain(settings, options["dry_run"])
                return
            code = run_reloaded(settings) if reload else run(settings)
        except psycopg.OperationalError as error:
            message = f"The database cannot be reached: {error}"
            raise CommandError(message) from error
        except (OutdatedQueue, PortTaken) as error:
            raise CommandError(str(error)) from error
        if code:
            raise SystemExit(code)

    def _settings(self, options: dict[str, Any]) -> WorkerSettings:
        backend = self._backend(options["backend"])
        defaults = pgqueue_backends()[backend].settings
        for name, most in MOST.items():
            if options[name] is not None and not 1 <= options[name] <= most:
                message = f"--{name.replace('_', '-')} {options[name]} is not a number from 1 to {most:,}."
                raise CommandError(message)
        queues = names("queues", options["queues"])
        exclude_queues = names("exclude-queues", options["exclude_queues"]) or ()
        if queues and set(queues) <= set(exclude_queues):
            message = f"--exclude-queues leaves none of --queues {','.join(queues)}."
            raise CommandError(message)
        return WorkerSettings(
            backend=backend,
            queues=queues,
            exclude_queues=exclude_queues,
            processes=options["processes"],
            threads=options["threads"],
            burst=options["burst"],
            exit_when_idle_seconds=exit_when_idle(options),
            lock_seconds=seconds("lock-seconds", options["lock_seconds"], defaults.lock_seconds),
            grace_seconds=seconds("grace-seconds", options["grace_seconds"], defaults.grace_seconds),
            history_days=defaults.history_days,
            lake_days=defaults.lake_days,
            listen=defaults.listen,
            idle_poll_seconds=defaults.idle_poll_seconds,
            max_jobs=options["max_jobs"],
            max_memory_mb=options["max_memory"],
            **watched(options),
        )

    def _doubt_queues(self, settings: WorkerSettings) -> None:
        """Warns about unknown queues: the worker would serve a misspelled name forever, and no one would notice.  The
        queue may be another project's, so the worker serves it nevertheless.
        """
        backends = pgqueue_backends()
        database = backends[settings.backend].settings.database
        named = [backend.queues for backend in backends.values() if backend.settings.database == database]
        unknown = {*(settings.queues or ()), *settings.exclude_queues}.difference(*named)
        if unknown and all(named):
            words = ", ".join(sorted(unknown))
            self.stderr.write(self.style.WARNING(f"No task of this project can be in {words}: see QUEUES in TASKS."))

    def _explain(self, settings: WorkerSettings, limit: int) -> None:
        database = pgqueue_backends()[settings.backend].settings.database
        with databases.with_its_queue(database):
            for line in explain(settings, database=database, limit=limit):
                self.stdout.write(line)

    def _reload(self, options: dict[str, Any]) -> bool:
        wanted: bool | None = options["reload"]
        if wanted and options["burst"]:
            message = "--burst exits when no message is ready, and --reload does not exit: use only one of them."
            raise CommandError(message)
        if wanted and options["exit_when_idle"] is not None:
            message = "--exit-when-idle exits, and --reload does not: use only one of them."
            raise CommandError(message)
        if wanted and not self._has_command_line:
            message = "--reload needs a command line that can be run again: start manage.py qworker in a shell."
            raise CommandError(message)
        if wanted is None:
            exits = options["burst"] or options["exit_when_idle"] is not None
            return django_settings.DEBUG and self._has_command_line and can_fork() and not exits
        return wanted

    def _backend(self, alias: str | None) -> str:
        backends = pgqueue_backends()
        if alias is None and backends:
            return next(iter(backends))
        if alias in backends:
            return alias
        wanted = "has no backend" if alias is None else f"has no backend {alias!r}"
        message = f"TASKS {wanted} of django_pgqueue (it has: {', '.join(backends) or 'none'}). Set {TASKS_SETTING}."
        raise CommandError(message)


def open_standard_files() -> None:
    """Opens ``os.devnull`` for those of the standard files that whoever started the worker has closed.  A socket or a
    pipe would get the number, and with it what a library in C writes to standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def look_for_the_queue(settings: WorkerSettings) -> None:
    # A problem of the tasks or the database at the start is reported once, here, and not by every process again.
    database = pgqueue_backends()[settings.backend].settings.database
    try:
        with connect(database, pooled=not settings.listen) as connection:
            with functions.explained(database), connection.transaction():  # some poolers forbid them
                functions.now(connection)
            functions.require_queue(connection, database)
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(databases.refused(database, error)) from error


def exposed(settings: WorkerSettings) -> Exposed | None:
    if settings.metrics_port is None:
        return None
    from django_pgqueue.metrics import worker  # noqa: PLC0415 -- needs prometheus_client, an extra

    return worker.exposed


def run(settings: WorkerSettings) -> int:
    look_for_the_queue(settings)
    if settings.processes > 1 or not settings.burst or settings.is_watched:
        # Without a supervisor, what is quarantined comes first: later no other process would take it.
        return run_supervised(settings) if can_fork() else run_in_turn(settings.of_quarantine, settings)
    return run_in_turn(settings, settings.of_quarantine)


def run_supervised(settings: WorkerSettings) -> int:
    if threading.current_thread() is not threading.main_thread():
        message = (
            "qworker handles signals, which only the main thread can. Start it as a process of its own. In another "
            "thread only --burst runs, with one process and without a port."
        )
        raise CommandError(message)
    return Supervisor(settings, exposed=exposed(settings)).run()


def run_reloaded(settings: WorkerSettings) -> int:
    if not is_started_by_reloader():
        return Reloader().run()
    look_for_the_queue(settings)
    return ReloadedSupervisor(settings, exposed=exposed(settings)).run()


GREEN = (("gevent.monkey", "is_module_patched", "threading"), ("eventlet.patcher", "is_monkey_patched", "thread"))


def refuse_green_threads() -> None:
    """Jobs of a patched process share a thread: one sees the connections and the event loop of another."""
    for module, question, threads in GREEN:
        if module in sys.modules and getattr(sys.modules[module], question)(threads):
            library = module.partition(".")[0]
            message = (
                f"{library} has replaced the threads of this process, and qworker needs real ones. Start it from a "
                f"manage.py that does not call {library}'s monkey patching."
            )
            raise CommandError(message)


NEED_FORKS = {
    "processes": "--processes {}: without forks a worker has one process. Start the command several times.",
    "reload": "--reload needs forks.",
    "max_jobs": "--max-jobs needs forks: nobody would replace the process.",
    "max_memory": "--max-memory needs forks: nobody would replace the process.",
    "metrics_port": "--metrics-port needs forks. The site can serve the metrics of the queue.",
    "health_port": "--health-port needs forks.",
}


def refuse_what_needs_forks(options: dict[str, Any]) -> None:
    for name, message in NEED_FORKS.items():
        value = options[name]
        if value is not None and value is not False and (name != "processes" or value > 1):
            raise CommandError(f"{message.format(value)} This system ({sys.platform}) has none.")


def quarantine_waits(settings: WorkerSettings) -> bool:
    database = pgqueue_backends()[settings.backend].settings.database
    with connect(database, pooled=not settings.listen) as connection:
        return functions.quarantine_waits(connection, queues=settings.queues, exclude_queues=settings.exclude_queues)


def run_in_turn(*workers: WorkerSettings) -> int:
    """Runs them in this process, until one of them fails or is asked to stop."""
    for settings in workers:
        if settings.quarantine and not quarantine_waits(settings):
            continue
        consumer = WorkerProcess(settings)
        code = run_here(consumer)
        if code or consumer.phase.is_stopping:
            return code
    return 0


def run_here(consumer: WorkerProcess) -> int:
    requests = Requests()
    with guarded(), handling(stop_signals(), lambda number, _: consumer.stop(again=requests.is_another(number))):
        return consumer.run()


def stop_signals() -> list[signal.Signals]:
    """Returns those of this system, of which Ctrl-Break is of Windows.  Only the main thread may handle any."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


def exit_when_idle(options: dict[str, Any]) -> float | None:
    wanted: float | None = options["exit_when_idle"]
    if wanted is None:
        return None
    if options["burst"]:
        message = "--burst exits as soon as nothing is ready, and --exit-when-idle later: use only one of them."
        raise CommandError(message)
    return seconds("exit-when-idle", wanted, wanted)


def watched(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the worker settings for serving metrics and health."""
    for name in ("metrics_port", "health_port"):
        if options[name] is not None and not 0 <= options[name] <= LAST_PORT:
            message = f"--{name.replace('_', '-')} {options[name]} is not a port: ports are from 1 to {LAST_PORT}."
            raise CommandError(message)
    if not options["metrics_host"].strip():
        message = (
            f"--metrics-host {options['metrics_host']!r} names no address. 127.0.0.1 is for this host only, 0.0.0.0 "
            "for all hosts. If it comes from a variable, is that set?"
        )
        raise CommandError(message)
    if options["metrics_port"] is not None and find_spec("prometheus_client") is None:
        message = f"--metrics-port needs prometheus-client: {install_command('prometheus')}. --health-port does not."
        raise CommandError(message)
    return {name: options[name] for name in ("metrics_port", "health_port", "metrics_host")}


def names(option: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if (not found and (text or option == "queues")) or not all(is_name(name) for name in found):
        message = f"--{option} {redaction.quote(text)} names no queue: {NAMES_ARE}."
        raise CommandError(message)
    return found


def seconds(option: str, value: float | None, default: float) -> float:
    if value is not None and not 0 < value < MAX_SECONDS:
        message = f"--{option} {value} is not a number above 0 and below a billion."
        raise CommandError(message)
    return default if value is None else value


def log_to_terminal(options: dict[str, Any]) -> None:
    """Logs one line for each job, unless the project's LOGGING configures it or -v 0 leaves only errors."""
    logger, verbosity = logging.getLogger("django_pgqueue"), options["verbosity"]
    # LOGGING disables loggers that exist already, as these do if it names a formatter or filter of this package.
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == logger.name]
    loggers = [logging.getLogger(name) for name in names]
    for each in loggers:
        each.disabled = False
    # Django's own lines for each start and end would repeat this, and cost as much as a job.
    its = logging.getLogger(TASKS_LOGGER)
    if its.level == logging.NOTSET:
        its.setLevel(logging.WARNING)
    its.addFilter(without_failures)
    if options["log_format"] == "json":
        log_as_json(logger)
        its.handlers, its.propagate = [logging.NullHandler()], False
    elif not logger.hasHandlers():
        # Who starts it may have closed them: then they are None.  The file is open as long as the logger.
        stream = (sys.stdout if verbosity else sys.stderr) or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        logger.addHandler(LineHandler(stream, formatter(stream, options)))
    mail_failures(logger)
    contain(handler for each in (*loggers, its) for handler in reached_by(each))
    if verbosity == 0:
        logger.setLevel(logging.ERROR)
    elif logger.level == logging.NOTSET:
        logger.setLevel(logging.DEBUG if verbosity > 2 else logging.INFO)


def mail_failures(logger: logging.Logger) -> None:
    """Lets the handlers of Django's lines mail failed attempts to ADMINS, unless the project's LOGGING does so."""
    ours, django_s = reached_by(logger), reached_by(logging.getLogger(TASKS_LOGGER))
    mails = [handler for handler in django_s if isinstance(handler, AdminEmailHandler)]
    if mails and not any(isinstance(handler, (AdminEmailHandler, FailureMails)) for handler in ours):
        logger.addHandler(FailureMails(mails))


class FailureMails(logging.Handler):
    """Handler of lines about failed attempts, and of no others: an error of the worker itself must not wait for a mail
    server.
    """

    def __init__(self, mails: Sequence[logging.Handler]) -> None:
        super().__init__(logging.ERROR)
        self.mails = mails

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "pgqueue"):
            for handler in self.mails:
                if record.levelno >= handler.level:
                    handler.handle(record)


def contain(handlers: Iterable[logging.Handler]) -> None:
    """Lets handlers report what they raise as those of the standard library do, instead of raising it.

    One that sends lines to a chat, or into a table, and raises when it cannot, would end the worker, and its jobs would
    count as lost.
    """
    for handler in {handler for handler in handlers if not isinstance(handler, LineHandler)}:
        handler.handle = partial(handled, handler, handler.handle)  # type: ignore[method-assign]


def handled(handler: logging.Handler, handle: Callable[[logging.LogRecord], Any], record: logging.LogRecord) -> Any:
    try:
        return handle(record)
    except Exception:  # noqa: BLE001 -- whatever the project's handler raises
        with suppress(Exception):
            handler.handleError(record)
        return False


def reached_by(logger: logging.Logger | None) -> list[logging.Handler]:
    found: list[logging.Handler] = []
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def log_as_json(logger: logging.Logger) -> None:
    """Replaces the handlers of the project's LOGGING: the command line takes precedence."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logger.handlers = [handler]
    logger.propagate = False
