"""The tables of the pages "From …": the code of a cell is run here, and the other package knows its names."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import logging
import re
import subprocess
import sys
from dataclasses import fields
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.utils import timezone
from psycopg.conninfo import conninfo_to_dict

from django_pgqueue import control, exceptions, functions, models, tasks
from django_pgqueue.compat import TaskResultStatus, task_finished, task_started
from django_pgqueue.conf import Options
from django_pgqueue.contrib.celery import BoundTask, CeleryTask, shared_task
from django_pgqueue.testing import drain, inline
from tests.support import commands
from tests.support.address import url
from tests.support.databases import empty_database
from tests.support.fixtures.sessions import test_database
from tests.support.pages import FOLDER, ROOT, blocks
from tests.support.tasks import do_nothing, echo, plain_function

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["test_database"]

pytestmark = pytest.mark.django_db

PACKAGES = {
    "celery": ["celery"],
    "django-q2": ["django_q", "huey"],
    "procrastinate": ["procrastinate"],
    "rq": ["rq", "django_rq"],
    "tasks-db": ["django_tasks_db"],
}
PROGRAMS = re.compile(
    r"(celery|qcluster|qmonitor|qinfo|run_huey|rqworker|rq-scheduler|db_worker|procrastinate worker)\b"
)
EXAMPLES = {"declared", "done", "f", "result", "self", "send_letter", "send_receipt", "app", "on_commit", "transaction"}
"""Names that the pages give to what is the reader's own, or Django's."""
CODE = re.compile(r"`([^`]+)`")


def rows(page: str) -> Iterator[tuple[list[str], list[str], str]]:
    """Yields the code of the first cell of a row, that of the last one, and the heading above."""
    heading, is_table = "", False
    for line in (FOLDER / "move" / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if not line.startswith("|"):
            is_table = False
            continue
        first, *_, last = re.split(r" ?\| ?", line.strip("| "))
        if first.startswith("you write for"):
            is_table = True
        elif is_table and not set(line) <= set("|-"):
            yield CODE.findall(first), CODE.findall(last), heading


def python(code: str) -> str:
    """Returns the code with examples in place of what it leaves out."""
    code = code.replace("[…]", "[result]").replace("exc=…", "exc=OSError()").replace('"…"', '"x"').replace("…", "1")
    if code.startswith("."):
        return f"result{code}"
    if code.startswith("@"):
        return f"{code}\ndef declared(*args): ..."
    if code == "async def":
        return "async def declared(): ..."
    return f"{code}None" if re.fullmatch(r"\w+=", code) else code


def assignment(code: str) -> tuple[str, Any] | None:
    """Returns the name and the value of code such as ``max_concurrency=1``."""
    match ast.parse(python(code)).body:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
            return name, value
    return None


# What one writes here


def run_here(code: str, names: dict[str, Any]) -> None:
    if (command := re.match(r"(?:manage\.py )?(q\w+.*)$", code)) is not None:
        assert list(commands.manage_problems(f"`manage.py {command[1]}`")) == []
    elif code in {option.name.upper() for option in fields(Options)} | {option.name for option in fields(echo)}:
        return
    elif code.startswith("self.context"):
        job = run_in_a_job.enqueue(code)
        assert [result.status for result in drain() if result.id == job.id] == ["SUCCESSFUL"]
    elif (option := code.partition("=")[0]) in celery("Change one import"):
        shared_task(**{option: SAMPLES.get(option, True)})(plain_function)
    elif (given := assignment(code)) is not None:
        take(given[0], eval(compile(ast.Expression(given[1]), code, "eval"), names))  # noqa: S307 -- our own pages
    else:
        exec(compile(python(code), code, "exec"), {**names, "__name__": "tests.support.tasks"})  # noqa: S102


def take(name: str, value: Any) -> None:
    if name in inspect.signature(control.set_channel).parameters:
        control.set_channel("stock", **{name: value})
    elif name in inspect.signature(tasks.PgQueueTask.using).parameters:
        echo.using(**{name: value})
    else:
        tasks.task(**{name: value})(plain_function)


@pytest.mark.parametrize("page", PACKAGES)
def test_what_one_writes_here_runs(page: str) -> None:
    cells = [code for _, here, _ in rows(page) for code in here]
    assert cells
    result = echo.enqueue(7)
    names = {
        **vars(exceptions), **vars(models), "__builtins__": __builtins__, "control": control, "cron": tasks.cron,
        "django_pgqueue": __import__("django_pgqueue.models"), "done": gathering, "drain": drain,
        "f": echo, "inline": inline,
        "get_result": echo.get_result, "id": result.id, "logging": logging, "result": result,
        "self": BoundTask(bound, None, (), {}),
        "send_letter": echo, "send_receipt": echo, "shared_task": shared_task, "task": tasks.task, "tasks": tasks,
        "TaskResultStatus": TaskResultStatus, "task_finished": task_finished, "task_started": task_started,
        "slot": headers_of_a_schedule()["slot"],
        "eta": inspect.signature(CeleryTask.apply_async).parameters["eta"],
    }  # fmt: skip
    wrong = {}
    for code in cells:
        try:
            run_here(code, names)
        except Exception as error:  # noqa: BLE001 -- all of them at once
            wrong[code] = f"{type(error).__name__}: {error}"
    assert not wrong, "\n".join(f"{code}: {why}" for code, why in wrong.items())


def headers_of_a_schedule() -> dict[str, Any]:
    now = timezone.now().replace(microsecond=0)
    row = {"task": do_nothing.module_path, "content": {}, "interval_ms": 1000, "next_at": now}
    models.Schedule.objects.create(name="moving", **row)
    at = int(now.timestamp() * 1000)
    functions.schedule_fire(connection, "moving", slots=[at], expected_at=at, next_at=at + 1000)
    [message] = models.Message.objects.filter(headers__schedule="moving")
    return dict(message.headers or {})


def _bound_function(context: Any = None) -> None: ...


async def _async_function() -> None: ...


bound = shared_task(bind=True)(_bound_function)


@shared_task(bind=True)
def run_in_a_job(self: Any, code: str) -> None:
    exec(code, {"self": self, "fraction": 0.5, "text": "half"})  # noqa: S102 -- our own pages


@tasks.task(takes_context=True)
def gathering(context: Any) -> list[Any]:
    return list(context.results())


# The options of Celery


def celery(section: str) -> list[str]:
    """Returns the code of Celery that the table of a section names."""
    return [code for theirs, _, heading in rows("celery") if heading == section for code in theirs]


SAMPLES: dict[str, Any] = {
    "autoretry_for": (OSError,), "dont_autoretry_for": (ValueError,), "max_retries": 3, "queue": "mail",
    "time_limit": 30, "expires": 3600, "priority": 7, "default_retry_delay": 60,
}  # fmt: skip


def test_what_means_the_same_in_celery_is_taken() -> None:
    request = BoundTask(bound, None, (), {}).request
    for code in celery("Change one import"):
        if re.fullmatch(r"\w+(=True)?", code) and code != "delay":
            name = code.removesuffix("=True")
            shared_task(**{name: SAMPLES.get(name, True)})(_bound_function)
        elif code.startswith("apply_async("):
            said = set(re.findall(r"\w+", code)) - {"apply_async"}
            assert said <= set(inspect.signature(CeleryTask.apply_async).parameters)
        elif code.startswith((".", "self.request")):
            assert hasattr(request, code.rpartition(".")[2]), code


def test_what_is_refused_of_celery_is_refused_with_the_way_here() -> None:
    for code in celery("What it refuses"):
        name = code.removeprefix(".").partition("=")[0].partition("(")[0]
        if name.startswith("self") or name in {"chain", "group", "chord"}:
            continue  # what a task calls, and functions of Celery's own
        with pytest.raises((AttributeError, TypeError)) as refused:
            declare(code)
        assert name.split()[0] in str(refused.value) or name == "name"


def declare(code: str) -> Any:
    """Does what the cell says, as far as this package can."""
    if code == "async def":
        return shared_task(_async_function)
    if code.startswith("."):
        return getattr(bound, code.removeprefix(".").removesuffix("()"))
    name = code.partition("=")[0]
    return shared_task(**{name: None if code == "max_retries=None" else "x"})(_bound_function)


# What one writes there


def words(*packages: str) -> set[str]:
    """Returns all names of other packages, as far as they are installed beside these tests."""
    found: set[str] = set()
    for package in packages:
        if (spec := importlib.util.find_spec(package)) is not None:
            for folder in spec.submodule_search_locations or ():
                for path in Path(folder).rglob("*.py"):
                    found |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
                    found.add(path.stem)
    return found


@pytest.mark.parametrize("page", PACKAGES)
def test_what_one_writes_there_is_python_and_known_there(page: str) -> None:
    known = words(*PACKAGES[page])
    cells = [code for theirs, _, _ in rows(page) for code in theirs]
    assert cells
    for code in cells:
        if (program := PROGRAMS.match(code)) is not None:
            assert not known or page in {"rq", "django-q2"} or set(re.findall(r"\w+", program[1])) <= known, code
        elif known:
            assert names_of(ast.parse(python(code))) - EXAMPLES <= known, code
    for block in blocks(FOLDER / "move" / f"{page}.md", "python") + [
        block for block in blocks(FOLDER / "move" / f"{page}.md") if block.not_run and block.language == "python"
    ]:
        compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def names_of(tree: ast.AST) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}


def theirs(page: str, number: int = 0) -> str:
    """Returns what one writes there."""
    found = [one for one in blocks(FOLDER / "move" / f"{page}.md") if one.not_run and one.language == "python"]
    return found[number].text


def runnable(page: str, heading: str = "") -> list[str]:
    """Returns the code of the first cells that can be run."""
    cells = [code for theirs, _, title in rows(page) if title == heading for code in theirs]
    return [code for code in cells if re.search(r"^@|\)$|==", code) and not code.startswith("apply_async(")]


def run_there(codes: list[str], names: dict[str, Any]) -> None:
    assert codes
    for code in codes:
        exec(compile(python(code), code, "exec"), names)  # noqa: S102 -- our own pages


def test_the_code_of_procrastinate_runs_with_procrastinate() -> None:
    procrastinate = pytest.importorskip("procrastinate", reason="procrastinate is installed beside Django 5.2")
    testing = pytest.importorskip("procrastinate.testing")
    app = procrastinate.App(connector=testing.InMemoryConnector())
    names: dict[str, Any] = {"__name__": "shop.tasks", "app": app, "RetryStrategy": procrastinate.RetryStrategy}
    declared, _, calls = theirs("procrastinate").partition("\nsend_receipt.defer(")
    calls, _, last = f"send_receipt.defer({calls}".partition("await ")
    exec(declared, names)  # noqa: S102 -- our own pages
    names["book"] = names["send_receipt"]
    with app.open():
        exec(calls, names)  # noqa: S102
    asyncio.run(eval(last, names))  # noqa: S307
    assert len(app.connector.jobs) == 7
    run_there(runnable("procrastinate"), {"app": app, "job_manager": app.job_manager, "id": 1})
    assert app.connector.jobs[1]["status"] == "cancelled"


def price(order_pk: int) -> int:
    return 10 * order_pk


def add_up(prices: list[int], currency: str) -> str:
    return f"{sum(prices)} {currency}"


def add_tax(net: int) -> float:
    return round(net * 1.19, 2)


def test_the_code_of_celery_runs_with_celery() -> None:
    celery = pytest.importorskip("celery", reason="celery is installed beside Django 5.2", exc_type=ImportError)
    app = celery.Celery("moving", backend="cache+memory://", set_as_current=False, fixups=[])
    app.conf.update(task_always_eager=True, task_store_eager_result=True)
    names: dict[str, Any] = {
        **{function.__name__: app.task(function) for function in (price, add_up, add_tax)},
        **{name: getattr(celery, name) for name in ("chain", "chord", "group")},
    }
    exec(theirs("celery", 1), names)  # noqa: S102 -- our own pages
    assert names["prices"] == [10, 20, 30]


def test_the_calls_of_celery_run_with_celery() -> None:
    package = pytest.importorskip("celery", reason="celery is installed beside Django 5.2", exc_type=ImportError)
    app = package.Celery("calls", broker="memory://", backend="cache+memory://", set_as_current=False, fixups=[])

    def inside(self: Any, code: str) -> None:
        try:
            run_there([code], {"self": self})
        except (OSError, package.exceptions.Retry):
            assert code.startswith("self.retry(")

    runs = app.task(bind=True)(inside)
    logger = importlib.import_module("celery.utils.log").get_task_logger
    names = {"app": app, "send_letter": app.task(price), "get_task_logger": logger}
    sections = [runnable("celery", heading) for heading in ("Change one import", "Commands, calls and settings")]
    for code in chain(*sections):
        if code.startswith("self."):
            runs.apply((code.replace("(…)", "('an id')"),), throw=True)
        else:
            run_there([code], {**names, "result": names["send_letter"].apply((1,))})
    for word in celery("Commands, calls and settings"):
        if re.fullmatch(r"task_\w+|worker_\w+|beat_schedule|result_expires", word):
            assert hasattr(app.conf, word) or hasattr(package.signals, word), word


RAN: list[int] = []


def send_receipt(order_pk: int) -> None:
    RAN.append(order_pk)


def test_the_code_of_rq_runs_with_rq() -> None:
    rq = pytest.importorskip("rq", reason="rq is installed beside Django 5.2")
    fakeredis = pytest.importorskip("fakeredis", reason="fakeredis is installed beside Django 5.2")
    RAN.clear()
    queue = rq.Queue(connection=fakeredis.FakeStrictRedis())
    first = queue.enqueue(send_receipt, 1)
    names: dict[str, Any] = {
        **vars(rq), "queue": queue, "first": first, "send_receipt": send_receipt, "timedelta": timedelta,
        "datetime": datetime,
    }  # fmt: skip
    exec(theirs("rq"), names)  # noqa: S102 -- our own pages
    assert names["job"] is None, "no job runs here"
    burst(rq, queue)
    assert RAN == [1, 7, 7, 0, 1, 2, 8]
    assert names["other"].is_finished
    assert queue.scheduled_job_registry.count == 2
    assert queue.canceled_job_registry.count == 1
    job = partial(importlib.import_module("rq.decorators").job, connection=queue.connection)  # django-rq knows it
    decorated: dict[str, Any] = {"job": job, "__name__": "shop.tasks"}
    run_there(['@job("mail")'], decorated)
    assert decorated["declared"].delay(7).origin == "mail"


def burst(rq: Any, queue: Any) -> None:
    """Runs what is ready, in this thread."""

    class Worker(rq.SimpleWorker):  # type: ignore[misc]
        death_penalty_class = rq.timeouts.TimerDeathPenalty

        def _install_signal_handlers(self) -> None:
            """The signals are pytest's."""

    Worker([queue], connection=queue.connection).work(burst=True, logging_level="ERROR")


