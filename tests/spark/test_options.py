"""Options are text: they are checked once, and an error names the option and never a secret."""

from __future__ import annotations

import pickle
import re

import pyarrow as pa
import pytest
from psycopg import OperationalError, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from django_pgqueue.spark import database, fetch, staging
from django_pgqueue.spark.errors import InvalidColumns, InvalidOption, reason
from django_pgqueue.spark.options import PipelineOptions
from django_pgqueue.spark.schema import ATTEMPTS, STEPS
from django_pgqueue.spark.source import PgQueueDataSource
from django_pgqueue.spark.tasks import DeclaredTask
from tests.support.databases import empty_database, migrate, session_in
from tests.support.pages import FOLDER


def test_options_are_named_as_spark_names_them_in_any_case() -> None:
    options = PipelineOptions.of({"maxconnections": "4", "NUMPARTITIONS": "2", "table": "Messages"})
    assert (options.max_connections, options.num_partitions, options.table) == (4, 2, "messages")


@pytest.mark.parametrize(("given", "milliseconds"), [("", "60000"), ("?tcp_user_timeout=5000", "5000")])
def test_a_lost_network_is_found_in_a_minute_or_as_the_url_says(given: str, milliseconds: str) -> None:
    found = conninfo_to_dict(database.reading(PipelineOptions.of({"url": f"postgresql://localhost/shop{given}"})))
    assert found["tcp_user_timeout"] == milliseconds
    idle, interval, count = (int(found[f"keepalives_{name}"] or 0) for name in ("idle", "interval", "count"))
    assert idle + interval * count == 60


def test_an_empty_window_is_no_mistake() -> None:
    moment = "2026-11-01T00:00:00+00:00"
    PipelineOptions.of({"finishedFrom": moment, "finishedTo": moment, "fromTransaction": "7", "toTransaction": "7"})


def test_options_travel_to_executors() -> None:
    options = PipelineOptions.of({"tasks": "a.b, c.d", "columns": "id, queue"})
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tabel": "x"}, "Unknown option 'tabel'. Did you mean table? The options are urlVariable, credentials, url,"),
        ({"password": "hunter2"}, "Unknown option 'password'."),
        ({"table": "jobs"}, "Option table is 'jobs', and must be attempts or messages or steps or"),
        ({"maxConnections": "0"}, "Option maxConnections is '0', and must be a whole number from 1 on."),
        ({"maxRowsPerBatch": "1e6"}, "Option maxRowsPerBatch is '1e6', and must be a whole number from 1 on."),
        ({"columns": "id,colour"}, "Option columns: attempts has no column 'colour'. It has id, message_id,"),
        ({"maxContentBytes": "16777217"}, "is '16777217', and must be a whole number from 1 to 16,777,216."),
        ({"runId": " "}, "Option runId is ' ', and must be some text."),
        ({"tasks": "send receipt"}, "Option tasks is 'send receipt', and must be the result of declared(task, ...)"),
        ({"tasks": '{"a.b": {"colour": 1}}'}, "and must be the result of declared(task, ...)"),
        ({"finishedFrom": "2026-11-01T00:00:00"}, "must be a time with its zone, such as 2026-11-01T00:00:00+00:00"),
        ({"finishedTo": "yesterday"}, "Option finishedTo is 'yesterday', and must be a time with its zone"),
        (
            {"finishedFrom": "2026-10-31T23:00:00Z", "finishedTo": "2026-11-01T00:00:00+02:00"},
            "Option finishedFrom is 2026-10-31 23:00:00+00:00, after finishedTo, which is 2026-11-01 00:00:00+02:00",
        ),
        ({"fromTransaction": "8", "toTransaction": "7"}, "Option fromTransaction is 8, after toTransaction, which is"),
        ({"pushfilters": "yes"}, "Option pushFilters is 'yes', and there is no such option any more: Spark applied"),
        ({"startingOffset": "now"}, "Option startingOffset is 'now', and must be earliest or latest."),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(said)) as caught:
        PipelineOptions.of(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/shop",
        "postgresql://me@db/shop?password=hunter2",
        "host=db user=me password=hunter2",
        "postgresql://me:hunter2@db:port:5/shop",
        "hunter2",
    ],
)
def test_a_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidOption, match="Option url") as caught:
        PipelineOptions.of({"url": url})  # the source's, and those of each step of the pipeline
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_url_without_a_password_is_fine() -> None:
    assert PipelineOptions.of({"url": "postgresql://me@db/shop"}).url == "postgresql://me@db/shop"


