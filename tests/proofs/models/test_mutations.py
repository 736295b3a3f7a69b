"""Each way to break the SQL is one of today's text: a mutation that changes nothing would prove nothing."""

from __future__ import annotations

import pytest

from tests.proofs.models.mutations import MUTATIONS
from tests.support.databases import sql_files


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_changes_the_current_text(name: str) -> None:
    mutation = MUTATIONS[name]
    assert mutation.text() != sql_files()[mutation.file]
