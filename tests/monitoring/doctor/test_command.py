"""``manage.py qdoctor``: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from django_pgqueue.monitoring.doctor import Finding, Kind, Severity, Subject, examination
from django_pgqueue.monitoring.doctor.examination import Check
from tests.support.fixtures.admin import send
from tests.support.fixtures.terminal import environment  # noqa: F401 -- a fixture
from tests.support.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db


def found_by(severity: Severity | None) -> Check:
    def look(patient: Subject) -> Iterator[Finding]:
        if severity is not None:
            yield Finding(
                name="some-finding",
                severity=severity,
                found="There is \x1b[2J something, " + "and more of it, " * 20,
                remedy="Do something.",
                command="select something();",
                values={"pid": 42},
            )

    return Check("something", look)


def run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("qdoctor", *arguments, stdout=out, no_color=True)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.parametrize(
    ("severity", "level", "code"),
    [
        (None, "info", 0),
        (Severity.INFO, None, 0),
        (Severity.INFO, "info", 1),
        (Severity.WARNING, None, 0),
        (Severity.WARNING, "warning", 1),
        (Severity.ERROR, None, 1),
        (Severity.ERROR, "never", 0),
    ],
)
def test_the_exit_code_is_for_ci(
    monkeypatch: pytest.MonkeyPatch, severity: Severity | None, level: str | None, code: int
) -> None:
    monkeypatch.setattr(examination, "CHECKS", [found_by(severity)])
    assert run(*(["--fail-level", level] if level else []))[0] == code


def test_a_finding_is_printed_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "CHECKS", [found_by(Severity.INFO), found_by(Severity.ERROR)])
    monkeypatch.setenv("COLUMNS", "80")
    code, said = run()
    lines = said.splitlines()
    assert code == 1
    assert lines[:3] == ["default: 1 error, 1 info", "", "ERROR some-finding"], "the worst first"
    assert lines[3].startswith("  There is \\x1b[2J something, and more of it,")
    assert max(map(len, lines)) <= 100
    assert "  Do something." in lines
    assert "  psql=> select something();" in lines


def test_a_queue_without_findings_prints_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "CHECKS", [found_by(None)])
    assert run() == (0, "default: nothing is wrong (1 checks).\n")


def test_programs_get_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "CHECKS", [found_by(Severity.WARNING)])
    code, said = run("--json")
    document: dict[str, Any] = json.loads(said)
    [finding] = document.pop("findings")
    assert (code, document) == (0, {"database": "default", "checks": 1})
    assert (finding["name"], finding["severity"], finding["values"]) == ("some-finding", "warning", {"pid": 42})


def test_a_failing_check_does_not_hide_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(patient: Subject) -> Iterator[Finding]:
        patient.rows("select 1/0")
        yield Kind("never", Severity.INFO, "").found("")

    monkeypatch.setattr(examination, "CHECKS", [Check("what breaks", breaks), found_by(Severity.INFO)])
    _, said = run()
    assert "WARNING could-not-look\n  What breaks: division by zero" in said
    assert "INFO some-finding" in said


def test_all_checks_run_on_a_queue_in_use() -> None:
    send()
    _, said = run("--json")
    assert "could-not-look" not in said


def test_an_unreadable_database_is_an_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        CommandError, match=r"names no queue in the database 'nowhere' \(it names: default\)"
    ) as refused:
        run("--database", "nowhere")
    assert refused.value.returncode == 2

    def gone(self: Subject) -> bool:
        raise OperationalError

    monkeypatch.setattr(Subject, "has_queue", property(gone))
    with pytest.raises(CommandError, match="The database 'default' cannot be reached") as away:
        run()
    assert away.value.returncode == 2


def test_a_database_that_is_not_in_databases_is_named(settings: Settings) -> None:
    options = {"DATABASE": "elsewhere"}
    settings.TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "OPTIONS": options}}
    with pytest.raises(CommandError, match=r"DATABASES has no 'elsewhere'\. Name one of default") as refused:
        run()
    assert refused.value.returncode == 2


def test_progress_is_shown_in_a_terminal_and_erased(environment: dict[str, str]) -> None:  # noqa: F811
    window = Window("qdoctor", "--fail-level", "never", environment=environment)
    window.shows("checking ")
    assert window.ends() == 0
    assert "default: " in window.seen


def test_findings_of_one_kind_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(patient: Subject) -> Iterator[Finding]:
        for number in range(30):
            yield Finding(
                name="dead", severity=Severity.WARNING, found=f"Worker {number:02} is dead.", remedy="Bury it.",
                command=f"select bury({number});",
            )  # fmt: skip

    monkeypatch.setattr(examination, "CHECKS", [Check("many", many), found_by(Severity.ERROR), found_by(Severity.INFO)])
    _, said = run()
    lines = said.splitlines()
    assert lines[0] == "default: 1 error, 30 warnings, 1 info"
    told = lines[lines.index("WARNING dead (30)") :]
    assert told[1:3] == ["  Worker 00 is dead.", "  psql=> select bury(0);"]
    assert told[9:13] == [
        "  Worker 04 is dead.",
        "  psql=> select bury(4);",
        "  … and 25 more, which --json prints.",
        "  Bury it.",
    ]
    _, said = run("--json")
    assert sum(finding["name"] == "dead" for finding in json.loads(said)["findings"]) == 30