def test_text_is_utf8_on_the_way_whatever_the_encoding_of_the_database(
    conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with empty_database(conninfo, "latin", encoding="LATIN1") as latin:
        migrate(latin)
        monkeypatch.setenv("DATABASE_URL", latin)
        address = database.writing(PipelineOptions())
        line = '0\t1\t0\tcafé\t\\N\t\\N\t\\N\t"é"\t\\N\n'
        epoch = staging.Epoch(run_id="latin")
        staging.stage(address, epoch, lambda prefix: [(1, (prefix + line).encode())])
        with session_in(make_conninfo(latin, client_encoding="UTF8")) as session:
            assert session.rows("select queue, length(queue) as long, content from pgqueue_staged") == [
                ("café", 4, "é")
            ]
        schema = pa.schema([("queue", pa.string())])
        [batch] = fetch.batches(address, "select queue from pgqueue_staged", schema)
        assert batch.to_pylist() == [{"queue": "café"}]


@pytest.mark.parametrize("where", ["options=", "PGOPTIONS"])
def test_rows_are_read_where_the_server_quotes_all_names(
    conninfo: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The driver knows a type by the name of its function, and did not find one in quotes."""
    quoting = "-c quote_all_identifiers=on -c search_path=elsewhere"
    if where == "PGOPTIONS":
        monkeypatch.setenv("PGOPTIONS", quoting)
    else:
        conninfo = make_conninfo(conninfo, options=quoting)
    schema = pa.schema([("id", pa.int64()), ("path", pa.string()), ("content", pa.string())])
    statement = "select 7::bigint as id, current_setting('search_path') as path, '[1]'::jsonb as content"
    [batch] = fetch.batches(conninfo, statement, schema)
    assert batch.to_pylist() == [{"id": 7, "path": "elsewhere", "content": "[1]"}]


def test_the_address_of_the_database_is_looked_up_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIN", "postgresql://me@main/shop")
    monkeypatch.setenv("REPLICA", "postgresql://me@replica/shop")
    options = PipelineOptions.of({"urlVariable": "MAIN", "replicaVariable": "REPLICA"})
    assert "host=replica" in database.reading(options)
    assert "host=main" in database.writing(options)
    assert "application_name=pgqueue-spark" in database.writing(options)


def test_a_password_with_an_at_sign_is_not_shown_as_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:secret@hunter2@db/shop")
    with pytest.raises(InvalidOption, match=r"DATABASE_URL has an @ in the name of the host.* written %40") as caught:
        database.writing(PipelineOptions())
    assert "hunter2" not in str(caught.value)
    for address in ("postgresql://me:se@hunter:2@db:5432/shop", "postgresql://me:hunter/2@db/shop"):
        monkeypatch.setenv("DATABASE_URL", address)
        with pytest.raises(InvalidOption, match="DATABASE_URL has a port that is no number") as caught:
            database.writing(PipelineOptions())
        assert "hunter" not in str(caught.value)
    monkeypatch.setenv("DATABASE_URL", "host=@socket dbname=shop")
    assert "host=@socket" in database.writing(PipelineOptions())


def test_a_session_prepares_nothing_which_a_pooler_would_not_find_again(conninfo: str) -> None:
    with database.connect(conninfo) as connection:
        for _ in range(9):
            connection.execute("select 1 + %s", [1])
        assert connection.execute("select name from pg_prepared_statements").fetchall() == []


def provided() -> str:
    return "postgresql://me:hunter2@vault/shop"


def unprovided() -> None:
    return None


def test_a_provider_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@main/shop")
    assert "host=vault" in database.writing(PipelineOptions.of({"credentials": f"{__name__}.provided"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"urlVariable": "NOT_SET"},
            "The environment variable NOT_SET is not set in this process (option urlVariable)",
        ),
        ({"replicaVariable": "NOT_SET"}, "(option replicaVariable)"),
        ({"credentials": "no.such.function"}, "Option credentials: 'no.such.function' cannot be imported here"),
        ({"credentials": "nothing"}, "Option credentials: 'nothing' cannot be imported here"),
        ({"credentials": f"{__name__}.unprovided"}, "must return the URL as text, and returned a NoneType"),
    ],
)
def test_missing_credentials_are_an_error_with_the_next_step(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(said)):
        database.reading(PipelineOptions.of(given))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.ProgramLimitExceeded("content has 67108892 bytes"), "PostgreSQL refused: content has"),
        (errors.AdminShutdown("terminating connection"), "PostgreSQL broke off: terminating"),
        (OperationalError("connection refused"), "PostgreSQL cannot be reached: connection"),
    ],
)
def test_an_error_of_postgresql_says_whether_it_was_reached(error: OperationalError, said: str) -> None:
    assert database.unavailable(error).startswith(said)
    assert str(reason(error)).startswith(said)


def test_declared_tasks_bring_their_options() -> None:
    options = PipelineOptions.of({"tasks": '{"a.b": {"queue": "mail", "priority": 3, "max_attempts": 5}}'})
    assert options.tasks == {"a.b": DeclaredTask(queue="mail", priority=3, max_attempts=5)}


def test_a_custom_schema_must_have_known_columns_and_types() -> None:
    from pyspark.sql.types import StructType

    source = PgQueueDataSource({})
    with pytest.raises(InvalidColumns, match="attempts has no column 'colour'"):
        source.reader(StructType().add("colour", "string"))
    with pytest.raises(InvalidColumns, match="Column 'queue' of attempts is string, but int in the schema"):
        source.reader(StructType().add("queue", "integer"))


def test_a_cut_by_transactions_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(InvalidOption, match="are about attempts, and table is steps"):
        PgQueueDataSource({"table": "steps", "fromTransaction": "7"}).reader(STEPS)
    with pytest.raises(InvalidOption, match="Option toTransaction is 7, and a stream has no end"):
        PgQueueDataSource({"toTransaction": "7"}).streamReader(ATTEMPTS)


def test_the_page_has_every_option_with_its_default() -> None:
    text = (FOLDER / "data" / "spark.md").read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)?[^|]*\|", text, re.MULTILINE)
    assert [name for name, _ in rows] == PipelineOptions.names()
    defaults = PipelineOptions.of({name: default for name, default in rows if default})
    assert defaults == PipelineOptions()
