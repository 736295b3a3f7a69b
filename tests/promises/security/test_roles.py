"""Roles (sql/roles.sql): each can do its work, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml
from psycopg.errors import InsufficientPrivilege

from django_pgqueue import functions
from tests.promises.security.conftest import DROP_FILE, INSTALL, ROLES, ROLES_FILE, UNINSTALL
from tests.promises.security.programs import CONSUMER, PRODUCER, READER
from tests.support.databases import empty_database, psql, sql_files
from tests.support.processes import ROOT
from tests.support.sessions import token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.promises.security.conftest import Guarded
    from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

ALL = {"select", "insert", "update", "delete"}
READ, APPEND, WRITE = {"select"}, {"select", "insert"}, ALL
TABLES: dict[str, dict[str, set[str]]] = {
    "pgqueue_message": {"consumer": {"select", "update", "delete"}},
    "pgqueue_attempt": {"consumer": APPEND},
    "pgqueue_attempt_default": {"admin": READ},
    "pgqueue_worker": {"consumer": WRITE},
    "pgqueue_queue": {"consumer": READ},
    "pgqueue_channel": {"consumer": WRITE},
    "pgqueue_lane": {"consumer": WRITE},
    "pgqueue_arrival": {"consumer": WRITE},
    "pgqueue_ended": {"consumer": WRITE},
    "pgqueue_edit": {"consumer": READ},
    "pgqueue_step": {"consumer": {"select", "insert"}},
    "pgqueue_step_default": {},
    "pgqueue_budget": {"consumer": {"select", "insert", "update"}},
    "pgqueue_child": {"consumer": {"select", "insert", "update"}},
    "pgqueue_event": {"consumer": READ},
    "pgqueue_approval": {"consumer": {"select", "insert"}},
    "pgqueue_schedule": {"consumer": {"select", "insert", "update"}},
    "pgqueue_schedule_slot": {"consumer": WRITE},
    "pgqueue_schedule_declaration": {"consumer": WRITE},
    "pgqueue_exchange": {},
    "pgqueue_binding": {},
    "pgqueue_ledger": {},
    "pgqueue_staged": {},
    "pgqueue_replayed": {},
    "pgqueue_lake": {"consumer": READ},
    "pgqueue_report_hour": {},
    "pgqueue_report_queue": {},
    "pgqueue_report_error": {},
    "pgqueue_rollup": {"consumer": WRITE},
    "pgqueue_rollup_position": {"consumer": WRITE},
}
"""What differs from: the producer nothing, the reader select, the admin all of it."""
RIGHTS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
AS_OWNER = {
    "pgqueue_edit_step",
    "pgqueue_message_create",
    "pgqueue_message_create_many",
    "pgqueue_message_create_unique",
    "pgqueue_message_create_after",
    "pgqueue_message_publish",
    "pgqueue_attempt_maintain",
    "pgqueue_attempt_partition",
    "pgqueue_attempt_drop",
    "pgqueue_step_partition",
    "pgqueue_step_maintain",
    "pgqueue_event_emit",
}
PURE = {"pgqueue_clock", "pgqueue_now", "pgqueue_to_epoch", "pgqueue_from_epoch", "pgqueue_version"}
FOR_PRODUCERS = (
    PURE
    | {name for name in AS_OWNER if name.startswith("pgqueue_message")}
    | {"pgqueue_message_lock_keys", "pgqueue_advisory_lock", "pgqueue_event_emit"}
)
FOR_READERS = PURE | {
    "pgqueue_histogram_sum",
    "pgqueue_message_levels",
    "pgqueue_message_queues",
    "pgqueue_message_next_at",
    "pgqueue_message_parked",
    "pgqueue_message_attention_at",
    "pgqueue_backlog",
    "pgqueue_channel_room",
    "pgqueue_exchange_route",
    "pgqueue_attempt_error_group",
    "pgqueue_version_key",
    "pgqueue_edit_attempts",
    "pgqueue_edit_check",
    "pgqueue_edit_messages",
    "pgqueue_attempt_fingerprint",
}
FUNCTIONS = """
select p.oid, p.oid::regprocedure::text as signature, p.proname::text as name, p.pronargs as arguments,
       p.prosecdef as as_owner, p.proconfig as settings, pg_get_userbyid(p.proowner) as owner,
       array(select format_type(t, null) from unnest(p.proargtypes) as t) as types,
       p.prorettype::regtype::text as returns
