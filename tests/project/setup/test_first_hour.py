"""A newcomer follows the page "Into your project", word for word, in a new project, and then makes its mistakes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.project.setup.installations import DJANGOS, MODELS, PAGE, Installation
from tests.support.databases import empty_database
from tests.support.pages import blocks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.project.setup.installations import EnvironmentOf

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(900)]

CONSOLE = "django.core.mail.backends.console.EmailBackend"
ENQUEUE = """
from django.test import RequestFactory
from shop.views import place_order

posted = {"customer": "Ada", "email": "ada@example.com", "total": "12.50"}
print(place_order(RequestFactory().post("/", posted)).status_code)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """``words``: what is seen, and what the page says that one sees."""

    settings: str = ""
    run: str
    words: tuple[str, ...]


CHECK = "manage('check')"
IMPORT = "from shop.tasks import send_receipt\n"
SEND = f"{IMPORT}send_receipt.enqueue(1)"
TASK = "from django_pgqueue.tasks import task\n"
NO_QUEUE = "ROOT_URLCONF = 'website.bare'"
"""Of a site that imports no task."""
MISTAKES: dict[str, list[Mistake]] = {
    "forgot `django_pgqueue` in `INSTALLED_APPS`": [
        Mistake(settings="INSTALLED_APPS.remove('django_pgqueue')", run=f"{IMPORT}{CHECK}", words=("pgqueue.E006",)),
        Mistake(
            settings="DATABASES = EMPTY\nINSTALLED_APPS.remove('django_pgqueue')",
            run=SEND,
            words=("ImproperlyConfigured",),
        ),
    ],
    "wrote `TASK` and not `TASKS`": [
        Mistake(settings=f"TASK = TASKS\ndel TASKS\n{NO_QUEUE}", run=CHECK, words=("pgqueue.W007",)),
        Mistake(settings="TASK = TASKS\ndel TASKS", run=SEND, words=("InvalidTask",)),
    ],
    "use SQLite": [
        Mistake(settings=f"DATABASES = SQLITE\n{NO_QUEUE}", run=CHECK, words=("pgqueue.E004",)),
        Mistake(settings="DATABASES = SQLITE", run=SEND, words=("ImproperlyConfigured",)),
    ],
    'wrote `"QUEUES": "mail"`': [
        Mistake(settings=f"TASKS['default']['QUEUES'] = 'mail'\n{NO_QUEUE}", run=CHECK, words=("pgqueue.E005",)),
        Mistake(settings="TASKS['default']['QUEUES'] = 'mail'", run=CHECK, words=("pgqueue.E005",)),
    ],
    "wrote `LOCK_SECOND` into `OPTIONS`": [
        Mistake(settings="TASKS['default']['OPTIONS'] = {'LOCK_SECOND': 60}", run=CHECK, words=("pgqueue.E001",)),
    ],
    "wrote `LOCK_SECONDS` beside `OPTIONS`": [
        Mistake(settings="TASKS['default']['LOCK_SECONDS'] = 60", run=CHECK, words=("pgqueue.W008",)),
    ],
    "gave an option an impossible value": [
        Mistake(settings="TASKS['default']['OPTIONS'] = {'LOCK_SECONDS': -1}", run=CHECK, words=("pgqueue.E002",)),
    ],
    "named a database that is not in `DATABASES`": [
        Mistake(settings="TASKS['default']['OPTIONS'] = {'DATABASE': 'queue'}", run=CHECK, words=("pgqueue.E003",)),
    ],
    "did not migrate": [
        Mistake(settings="DATABASES = EMPTY", run="manage('check', databases=['default'])", words=("pgqueue.W003",)),
        Mistake(settings="DATABASES = EMPTY", run=SEND, words=("OutdatedQueue",)),
    ],
    "started no worker": [Mistake(run="manage('qdoctor', '--setup')", words=("manage.py qworker",))],
    "named a queue that is not in `QUEUES`": [
        Mistake(run=f"{IMPORT}send_receipt.using(queue_name='post')", words=("InvalidTask",)),
    ],
    "gave wrong arguments": [Mistake(run=f"{IMPORT}send_receipt.enqueue()", words=("TypeError",))],
    "gave an object as an argument": [
        Mistake(
            run=f"{IMPORT}from shop.models import Order\nsend_receipt.enqueue(Order(pk=1))",
            words=("InvalidContent", "primary key"),
        ),
    ],
    "wrote `send_receipt.delay(order.pk)`": [
        Mistake(run=f"{IMPORT}send_receipt.delay(1)", words=("AttributeError", "send_receipt.enqueue(")),
    ],
    "wrote `send_receipt.apply_async(…)`": [
        Mistake(run=f"{IMPORT}send_receipt.apply_async([1])", words=("AttributeError", "send_receipt.using(")),
    ],
    "wrote `result.get()`": [
        Mistake(run=f"{IMPORT}send_receipt.enqueue(1).get()", words=("AttributeError", "result.return_value")),
    ],
    "wrote `@task(bind=True)`": [
        Mistake(run=f"{TASK}@task(bind=True)\ndef f(self): ...", words=("TypeError", "takes_context=True")),
    ],
    "wrote `@task(max_retries=3)`": [
        Mistake(run=f"{TASK}@task(max_retries=3)\ndef f(): ...", words=("TypeError", "max_attempts=")),
    ],
    "called the task: `send_receipt(order.pk)`": [
        Mistake(run=f"{IMPORT}send_receipt(1)", words=("TypeError", "send_receipt.enqueue(")),
    ],
    "wrote a task inside of a function": [
        Mistake(run=f"{TASK}def f():\n    @task\n    def g(): ...\nf()", words=("InvalidTask",)),
    ],
    "gave a priority of 1000": [Mistake(run=f"{IMPORT}send_receipt.using(priority=1000)", words=("InvalidTask",))],
    'wrote `cron("every day")`': [
        Mistake(run="from django_pgqueue.tasks import cron\ncron('every day')", words=("InvalidSchedule",)),
    ],
}


