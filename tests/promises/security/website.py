"""The admin as somebody hostile finds it: its pages, people who visit them, and requests that no browser would send."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgqueue import functions

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "4711secret0815"
"""What sensitive jobs say, and what their errors quote."""
QUIET_TASK, LOUD_TASK = "vault.pay", "vault.print"
NAMES = ["default", "with/slash", "_0A", 'a"b<c>', "..", "é?#%00&x=1", "x" * 250]
HELD = "vault"
FOREVER_MS = 2**50
GLOBAL_PAGES = ["/admin/", "/admin/django_pgqueue/", "/admin/autocomplete/", "/admin/jsi18n/", "/admin/r/1/1/"]


def furnish() -> None:
    """Rows on every page: of a task with sensitive arguments, of another one, and with names that are hard to quote."""
    said = json.dumps({"args": [SECRET], "kwargs": {"card": SECRET, SECRET: 1}})
    more = json.dumps({"card": SECRET})
    for number, queue in enumerate(NAMES):
        for path in (QUIET_TASK, LOUD_TASK, None):
            _send(said, queue=queue, task=path, headers=more, priority=number, channel=queue)
            if path is not None:
                _send(said, queue=HELD, task=path, headers=more)
    held = functions.message_dequeue(connection, queues=[HELD], limit=50, lock_ms=10**11, worker="worker-1", tasks=True)
    assert len(held) == 2 * len(NAMES)
    for number, message in enumerate(held[:10]):
        functions.message_progress(connection, message, more)
        words = f"the card {SECRET} was refused" if message.task == QUIET_TASK else "the printer is out of paper"
        trace = f'Traceback\n  File "/srv/vault.py", line 7, in pay\n{words}'
        error = functions.Error(message=words, error_class=f"errors.Of{message.task}", traceback=trace)
        if number % 3 == 0:
            functions.message_defer(connection, message, error=error, state=more, dequeue_at=FOREVER_MS)
        elif number % 3 == 1:
            functions.message_fail(connection, message, error=error)
        else:
            success = functions.Success(message.id, message.attempt, more)
            functions.message_complete(connection, [success], worker="worker-1")
    for name in NAMES:
        functions.exchange_declare(connection, name)
        _insert("pgqueue_queue", name=name, paused_at="now", paused_by="somebody")
        _insert("pgqueue_schedule", name=name, next_at=FOREVER_MS, task=LOUD_TASK, cron="* * * * *", content=said)
        _insert(
            "pgqueue_worker", id=name[:50], hostname="web1", pid=1, slots=4, seen_at="now", started_at="now", tasks=True
        )


def _send(content: str, **more: Any) -> None:
    functions.enqueue(connection, functions.NewMessage(content=content, **more))


def _insert(table: str, **columns: Any) -> None:
    with connection.cursor() as cursor:
        names, places = ", ".join(columns), ", ".join(["%s"] * len(columns))
        cursor.execute(f"insert into {table} ({names}) values ({places}) on conflict do nothing", [*columns.values()])


TABLES = (
    "pgqueue_message", "pgqueue_attempt", "pgqueue_queue", "pgqueue_channel", "pgqueue_schedule", "pgqueue_exchange",
    "pgqueue_binding", "pgqueue_worker", "pgqueue_report_hour",
    "django_admin_log", "auth_user", "auth_user_user_permissions",
)  # fmt: skip


def state() -> list[Any]:
    """What is in the tables, without the sessions and the last log-in."""
    rows = "md5(coalesce(string_agg(t::text, ';' order by t::text), ''))"
    asked = " union all ".join(f"select '{table}', {rows} from {table} t" for table in TABLES)
    with connection.cursor() as cursor:
        cursor.execute(f"{asked} order by 1")
        return list(cursor.fetchall())


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    name: str
    client: Client
    may_write: bool = False
    sees_content: bool = False


SEES = "see_content"


def people() -> dict[str, Person]:
    codenames = set(
        Permission.objects.filter(content_type__app_label="django_pgqueue").values_list("codename", flat=True)
    )
    views = {name for name in codenames if name.startswith("view_")}
    kinds = {
        "nobody of the staff": set(),
        "staff without permissions": set(),
        "who may view": views,
        "who may view and see content": views | {SEES},
        "who may do everything but see content": codenames - {SEES},
    }
    found = {"anonymous": Person(name="anonymous", client=_client())}
    for number, (name, permissions) in enumerate(kinds.items()):
        user = User.objects.create_user(f"user-{number}", is_staff=number > 0)
        user.user_permissions.set(
            Permission.objects.filter(content_type__app_label="django_pgqueue", codename__in=permissions)
        )
        found[name] = Person(
            name=name, client=_client(user), may_write="everything" in name, sees_content=SEES in permissions
        )
    root = User.objects.create_superuser("root")
    found["a superuser"] = Person(name="a superuser", client=_client(root), may_write=True, sees_content=True)
    return found


def _client(user: User | None = None) -> Client:
    client = Client(raise_request_exception=False)
    if user is not None:
        client.force_login(user)
    return client


def pages() -> list[tuple[str, str]]:
    """The address of each page of the package, as the admin site has it, with a place for the key; and its model."""
    found = []
    for model, page in admin.site._registry.items():
        if model._meta.app_label != "django_pgqueue":
            continue
        start = reverse(f"admin:django_pgqueue_{model._meta.model_name}_changelist")
        for pattern in page.get_urls():
            route = str(pattern.pattern)
            assert route.count("<") <= 1, route
            found.append((start + route.replace("<path:object_id>", "{key}"), str(model._meta.model_name)))
    return found


def keys() -> dict[str, list[str]]:
    """The keys of the rows of each model, as they stand in an address."""
    return {
        str(model._meta.model_name): [str(quote(pk)) for pk in model._default_manager.values_list("pk", flat=True)[:40]]
        for model in admin.site._registry
        if model._meta.app_label == "django_pgqueue" and not model._meta.proxy
    }


def each(text: str) -> list[str]:
    return text.split()


STRANGE_KEYS = [
    *each("0 -1 _0A _00 %FF %C3%28 %00 %0A 1.5 NaN _ __ _5B_5D %ED%A0%80 ../.. a/b/c change %2e%2e%2f %F0%9F%98%80"),
    " ",
    "9" * 19,
    "9" * 400,
    "x" * 3000,
]
STRANGE = [
    "",
    *each("0 1 -1 %00 a%00b %FF%FE %ED%A0%80 %C3%28 % %% %25 _ ' %27%20or%201=1-- 1.5 0x10 1_000 %D9%A3 1,2,3 , []"),
    *(str(number) for number in (2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400)),
    *each("1e999 -1e999 NaN infinity -infinity null true True yes on %7B%7D %5B%22a%22%5D %7B%22%24ne%22%3A1%7D"),
    *each("0000-00-00 0001-01-01 9999-12-31 10000-01-01 2026-02-30 2026-13-01 2026-03-29 1970-01-01T00:00:00 now"),
    *each("25:61:61 00:00:00 02:30:00 23:59:60 ( * (((( %F0%9F%98%80 %E2%80%AE %3Cscript%3E ..%2F"),
    *each("status ready failed running default other nowhere 2.-2.99999999999999999999.x -0 1.1.1"),
    "a" * 5000,
]
"""Values as they stand in an address."""
DJANGO_NAMES = each("""
    o q p all e _popup _to_field _facets _source_model _changelist_filters ot database period routing_key newest term
    app_label model_name field_name next
