"""The cause of an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from psycopg import errors
from psycopg.pq import DiagnosticField, TransactionStatus

from django_pgqueue.consumer.errors import is_of_the_connection, is_refused


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