def rows() -> dict[str, str]:
    """What was done, and what is seen, of each row of the page's table."""
    table = PAGE.read_text(encoding="utf-8").partition("| you did | you see |")[2]
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", table.partition("|---|---|")[2].partition("\n#")[0], re.MULTILINE))


def test_each_mistake_of_the_page_is_made() -> None:
    assert list(rows()) == list(MISTAKES)
    for done, mistakes in MISTAKES.items():
        for word in (word for mistake in mistakes for word in mistake.words):
            assert word.rstrip("(=") in rows()[done], done


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A project, the database that it has and one that nobody has migrated."""

    installation: Installation
    commands: list[str]
    django: str
    begun_at: float

    def command(self, line: str) -> None:
        self.commands.append(line)
        program, *arguments = shlex.split(line)
        assert program == "python"
        self.installation.run(*arguments)

    def file(self, path: str) -> Path:
        return self.installation.project / path


@pytest.fixture(params=DJANGOS)
def newcomer(
    request: pytest.FixtureRequest, environment_of: EnvironmentOf, conninfo: str, tmp_path: Path
) -> Iterator[Newcomer]:
    """The project after the third step of the page."""
    version = request.param
    begun_at = time.monotonic()
    environment, line = environment_of(version)
    installation = Installation(environment=environment, project=tmp_path / "project")
    installation.project.mkdir()
    migrate = blocks(PAGE, "sh")[2].text
    with empty_database(conninfo, f"newcomer{version[0]}") as database, empty_database(conninfo, "unmigrated") as empty:
        found = Newcomer(installation=installation, commands=[line], django=version, begun_at=begun_at)
        found.command("python -m django startproject website .")
        found.command("python manage.py startapp shop")
        write_settings(found, database, empty)
        for page_line in migrate.splitlines():
            found.command(page_line)
        yield found


def write_settings(newcomer: Newcomer, database: str, empty: str) -> None:
    blocks_of_page = {block.module: block.text for block in blocks(PAGE, "python") if block.module}
    settings = newcomer.file("website/settings.py")
    added = blocks_of_page["settings"].replace("INSTALLED_APPS = [", "INSTALLED_APPS += ['shop',")
    if newcomer.django == "5.2":
        added = added.replace('"django_pgqueue",', '"django_pgqueue", "django_tasks",')
    settings.write_text(
        f"{settings.read_text()}\n{added}\n"
        f"SQLITE, DATABASES, EMPTY = DATABASES, {databases(database)!r}, {databases(empty)!r}\n"
        f"{f'EMAIL_BACKEND = {CONSOLE!r}' if newcomer.django == '5.2' else ''}\n"  # Django 6.1 makes MAILERS
    )
    (newcomer.file("website/bare.py")).write_text("urlpatterns = []\n")
    (newcomer.file("website/urls.py")).write_text(
        "from django.urls import path\nfrom shop.views import place_order\nurlpatterns = [path('', place_order)]\n"
    )
    (newcomer.file("shop/models.py")).write_text(f"{MODELS}\n    def get_absolute_url(self):\n        return '/'\n")
    for name in ("tasks", "views"):
        newcomer.file(f"shop/{name}.py").write_text(blocks_of_page[f"shop.{name}"])
    newcomer.command("python manage.py makemigrations shop")


def databases(conninfo: str) -> dict[str, dict[str, str]]:
    server = conninfo_to_dict(conninfo)
    names = {name.upper(): str(server.get(name) or "") for name in ("user", "password", "host", "port")}
    return {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": str(server["dbname"]), **names}}


def test_the_page_leads_to_the_first_job_and_names_each_mistake(
    newcomer: Newcomer, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a project that Django has just made, with the commands of the page."""
    follow(newcomer, capsys)
    err(newcomer)
    leave(newcomer)