""")
LOOKUPS = each("""
    __exact __range __gte __in __isnull __year __regex __date__gte __kwargs__card __range__gte_0 __range__gte_1
    __range__lte_0 __range__lte_1 __range__gte __range__lte
""")
USUAL = ["q=word", "q=1", "p=2", "o=1", "status=ready&p=1", "e=1"]
METHODS = ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "PROPFIND"]
ACTIONS = each("run_now postpone cancel enqueue_again pause resume release delete_selected __class__")
POSTED = each("""
    action _selected_action select_across index confirmed delay newest page queue post _save _continue _addanother
    _saveasnew priority dequeue_at name task args kwargs cron interval timezone catch_up max_attempts max_concurrency
    max_size release_interval_ms exchange kind pattern _popup _to_field form-TOTAL_FORMS csrfmiddlewaretoken content
""")
KINDS = [
    *["application/x-www-form-urlencoded"] * 8,
    "application/x-www-form-urlencoded; charset=x",
    "application/json",
    "multipart/form-data; boundary=x",
    "text/plain; charset=utf-7",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    url: str
    body: bytes = b""
    kind: str = "application/x-www-form-urlencoded"

    def send(self, client: Client) -> Any:
        return client.generic(self.method, self.url, self.body, self.kind)


class Attacker:
    """Makes requests by chance, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # the same again
        self.keys = keys()
        self.names = self._names()

    def _names(self) -> dict[str, list[str]]:
        models = [model for model in admin.site._registry if model._meta.app_label == "django_pgqueue"]
        return {str(model._meta.model_name): [field.name for field in model._meta.get_fields()] for model in models}

    def requests(self, route: str, model: str, number: int, *, usual: bool) -> Iterator[Request]:
        """The page as it is, so many hostile requests, and what every list is asked for."""
        yield Request(method="GET", url=self.address(route, model))
        if usual and "{key}" not in route:
            yield from (Request(method="GET", url=f"{route}?{query}") for query in USUAL)
        for _ in range(number):
            url = self.address(route, model) + self.query(model)
            dice = self.random.random()
            if dice < 0.6:
                yield Request(method="GET", url=url)
            elif dice < 0.92:
                yield Request(method="POST", url=url, body=self.body(model), kind=self.random.choice(KINDS))
            else:
                yield Request(method=self.random.choice(METHODS), url=url, body=self.body(model))

    def address(self, route: str, model: str) -> str:
        if "{key}" not in route:
            return route
        there = self.keys.get(model) or ["1"]
        key = self.random.choice(STRANGE_KEYS) if self.random.random() < 0.3 else percent(self.random.choice(there))
        return route.replace("{key}", key)

    def query(self, model: str) -> str:
        pairs = [f"{self.name(model)}={self.value()}" for _ in range(self.random.choice([0, 1, 1, 1, 2, 3]))]
        return f"?{'&'.join(pairs)}" if pairs else ""

    def name(self, model: str) -> str:
        if self.random.random() < 0.35:
            return self.random.choice(DJANGO_NAMES)
        own = [*self.names.get(model, ["id"]), "status", "declared", "paused", "duration", "wait", "pk"]
        return self.random.choice(own) + self.random.choice(["", *LOOKUPS])

    def value(self) -> str:
        return self.random.choice(STRANGE)

    def body(self, model: str) -> bytes:
        chosen = self.keys.get(model) or ["1"]
        pairs = [("action", self.random.choice(ACTIONS)), ("_selected_action", percent(self.random.choice(chosen)))]
        pairs += [("index", "0")] * self.random.randrange(2) + [("confirmed", "yes"), ("post", "yes")]
        pairs = [pair for pair in pairs if self.random.random() < 0.8]
        pairs += [(self.random.choice(POSTED), self.value()) for _ in range(self.random.randrange(8))]
        return "&".join(f"{name}={value}" for name, value in pairs).encode()


def told(response: Any) -> str:
    """Everything that an answer says, its cookies among it."""
    body = b"" if response.streaming else response.content
    return f"{response.headers} {response.cookies} {body.decode(errors='replace')}"