from pg_proc p where p.pronamespace = 'public'::regnamespace and p.proname like 'pgqueue\\_%' order by 2
"""


def decisions() -> dict[tuple[str, str | None], str]:
    """What roles.sql says of each function: name and number of arguments, and the role."""
    found = re.findall(r"\('(pgqueue_\w+)', '(\w+)', (?:true|false), (null|\d)\)", sql_files()["roles"])
    return {(name, None if arguments == "null" else arguments): role for name, role, arguments in found}


def test_every_function_has_a_decision(guarded: Guarded) -> None:
    decided = set(decisions())
    with guarded.session() as session:
        there = session.rows(FUNCTIONS)
    undecided = {
        f.signature for f in there if (f.name, None) not in decided and (f.name, str(f.arguments)) not in decided
    }
    assert undecided == set(), "add them to sql/roles.sql"
    assert {name for name, _ in decided} == {f.name for f in there}


def test_every_table_has_a_decision(guarded: Guarded) -> None:
    with guarded.session() as session:
        there = session.column(
            "select relname::text from pg_class where relname ~ '^pgqueue_' and relkind in ('r', 'p') "
            "and relname !~ '_[0-9]{8}$'"
        )
    assert set(there) == set(TABLES)


def test_each_role_has_these_rights_to_tables_and_no_others(guarded: Guarded) -> None:
    with guarded.session() as session:
        partitions = session.column("select relname::text from pg_class where relname ~ '^pgqueue_attempt_[0-9]{8}$'")
        assert partitions
        for role in (*ROLES, "nobody"):
            rights = session.rows(
                "select t.name, array("
                "    select r from unnest(%s::text[]) as r where has_table_privilege(%s, t.name, r)) as has "
                "from unnest(%s::text[]) as t (name)",
                [list(RIGHTS), guarded.login(role), [*TABLES, *partitions]],
            )
            assert {row.name: set(row.has) for row in rights} == {
                table: expected(table, role) for table in (*TABLES, *partitions)
            }


def expected(table: str, role: str) -> set[str]:
    if table not in TABLES or role in ("producer", "nobody"):
        return set()
    if role == "consumer":
        return TABLES[table].get(role, set())
    return TABLES[table].get(role, READ if role == "reader" else ALL)


def test_no_role_has_other_rights_to_a_table(guarded: Guarded) -> None:
    """Tried, and not only looked up."""
    statements = {
        "select": "select from {}",
        "insert": "insert into {0} ({1}) overriding system value select {1} from {0} where false",
        "update": "update {0} set {1} = {1} where false",
        "delete": "delete from {} where false",
        "truncate": "truncate {}",
        "trigger": "create trigger mine before insert on {} for each row execute function pgqueue_message_lane()",
        "drop": "drop table {}",
        "alter": "alter table {} disable trigger all",
        "lock": "lock table {} in access exclusive mode",
    }
    for role in (*ROLES, "nobody"):
        with guarded.session(role, autocommit=False) as session:
            for table in TABLES:
                column = session.one(
                    "select attname::text from pg_attribute where attrelid = %s::regclass and attnum = 2", [table]
                )
                done = tried(session, [statement.format(table, column) for statement in statements.values()])
                rights = expected(table, role)
                may = {right: right in rights for right in statements}
                assert dict(zip(statements, done, strict=True)) == may | {"lock": bool(rights & {"update", "delete"})}


def test_each_role_can_call_its_functions_and_no_others(guarded: Guarded) -> None:
    for role in (*ROLES, "nobody"):
        with guarded.session(role, autocommit=False) as session:
            functions = [function for function in session.rows(FUNCTIONS) if function.returns != "trigger"]
            calls = [called(function) for function in functions]
            refused = [function.signature for function in functions if not is_for(function, role)]
            allowed = session.column(
                "select f::regprocedure::text from unnest(%s::oid[]) as f where has_function_privilege(f, 'execute')",
                [[function.oid for function in functions]],
            )
            assert {function.signature for function in functions} - set(allowed) == set(refused)
            done = dict(zip([f.signature for f in functions], tried(session, calls), strict=True))
            # Called, those that are allowed are not refused inside either.
            assert [signature for signature, was_allowed in done.items() if not was_allowed] == refused


def test_a_reader_may_call_what_the_pages_call() -> None:
    package = ROOT / "django_pgqueue"
    texts = [
        path.read_text()
        for part in ("admin", "metrics", "monitoring/overview")
        for path in (package / part).rglob("*.py")
    ]
    called = set(re.findall(r"\b(pgqueue_\w+)\(", "\n".join(texts)))
    assert "pgqueue_version_key" in called
    assert called & sql_files().keys() <= FOR_READERS


def test_each_role_has_the_rights_that_its_functions_use_in_any_branch(guarded: Guarded) -> None:
    """Read from their texts: a call with nulls does not reach every branch."""
    for role in ROLES:
        with guarded.session(role) as session:
            bodies = session.rows(BODIES)
            for function in bodies:
                if not function.is_allowed or function.as_owner:
                    continue
                text = re.sub(r"--.*|'[^']*'", "", function.body)
                for name, arguments in calls_in(text):
                    fits = [
                        f for f in bodies if f.name == name and f.required <= arguments <= f.arguments and f.is_allowed
                    ]
                    assert fits, f"{role}: {function.signature} calls {name} with {arguments} arguments"
                for right, table in re.findall(
                    r"\b(insert into|update|delete from|from|join) (pgqueue_\w+)\b(?!\s*\()", text
                ):
                    needed = {"insert into": "insert", "delete from": "delete", "update": "update"}.get(right, "select")
                    has = session.one("select has_table_privilege(%s, %s)", [table, needed])
                    assert has, f"{role}: {function.signature} needs {needed} on {table}"


BODIES = """
select p.oid::regprocedure::text as signature, p.proname::text as name, p.prosecdef as as_owner, p.prosrc as body,
       p.pronargs::integer as arguments, (p.pronargs - p.pronargdefaults)::integer as required,
       has_function_privilege(p.oid, 'execute') as is_allowed
