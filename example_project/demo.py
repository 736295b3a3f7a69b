"""The steps of the demo: database, migrations, web and worker, orders, banner, and a clean end.

``python3 example_project`` runs it in an environment that it makes; ``python -m example_project.demo`` in your own.
"""

import argparse
import fcntl
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import django
import psycopg
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import OperationalError, connection

from example_project import database, logins, state
from example_project.development.embedded_postgres import EmbeddedPostgresError
from example_project.development.processes import Command, Processes, Saying, Stopped, say, take_signals

HOST = "127.0.0.1"
USUAL_PORT = 8000
WEB_SECONDS = 60
NO_DATABASE = (OperationalError, psycopg.OperationalError, EmbeddedPostgresError)
MANAGE = str(database.ROOT / "example_project" / "manage.py")

BANNER = """
  ----------------------------------------------------------------------
   The shop      {url}
   The admin     {url}admin/    login admin, password {password}
   The mails     {mails}
   The database  {database}
   Ctrl-C        stops everything
  ----------------------------------------------------------------------
"""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["manage.py"]:
        manage(arguments[1:])
    return run(parse(arguments).port)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 example_project")
    parser.add_argument("--port", type=int, help=f"port of the shop (default: {USUAL_PORT}, or a free one)")
    return parser.parse_args(arguments)


def manage(arguments: list[str]) -> NoReturn:
    try:
        if superuser := database.superuser_url():
            logins.provide(superuser)
    except NO_DATABASE as error:
        sys.exit(say_no_database(error))
    os.execv(sys.executable, [sys.executable, MANAGE, *arguments])  # noqa: S606


def run(wanted_port: int | None) -> int:
    take_signals(signal.default_int_handler)
    try:
        serve(wanted_port)
    except KeyboardInterrupt:
        print("\nThe shop is closed.")
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.code
    except NO_DATABASE as error:
        return say_no_database(error)
    return 0


def say_no_database(error: Exception) -> int:
    print(f"No database: {error}", file=sys.stderr)
    return 1


def serve(wanted_port: int | None) -> None:
    with ExitStack() as until_open:
        until_open.enter_context(alone())
        free_port(wanted_port)  # an error comes before the database is made
        password = prepare()
        port = free_port(wanted_port)  # others may have taken the first one meanwhile
        with Processes(web(port), worker()) as processes:
            await_answer(port, processes)
            fill()
            print(banner(f"http://{HOST}:{port}/", password), flush=True)
            until_open.close()
            processes.wait()


@contextmanager
def alone() -> Iterator[None]:
    """One demo at a time opens its shop; a second one waits, then finds the database prepared and the port taken."""
    with (state.folder() / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port(wanted: int | None) -> int:
    """The wanted port, or an error; by default the usual one, or any that is free."""
    try:
        return usable(USUAL_PORT if wanted is None else wanted)
    except OSError as error:
        if wanted is None:
            return usable(0)
        reason = f"Port {wanted} cannot be used: {error.strerror}. Without --port, the demo takes a free one."
        raise Stopped(reason, 1) from error


def usable(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return int(probe.getsockname()[1])


def prepare() -> str:
    """Bring the database up to date; return the admin's password."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    if superuser := database.superuser_url():
        logins.provide(superuser)
    django.setup()
    say("shop", "preparing the database")
    call_command("migrate", verbosity=0)
    if superuser:
        logins.grant(superuser)
    call_command("qbind", verbosity=0)
    password = state.secret("admin-password", 12)
    let_admin_in(password)
    return password


def let_admin_in(password: str) -> None:
    admin, _ = get_user_model().objects.get_or_create(
        username="admin", defaults={"is_staff": True, "is_superuser": True}
    )
    if not admin.check_password(password):  # a new account, or a new state folder for an old database
        admin.set_password(password)
        admin.save()


def web(port: int) -> Command:
    words = [sys.executable, MANAGE, "runserver", "--noreload", f"{HOST}:{port}"]
    return Command(name="web", words=words, stop=signal.SIGINT)


def worker() -> Command:
    return Command(name="worker", words=[sys.executable, MANAGE, "qworker", "--noreload"], stop=signal.SIGTERM)


def await_answer(port: int, processes: Processes) -> None:
    deadline = time.monotonic() + WEB_SECONDS
    while not answers(port):
        if time.monotonic() > deadline:
            reason = f"The shop did not answer within {WEB_SECONDS} seconds."
            raise Stopped(reason, 1)
        processes.wait(timeout=0.1)


def answers(port: int) -> bool:
    web = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        web.request("GET", "/")
        return web.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        web.close()


def fill() -> None:
    call_command("fill_shop", stdout=Saying("shop"))
    connection.close()


def banner(url: str, password: str) -> str:
    server = connection.settings_dict
    database = f"{server['NAME']} on {server['HOST'] or 'a local socket'}:{server['PORT']}"
    return BANNER.format(url=url, password=password, mails=state.FOLDER / "mail", database=database)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
