"""The cause of an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import OperationalError, connect, errors
from psycopg.pq import DiagnosticField, TransactionStatus

from django_pgqueue.consumer.errors import first_line, is_of_the_connection, is_refused


@pytest.mark.parametrize("function", ["GetNewTransactionId", "GetNewMultiXactId"])
def test_before_a_wraparound_no_value_is_at_fault(function: str) -> None:
    """The server then writes nothing until it has been vacuumed: an end that it refuses is no failure of the job."""
    connection: Any = SimpleNamespace(broken=False, info=SimpleNamespace(transaction_status=TransactionStatus.IDLE))
    info: Any = {DiagnosticField.SOURCE_FUNCTION: function.encode()}
    wraparound = errors.ProgramLimitExceeded("is not accepting commands", info=info)
    assert not is_refused(wraparound)
    assert is_of_the_connection(connection, wraparound)
    too_large = errors.ProgramLimitExceeded("string too long", info={DiagnosticField.SOURCE_FUNCTION: b"to_jsonb"})
    assert is_refused(too_large)
    assert not is_of_the_connection(connection, too_large)


def test_the_line_of_an_error_has_the_reason_of_each_address() -> None:
    """A login that the primary refuses, and a standby that is away: psycopg begins with the last address."""
    with pytest.raises(OperationalError) as caught:
        connect("host=127.0.0.1,127.0.0.1 port=1,2 dbname=postgres user=nobody")
    refused = 'connection failed: connection to server at "127.0.0.1", port {} failed: Connection refused'
    assert first_line(caught.value) == f"{refused.format(1)}; {refused.format(2)}"
