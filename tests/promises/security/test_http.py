"""Each page of the admin, each kind of person, and requests that no browser would send.

A minute of them with the tests; as long as you like with PGQUEUE_FUZZ_SECONDS=3600.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.core.signals import got_request_exception
from django.db import transaction

from django_pgqueue.tasks import registry, task
from tests.promises.security import website
from tests.promises.security.website import (
    GLOBAL_PAGES,
    LOUD_TASK,
    QUIET_TASK,
    SECRET,
    Attacker,
    Person,
    Request,
    state,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = [
    "anonymous",
    "nobody of the staff",
    "staff without permissions",
    "who may view",
    "who may view and see content",
    "who may do everything but see content",
    "a superuser",
]
LOOK_CLOSELY = {"who may view", "who may do everything but see content"}
"""They get pages, and none of the secrets."""
ROUNDS = 1
"""So many hostile requests to each page by each kind of person, always the same."""
SECONDS = float(os.environ.get("PGQUEUE_FUZZ_SECONDS", "0"))
"""Others each time, for so long: 3600 is an hour for all kinds of people together."""
FIRST_SEED = 18
FINE = {200, 302, 400, 403, 404, 405}
SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}


def noted(card: str = "", *more: Any) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def vault() -> Iterator[None]:
    module = ModuleType("vault")
    for path, options in ((QUIET_TASK, {"sensitive": True}), (LOUD_TASK, {})):
        name = path.rpartition(".")[2]
        function = FunctionType(noted.__code__, noted.__globals__, name, noted.__defaults__)
        function.__module__, function.__qualname__ = "vault", name
        setattr(module, name, task(function, **options))  # type: ignore[call-overload]
    sys.modules["vault"] = module
    yield
    del sys.modules["vault"]
    registry.find.cache_clear()


@pytest.fixture
def errors() -> Iterator[list[Any]]:
    """What was raised on the way to an answer of 500."""
    raised: list[Any] = []

    def note(**_: Any) -> None:
        raised.append(sys.exc_info()[1])

    got_request_exception.connect(note)
    yield raised
    got_request_exception.disconnect(note)


def seeds(kind: str) -> Iterator[int]:
    yield FIRST_SEED + KINDS.index(kind)
    until = time.monotonic() + SECONDS / len(KINDS)
    while time.monotonic() < until:
        yield secrets.randbelow(2**32)


@pytest.mark.timeout(0 if SECONDS else 600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_request_breaks_a_page_shows_a_secret_or_changes_forbidden_rows(
    db: None, kind: str, errors: list[Any]
) -> None:
    website.furnish()
    person = website.people()[kind]
    before = state()
    for seed in seeds(kind):
        attacker = Attacker(seed)
        wrong = []
        for route, model in [*website.pages(), *((page, "") for page in GLOBAL_PAGES)]:
            for request in attacker.requests(route, model, ROUNDS, usual=kind in LOOK_CLOSELY):
                with transaction.atomic():
                    found = problem(person, request, errors, before)
                    transaction.set_rollback(True)
                if found:
                    wrong.append(f"{found}: {request}"[:900])
        assert not wrong, f"with the seed {seed}:\n" + "\n\n".join(wrong)


def test_permitted_users_see_the_secrets(db: None) -> None:
    """Else the fuzzer would find nothing wherever it looks."""
    website.furnish()
    auditor = website.people()["who may view and see content"]
    keys = website.keys()
    for model in ("message", "attempt", "schedule"):
        shown = [auditor.client.get(f"/admin/django_pgqueue/{model}/{key}/change/") for key in keys[model]]
        assert any(SECRET in told(answer) for answer in shown), model
    for address in ("attempt/", "message/", "attempt/errors/", "attempt/?error_class=4711"):
        assert SECRET in told(auditor.client.get(f"/admin/django_pgqueue/{address}")), address


def problem(person: Person, request: Request, errors: list[Any], before: list[Any]) -> str | None:
    errors.clear()
    response = request.send(person.client)
    if response.status_code not in FINE:
        return f"{response.status_code} {errors[-1:]!r}"
    if (request.method in SAFE or not person.may_write) and (after := state()) != before:
        changed = [one[0] for one, other in zip(after, before, strict=True) if one != other]
        return f"changed {changed}"
    said = told(response)
    if (
        response.status_code == 302
        and response["Location"].startswith("/admin/")
        and "logout" not in response["Location"]
    ):
        following = person.client.get(response["Location"])
        if following.status_code not in FINE:
            return f"{following.status_code} after {response['Location']} {errors[-1:]!r}"
        said += told(following)
    if not person.sees_content and SECRET in said:
        return "shows a secret"
    return None