from pg_proc p
where p.pronamespace = 'public'::regnamespace and p.proname like 'pgqueue\\_%' and p.prorettype <> 'trigger'::regtype
"""


def calls_in(text: str) -> Iterator[tuple[str, int]]:
    """The functions of the queue that a text calls, with their numbers of arguments."""
    for call in re.finditer(r"\b(pgqueue_\w+)\s*\(", text):
        # insert into pgqueue_x (columns)
        if text[: call.start()].rstrip().endswith("into"):
            continue
        depth, commas, end = 1, 0, call.end()
        while depth:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[end], 0)
            commas += text[end] == "," and depth == 1
            end += 1
        yield call[1], commas + 1 if text[call.end() : end - 1].strip() else 0


def called(function: Any) -> str:
    # A strict function of nulls is not called at all.
    given = (
        {"bigint": "0", "timestamp with time zone": "now()", "text": "''"}
        if function.name in PURE | {"pgqueue_attempt_error"}
        else {}
    )
    arguments = [f"{given.get(type_, 'null')}::{type_}" for type_ in function.types]
    return f"select {function.name}({', '.join(arguments)})"


def is_for(function: Any, role: str) -> bool:
    if role == "nobody":
        return False
    if role == "producer":
        return function.name in FOR_PRODUCERS
    if role == "reader":
        return function.name in FOR_READERS
    if role == "admin":
        return True
    decided = re.findall(rf"\('{function.name}', '(\w+)', \w+, (null|\d)\)", sql_files()["roles"])
    of_consumers = {arguments for decided_role, arguments in decided if decided_role == "consumer"}
    return function.name in FOR_PRODUCERS or bool(of_consumers & {"null", str(function.arguments)})


TRIED = """
create or replace function pg_temp.tried(p_statement text) returns boolean language plpgsql as $$
begin
    execute p_statement;
    raise 'take it back';