def follow(newcomer: Newcomer, capsys: pytest.CaptureFixture[str]) -> None:
    assert newcomer.installation.run("manage.py", "shell", "-c", ENQUEUE).splitlines()[-1] == "302"
    [work, examine] = [block.text.strip() for block in blocks(PAGE, "sh")[3:5]]
    assert work == "python manage.py qworker"
    newcomer.commands.append(work)
    said = newcomer.file("worker")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTHON"))}
    with said.open("w") as output:
        worker = subprocess.Popen(
            [newcomer.installation.environment.python, *shlex.split(work)[1:]],
            cwd=newcomer.installation.project, env=kept, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        wait_until(
            lambda: (
                worker.poll() is not None or "succeeded id=1 task=shop.tasks.send_receipt attempt=1" in said.read_text()
            ),
            "the job ran",
        )
        seconds = time.monotonic() - newcomer.begun_at
        assert worker.poll() is None, said.read_text()
        newcomer.command(examine)
        assert newcomer.commands.pop() == examine
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    with capsys.disabled():
        count = len(newcomer.commands)
        print(f"\nDjango {newcomer.django}: the first job ran after {count} commands and {seconds:.0f} s")
    assert count <= 7, newcomer.commands


def err(newcomer: Newcomer) -> None:
    asked = {
        f"{done} {number}": {"settings": mistake.settings, "run": mistake.run}
        for done, mistakes in MISTAKES.items()
        for number, mistake in enumerate(mistakes)
    }
    script = Path(__file__).with_name("mistakes.py")
    answer = newcomer.installation.run(str(script), json.dumps(asked)).splitlines()[-1]
    seen: dict[str, str] = json.loads(answer)
    wrong = {
        f"{done} {number}": seen[f"{done} {number}"]
        for done, mistakes in MISTAKES.items()
        for number, mistake in enumerate(mistakes)
        if not all(word in seen[f"{done} {number}"] for word in mistake.words)
    }
    assert wrong == {}, wrong


LEFT = """
from django.contrib.contenttypes.models import ContentType
from django.db import connection

with connection.cursor() as cursor:
    cursor.execute(
        "select count(*) from (select relname from pg_class union all select proname from pg_proc"
        " union all select typname from pg_type union all select app from django_migrations) as named (name)"
        " where name like '%pgqueue%'"
    )
    print(cursor.fetchone()[0], ContentType.objects.filter(app_label="django_pgqueue").count())
"""


def leave(newcomer: Newcomer) -> None:
    [zero, rest] = [block.text.strip() for block in blocks(PAGE, "sh")[5:]]
    forget, _uninstall = rest.splitlines()  # the environment is that of other tests, too
    newcomer.command(zero)
    (newcomer.file("website/urls.py")).write_text("urlpatterns = []\n")
    for name in ("tasks", "views"):
        newcomer.file(f"shop/{name}.py").unlink()
    settings = newcomer.file("website/settings.py")
    settings.write_text(f"{settings.read_text()}\nINSTALLED_APPS.remove('django_pgqueue')\ndel TASKS\n")
    newcomer.command(f"{forget} --noinput")
    newcomer.command("python manage.py check")
    assert newcomer.installation.run("manage.py", "shell", "-c", LEFT).splitlines()[-1] == "0 0"