def test_the_code_of_huey_runs_with_huey(settings: Any) -> None:
    huey = pytest.importorskip("huey", reason="huey is installed beside Django 5.2")
    settings.HUEY = theirs_here = huey.MemoryHuey("moving", immediate=False)
    names: dict[str, Any] = {**vars(importlib.import_module("huey.contrib.djhuey")), "crontab": huey.crontab}
    exec(theirs("django-q2", 1), names)  # noqa: S102 -- our own pages
    ran = []
    while (task := theirs_here.dequeue()) is not None:
        ran.append((task.name, *task.args))
        theirs_here.execute(task)
    assert sorted(ran) == [("send_letter", number) for number in (1, 2, 3, 7, 7)]
    assert len(theirs_here.scheduled()) == 1, "one of the two with 7 comes later"
    assert [task.name for task in theirs_here._registry.periodic_tasks] == ["count_stock"]
    theirs_here.immediate = True
    done, result = names["task"]()(plain_function), names["task"]()(price)(1)
    run_there(runnable("django-q2", "huey"), {**names, "huey": theirs_here, "done": done, "result": result})


def test_the_durable_queues_know_their_words() -> None:
    table = (FOLDER / "move" / "durable.md").read_text(encoding="utf-8").partition("## Word by word")[2]
    head, _, *lines = (re.split(r" ?\| ?", line.strip("| ")) for line in table.splitlines() if line.startswith("|"))
    assert head == ["absurd", "DBOS", "pgtask", "here"]
    for column, module in enumerate(MODULES.values()):
        if known := words(module):
            codes = [code for line in lines for code in CODE.findall(line[column])]
            assert len(codes) > 5
            unknown = {code for code in codes if not names_of(ast.parse(python(code))) - {"app", "ctx", "fn"} <= known}
            assert unknown == set()


SEEN = {
    "absurd": [["ada@example.com", {"tracking": "T-1"}]],
    "dbos": [["small a.png", "small b.png"], ["ada@example.com"]],
    "pgtask": {"charge_id": "charge:7"},
}
MODULES = {"absurd": "absurd_sdk", "dbos": "dbos", "pgtask": "pgtask"}


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_the_code_of_a_durable_queue_runs_with_it(name: str, test_database: str) -> None:
    pytest.importorskip(MODULES[name], reason=f"{name} is installed beside Django 5.2")
    with empty_database(test_database, name) as database:
        address = url(str(conninfo_to_dict(database)["dbname"]))
        command = [sys.executable, "-m", "tests.project.docs.durable_there", name, address]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == SEEN[name]