exception
    when insufficient_privilege then
        return false;
    when others then
        return true;
end
$$
"""


def tried(session: Session, statements: list[str]) -> list[bool]:
    """Which of the statements were allowed.  What they did is taken back."""
    session.rows(TRIED)
    return session.column(
        "select pg_temp.tried(s.statement) from unnest(%s::text[]) with ordinality as s (statement, n) order by n",
        [statements],
    )


def test_only_listed_functions_run_as_the_owner_with_a_fixed_search_path(guarded: Guarded) -> None:
    with guarded.session() as session:
        there = session.rows(FUNCTIONS)
    assert {f.name for f in there if f.as_owner} == AS_OWNER
    for function in there:
        [path] = [s for s in function.settings or [] if s.startswith("search_path=")] or [None]
        # Those without one name no table, and are looked up in the path of the function that calls them.
        assert path in ("search_path=public, pg_temp", None), function.signature
        assert path or not function.as_owner
        assert function.owner == guarded.login("owner")


def test_no_role_can_create_objects_in_the_schema(guarded: Guarded) -> None:
    for role in (*ROLES, "nobody"):
        with guarded.session(role) as session, pytest.raises(InsufficientPrivilege):
            session.rows("create table mine (id int)")


def test_a_producer_does_not_become_the_owner_by_a_search_path_or_a_temporary_table(guarded: Guarded) -> None:
    """Each of these would be found first, and run with the owner's rights, if the path were not pinned."""
    with guarded.session("producer", autocommit=False) as session:
        session.rows("create temporary table stolen (who text)")
        session.rows("grant all on stolen to public")
        session.rows(
            """
            create function pg_temp.steal() returns trigger language plpgsql as
            $$ begin insert into pg_temp.stolen values (current_user); return new; end $$
            """
        )
        for table in ("pgqueue_message", "pgqueue_worker", "pgqueue_channel", "pgqueue_exchange", "pgqueue_binding"):
            columns = session.one(
                "select string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ') "
                "from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
                [f"public.{table}"],
            )
            session.rows(f"create temporary table {table} ({columns})")
            session.rows(f"grant all on pg_temp.{table} to public")
            session.rows(
                f"create trigger steal before insert on pg_temp.{table} for each row execute function pg_temp.steal()"
            )
        session.rows(
            """
            create function pg_temp.pgqueue_now(p_real timestamptz) returns bigint language plpgsql as
            $$ begin insert into pg_temp.stolen values (current_user); return 0; end $$
            """
        )
        session.rows(
            """
            create function pg_temp.pgqueue_worker_wake(p_queue text, p_tasks boolean) returns void language plpgsql as
            $$ begin insert into pg_temp.stolen values (current_user); end $$
            """
        )
        session.rows("set search_path = pg_temp, public")
        made = [
            session.create("tea", channel="acme"),
            *session.ids("public.pgqueue_message_create_many", messages=[{"content": 1}]),
            *session.ids("public.pgqueue_message_create_unique", unique_key="k", content=1),
            *session.ids("public.pgqueue_message_create_after", after_ids=[1], content=1),
        ]
        for exchange in ("orders", "pg_temp"):
            with pytest.raises(psycopg.errors.UndefinedObject), session.connection.transaction():
                session.call("public.pgqueue_message_publish", exchange=exchange, routing_key="a", content=1)
        assert all(made)
        assert session.rows("select * from stolen") == []
        assert session.one("select count(*) from pg_temp.pgqueue_message") == 0
        session.commit()
    with guarded.session() as session:
        assert {m.id for m in session.messages()} >= set(made)
        session.rows("delete from pgqueue_message")


