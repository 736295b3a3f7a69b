"""From a name to a task: a message is data, and its words must not run what nobody meant to be run."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.utils.functional import SimpleLazyObject

from django_pgqueue import testing
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.exceptions import TaskBeingImported, UnknownTask
from django_pgqueue.functions import NewMessage, enqueue
from django_pgqueue.models import Attempt, Message
from django_pgqueue.tasks import PgQueueTask, discovery, registry
from tests.support import tasks
from tests.support.django_tasks_api import DUMMY, django_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.usefixtures("fresh_registry")

TASK = "from django_pgqueue.tasks import task\n@task\ndef post(): ...\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Path]:
    """An app of a project whose modules a test writes; what is imported of it is forgotten afterwards."""
    folder = tmp_path / "their_app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "their_app"]
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_app"]:
        del sys.modules[name]


def test_a_task_is_found_by_its_path() -> None:
    assert registry.find("tests.support.tasks.send") is tasks.send
    assert registry.find(tasks.send.module_path) is tasks.send


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "send", ".send", "tests.", "tests..send", "a b.c", "tests.support.tasks.send ",
        "tests.support.tasks.send\n", "tests/backend/tasks.send", "tests.support.tasks:send", "1.2", "os.system('ls')",
        "tests.support.tasks.send.enqueue()", "\x00.x", "__main__.send", "example_project.__main__.main",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_name_that_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(UnknownTask, match=r"is not (the dotted path of )?a task"):
        registry.find(path)


@pytest.mark.parametrize(
    "path", ["os.system", "subprocess.run", "builtins.eval", "django.core.management.call_command"]
)
def test_an_imported_object_that_is_no_task_is_refused(path: str) -> None:
    with pytest.raises(UnknownTask, match=r"is not a task: .* has a .* of that name. Declare it with @task"):
        registry.find(path)


@pytest.mark.parametrize(
    "path", ["antigravity.fly", "this.s", "turtledemo.clock.main", "tests.worker.broken.write", "django.contrib.gis.x"]
)
def test_no_module_is_imported_because_a_message_names_it(path: str) -> None:
    module = path.rpartition(".")[0]
    assert module not in sys.modules
    with pytest.raises(UnknownTask, match=f"is not registered: {module} has not been imported. Define tasks in"):
        registry.find(path)
    assert module not in sys.modules


def test_a_name_missing_in_the_module_is_reported() -> None:
    with pytest.raises(UnknownTask, match=r"tests\.support\.tasks has no 'gone'"):
        registry.find("tests.support.tasks.gone")


def test_attributes_of_tasks_and_classes_are_no_tasks() -> None:
    for path in ("tests.support.tasks.send.func", "tests.support.tasks.Jobs.inside_a_class"):
        with pytest.raises(UnknownTask):
            registry.find(path)


def test_a_module_of_an_installed_app_is_not_imported_because_a_message_names_it(package: Path) -> None:
    (package / "letters.py").write_text(TASK)
    with pytest.raises(UnknownTask, match="is not registered"):
        registry.find("their_app.letters.post")
    import_module("their_app.letters")
    assert registry.find("their_app.letters.post").call() is None


@pytest.mark.parametrize(
    "text",
    ["import does_not_exist", "1 / 0", "raise SystemExit", "def f(:", "import sys; sys.exit(1)", "exit()"],
)
def test_a_module_that_cannot_be_imported_is_reported_to_a_site(package: Path, text: str) -> None:
    (package / "tasks.py").write_text(text)
    with pytest.raises(UnknownTask, match=r"their_app\.tasks\.post' does not exist, or its module cannot") as error:
        registry.find("their_app.tasks.post")
    assert error.value.__cause__ is not None


def test_a_site_finds_the_tasks_that_workers_find(package: Path) -> None:
    (package / "tasks.py").write_text(TASK)
    assert "their_app.tasks" not in sys.modules
    assert isinstance(registry.find("their_app.tasks.post"), PgQueueTask)


def test_a_package_of_tasks_has_all_of_its_modules_imported_less_its_tests(package: Path) -> None:
    inner = package / "tasks" / "mail"
    inner.mkdir(parents=True)
    (package / "tasks" / "__init__.py").touch()
    (inner / "__init__.py").touch()
    (inner / "letters.py").write_text(TASK)
    for name in ("tests", "test_letters", "conftest", "__main__"):
        (inner / f"{name}.py").write_text("raise SystemExit")
    registry.autodiscover()
    assert isinstance(registry.find("their_app.tasks.mail.letters.post"), PgQueueTask)


UNDER_WAY = """
import their_app
their_app.entered.set()
assert their_app.go_on.wait(30)
"""


@pytest.fixture
def under_way(package: Path) -> Iterator[Any]:
    """An import that goes on when the test lets it."""
    (package / "slow.py").write_text(f"{UNDER_WAY}\n{TASK}")
    app = import_module("their_app")
    vars(app).update(entered=threading.Event(), go_on=threading.Event())
    thread = threading.Thread(target=import_module, args=["their_app.slow"])
    thread.start()
    assert vars(app)["entered"].wait(30)
    yield app
    vars(app)["go_on"].set()
    thread.join()


def test_a_lookup_may_wait_for_a_module_that_is_being_imported(under_way: Any) -> None:
    path = "their_app.slow.post"
    with pytest.raises(TaskBeingImported, match=r"another thread is importing their_app\.slow"):
        registry.find(path)
    with ThreadPoolExecutor(1) as slot:
        found = slot.submit(registry.find_patiently, path)
        under_way.go_on.set()
        assert isinstance(found.result(30), PgQueueTask)
    assert isinstance(registry.find(path), PgQueueTask)


def test_a_submodule_of_a_package_being_imported_is_not_yet_available(under_way: Any) -> None:
    with pytest.raises(TaskBeingImported, match=r"is not available yet"):
        registry.find("their_app.slow.inner.post")


@pytest.mark.django_db
def test_an_attempt_whose_module_is_imported_for_too_long_is_tried_again(
    under_way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_IMPORT_SECONDS", 0.0)
    enqueue(connection, NewMessage(content='{"args": [], "kwargs": {}}', task="their_app.slow.post"))
    with pytest.raises(TaskBeingImported):
        testing.drain()
    attempt = Attempt.objects.get()
    assert (attempt.status, attempt.final) == ("retried", False)
    assert attempt.error_class == "django_pgqueue.exceptions.TaskBeingImported"


def test_a_module_that_enqueues_while_it_is_imported_finds_its_own_task(package: Path) -> None:
    (package / "eager.py").write_text(
        f"from django_pgqueue.tasks import registry\n{TASK}\nregistry.declared(post.module_path)"
    )
    import_module("their_app.eager")


def test_an_import_that_takes_long_is_named_in_the_log(
    package: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "SLOW_SECONDS", 0.001)
    (package / "tasks.py").write_text("import their_app\nassert their_app.said.wait(30)\n")
    app = import_module("their_app")
    vars(app)["said"] = threading.Event()
    caplog.set_level(logging.WARNING, "django_pgqueue.worker")
    warn = discovery.logger.warning

    def warn_and_go_on(*args: Any) -> None:
        warn(*args)
        vars(app)["said"].set()

    monkeypatch.setattr(discovery.logger, "warning", warn_and_go_on)
    before = threading.active_count()
    registry.autodiscover()
    assert threading.active_count() == before
    assert "importing module=their_app.tasks takes long, and is at=" in caplog.text


def test_a_lazy_module_is_not_loaded(package: Path) -> None:
    (package / "lazy.py").write_text("raise SystemExit")
    spec = find_spec("their_app.lazy")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules["their_app.lazy"] = module
    spec.loader.exec_module(module)
    with pytest.raises(UnknownTask, match="has no 'post'"):
        registry.find("their_app.lazy.post")


def test_a_lookup_does_not_call_getattr_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_magic")
    module.__dict__["__getattr__"] = lambda name: pytest.fail(f"{name} was asked for")
    monkeypatch.setitem(sys.modules, "their_magic", module)
    with pytest.raises(UnknownTask, match="has no 'anything'"):
        registry.find("their_magic.anything")


def test_a_module_may_have_any_name_under_which_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    # pytest names test modules after their folders, which may not be names that can be written after "import".
    module = ModuleType("their-tests.2nd")
    module.__dict__["send"] = tasks.send
    monkeypatch.setitem(sys.modules, "their-tests.2nd", module)
    assert registry.find("their-tests.2nd.send") is tasks.send


def test_a_lazy_object_is_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_lazy")
    module.__dict__["site"] = SimpleLazyObject(lambda: pytest.fail("it was woken"))
    monkeypatch.setitem(sys.modules, "their_lazy", module)
    with pytest.raises(UnknownTask, match="has a SimpleLazyObject of that name"):
        registry.find("their_lazy.site")


def test_plain_functions_and_coroutine_functions_are_distinguished() -> None:
    assert registry.is_async("tests.support.tasks.do_nothing_async") is True
    assert registry.is_async("tests.support.tasks.do_nothing") is False


@pytest.mark.django_db
class TestTasksOfOtherAliases:
    """A reusable app declares its tasks where it likes; the project sends them through the queue."""

    @pytest.fixture
    def theirs(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
        settings.TASKS = {
            "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": []},
            "dummy": {"BACKEND": DUMMY, "QUEUES": []},
        }
        declared = django_task(backend="dummy", priority=4)(tasks.plain_function)
        assert type(declared) is not PgQueueTask
        monkeypatch.setattr(tasks, "plain_function", declared)
        return declared

    def test_a_plain_task_is_enqueued_reloaded_and_run(self, theirs: Any) -> None:
        result = theirs.using(backend="default", queue_name="mail").enqueue()
        assert (result.backend, result.task.priority, result.task.queue_name) == ("default", 4, "mail")
        assert result.task.get_result(result.id) == result
        [ran] = testing.drain()
        assert (ran.id, ran.status) == (result.id, TaskResultStatus.SUCCESSFUL)
        result.refresh()
        assert result == ran

    def test_a_plain_task_follows_the_options_of_our_backend(self, theirs: Any, settings: Settings) -> None:
        settings.TASKS["default"]["OPTIONS"] = {"MAX_ATTEMPTS": 2}
        settings.TASKS = dict(settings.TASKS)
        result = theirs.using(backend="default").enqueue()
        # What an enqueue refuses: the task has had another parameter when the message was enqueued.
        Message.objects.filter(pk=result.id).update(content={"args": ["too many"], "kwargs": {}})
        assert testing.drain()[0].status is TaskResultStatus.READY
        result.refresh()
        assert result.errors[0].exception_class is TypeError