def test_a_trap_in_the_schema_is_found_before_a_function_gets_owner_rights(guarded: Guarded) -> None:
    traps = (
        "create function public.pgqueue_worker_wake(p_queue text, p_tasks integer) returns void language sql as ''",
        "create table public.pgqueue_trap (id int)",
    )
    for trap in traps:
        with guarded.session() as session:
            session.rows(f'grant create on schema public to "{guarded.login("nobody")}"')
            with guarded.session("nobody") as nobody:
                nobody.rows(trap)
            done = psql(guarded.conninfo, "-f", ROLES_FILE)
            session.rows(f'drop owned by "{guarded.login("nobody")}"')
            assert done.returncode != 0
            assert "objects of other roles: " in done.stderr


def test_a_second_run_by_the_owner_changes_nothing(guarded: Guarded) -> None:
    acls = """
        select p.oid::regprocedure::text as what, p.proacl::text as acl, pg_get_functiondef(p.oid) as text
        from pg_proc p where p.proname like 'pgqueue%'
        union all select c.oid::regclass::text, c.relacl::text, '' from pg_class c where c.relname like 'pgqueue%'
    """

    def described(session: Session) -> list[Any]:
        return sorted((r.what, sorted((r.acl or "").strip("{}").split(",")), r.text) for r in session.rows(acls))

    with guarded.session() as session:
        before = described(session)
        done = psql(guarded.conninfo_of("owner"), "-f", ROLES_FILE)
        assert (done.returncode, done.stderr) == (0, "")
        assert described(session) == before


def test_who_cannot_make_roles_of_the_queue_is_told_so_at_once(guarded: Guarded) -> None:
    foreign = psql(guarded.conninfo_of("admin"), "-f", ROLES_FILE)
    nothing = psql(guarded.conninfo, "-c", "set search_path = pg_catalog", "-f", ROLES_FILE)
    assert (foreign.returncode, nothing.returncode) == (3, 3)
    assert f"ERROR:  The queue belongs to {guarded.login('owner')}, and " in foreign.stderr
    assert "ERROR:  The search_path (pg_catalog) finds no queue." in nothing.stderr
    assert "WARNING" not in foreign.stderr


def test_an_upgrade_grants_nothing_before_roles_are_applied_again(guarded: Guarded) -> None:
    """A function that is made anew has the rights of its caller, and a producer has none."""
    with guarded.session("owner") as owner:
        owner.rows(sql_files()["pgqueue_message_create"])
    try:
        with guarded.session("producer") as producer, pytest.raises(InsufficientPrivilege):
            producer.create()
    finally:
        assert psql(guarded.conninfo, "-f", ROLES_FILE).returncode == 0
    with guarded.session("producer", autocommit=False) as producer:
        assert producer.create()


GRANTED = r"""
select distinct c.relname::text
from pg_class c cross join aclexplode(c.relacl) a join pg_roles r on r.oid = a.grantee
where r.rolname like 'pgqueue\_%'
"""


def test_roles_drop_is_the_way_back(guarded: Guarded) -> None:
    try:
        for _ in range(2):
            done = psql(guarded.conninfo, "-f", DROP_FILE)
            assert done.returncode == 0, done.stderr
        with guarded.session() as session:
            assert not any(f.as_owner for f in session.rows(FUNCTIONS))
            granted = session.column(GRANTED)
            assert granted == []
        with guarded.session("nobody", autocommit=False) as nobody:
            assert nobody.value("pgqueue_now") > 0
            assert tried(nobody, ["select pgqueue_message_create('1')"]) == [False]
    finally:
        assert psql(guarded.conninfo, "-f", ROLES_FILE).returncode == 0
        with guarded.session() as session:
            for role in ROLES:
                session.rows(f'grant pgqueue_{role} to "{guarded.login(role)}"')


SCHEMA_GRANTED = r"""
select r.rolname::text from pg_namespace n cross join aclexplode(n.nspacl) a join pg_roles r on r.oid = a.grantee
where r.rolname like 'pgqueue\_%'
"""


@pytest.mark.parametrize("schema", ["public", "Its jobs"])
def test_roles_drop_may_come_after_uninstall(guarded: Guarded, schema: str) -> None:
    """guarded: only so that its roles, which belong to the whole server, outlive this test."""
    inside = ("-c", f'create schema if not exists "{schema}"', "-c", f'set search_path = "{schema}"')
    with empty_database(guarded.conninfo, "removed") as removed:
        installed = psql(removed, *inside, "-f", INSTALL, "-f", ROLES_FILE)
        assert installed.returncode == 0, installed.stderr
        elsewhere = psql(removed, "-c", "set search_path = pg_catalog", "-f", DROP_FILE)
        assert elsewhere.returncode == 3
        assert "finds no queue, and there is one in the schema" in elsewhere.stderr
        assert schema in elsewhere.stderr
        assert psql(removed, *inside, "-f", UNINSTALL).returncode == 0
        with psycopg.connect(removed, autocommit=True) as session:
            assert session.execute(SCHEMA_GRANTED).fetchall() != []
            for _ in range(2):
                done = psql(removed, "-f", DROP_FILE)
                assert done.returncode == 0, done.stderr
            assert session.execute(SCHEMA_GRANTED).fetchall() == []
        assert psql(removed, *inside, "-f", INSTALL, "-f", ROLES_FILE).returncode == 0


def test_raw_messages_work_in_sql_alone(guarded: Guarded) -> None:
    """Raw messages, from psql or any language, from the first to the last."""
    with (
        guarded.session("producer") as producer,
        guarded.session("consumer") as consumer,
        guarded.session("reader") as reader,
        guarded.session("admin") as admin,
    ):
        admin.value("pgqueue_channel_set", name="acme", max_concurrency=1)
        admin.value("pgqueue_exchange_declare", name="orders")
        admin.call("pgqueue_binding_declare", exchange="orders", pattern="#", queue="mail")
        first = producer.create("first", channel="acme")
        [published] = producer.call("pgqueue_message_publish", exchange="orders", routing_key="a.b", content="second")
        taken = consumer.dequeue(5)
        assert {m.id for m in taken} == {first, published.p_id}
        assert consumer.value("pgqueue_message_complete", **token(taken[0])) is True
        assert consumer.value("pgqueue_message_fail", **token(taken[1]), error={"class": "E"}) is True
        assert sorted(row.status for row in reader.history()) == ["failed", "succeeded"]
        again = admin.ids("pgqueue_attempt_enqueue", attempt_ids=[row.id for row in admin.history()])
        assert len(again) == 2
        assert sorted(admin.ids("pgqueue_message_cancel", ids=again)) == sorted(again)
        assert consumer.value("pgqueue_attempt_maintain", days_ahead=9) > 0
        assert admin.value("pgqueue_exchange_delete", name="orders") is True
        assert admin.value("pgqueue_channel_release", name="acme") is not None
        admin.rows("delete from pgqueue_attempt")


@pytest.mark.parametrize("roles", [["pgqueue_consumer", "none"], ["none", "pgqueue_consumer"]])
def test_the_name_of_a_session_does_not_depend_on_its_role(guarded: Guarded, roles: list[str]) -> None:
    """A role of ``set role`` may not see when the session of the login has begun."""
    with guarded.session("producer") as producer, guarded.session("consumer") as consumer:
        message_id = producer.create("tea", queue="named")
        before, after = roles
        consumer.rows(f"set role {before}")
        held = consumer.take(queues=["named"])
        consumer.rows(f"set role {after}")
        assert held.worker == consumer.one("select pgqueue_session_worker()")
        assert held.worker.endswith(f"-{consumer.pid}")
        assert consumer.value("pgqueue_message_complete", id=message_id, attempt=held.attempt) is True


def test_a_reader_feeds_the_autoscaler_and_a_consumer_rests(guarded: Guarded) -> None:
    """The reader with the query of the example for KEDA: it gives one number."""
    scaled = next(yaml.safe_load_all((ROOT / "docs" / "deploy" / "keda.yaml").read_text()))
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    with (
        guarded.session("producer") as producer,
        guarded.session("consumer") as consumer,
        guarded.session("reader") as reader,
    ):
        assert reader.one(query) == 0
        producer.create(task="t")
        producer.create(task="t", queue="elsewhere")
        assert reader.one(query) == 1
        consumer.call(
            "pgqueue_worker_seen", id="w", queues=None, exclude_queues=[], hostname="h", pid=1, slots=1, asleep_ms=1000
        )
        said = functions.worker_rest(
            consumer.connection,
            worker="w",
            queues=None,
            exclude_queues=(),
            schedules=[],
            silent_ms=9000,
            asleep_ms=9000,
        )
        assert said is not None
        assert said.due_at is not None
        functions.transactions_are_over(consumer.connection, functions.open_transactions(consumer.connection))
        producer.create(task="t", dequeue_at=said.now + 1000)
        for table in ("message", "worker"):
            with guarded.session() as owner:
                owner.rows(f"delete from pgqueue_{table}")


def run(guarded: Guarded, who: str, *arguments: str, text: str | None = None, code: int = 0) -> str:
    """A Django process that logs in as ``who``."""
    command = ["-m", "tests.support.site.manage", *arguments] if text is None else ["-c", text, *arguments]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=guarded.environment(who),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_burst_that_may_not_claim_ends_with_an_exit_code(guarded: Guarded, processes: str) -> None:
    """Who starts one each minute would have more and more of them."""
    said = run(guarded, "reader", "qworker", "--burst", "--processes", processes, code=1)
    assert "claim: permission denied" in said
    assert "crashed" not in said


@pytest.mark.slow
def test_a_worker_whose_login_has_no_role_is_told_so(guarded: Guarded) -> None:
    said = run(guarded, "nobody", "qworker", code=1)
    assert said == (
        "CommandError: The login of the database 'default' may not do this (permission denied for function "
        "pgqueue_clock). sql/roles.sql says which role may, and manage.py qdoctor what this login lacks.\n"
    )


@pytest.mark.slow
def test_a_project_runs_with_a_login_for_each_role(guarded: Guarded) -> None:
    """Everything that a web process enqueues, a real worker that runs it, and a reader who sees it."""
    with guarded.session("admin") as admin:
        admin.value("pgqueue_channel_set", name="full", max_size=0)
        admin.value("pgqueue_exchange_declare", name="orders")
        admin.call("pgqueue_binding_declare", exchange="orders", pattern="#", queue="mail")
    assert "all enqueued" in run(guarded, "producer", text=PRODUCER)
    said = run(guarded, "consumer", "qworker", "--burst", "--processes", "1", "--threads", "2")
    assert "rror" not in said, said
    assert "all consumed" in run(guarded, "consumer", text=CONSUMER)
    assert "all read" in run(guarded, "reader", text=READER)
    with guarded.session("admin") as admin:
        assert admin.messages() == []
        assert {row.status for row in admin.history()} == {"succeeded", "deferred"}
        admin.rows("delete from pgqueue_attempt")
        admin.value("pgqueue_exchange_delete", name="orders")
