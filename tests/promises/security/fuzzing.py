"""How long the fuzzers run: some seconds with the other tests, always with the same examples; as long as you like with
PGQUEUE_FUZZ_EXAMPLES=20000, and then with new ones each time.  For the SQL (test_sql_fuzzer.py) it says how many calls
each role makes."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings, strategies as st

ASKED = os.environ.get("PGQUEUE_FUZZ_EXAMPLES")


def fuzz(few: int) -> settings:
    return settings(
        max_examples=int(ASKED or few),
        derandomize=ASKED is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
"""What a column of PostgreSQL can hold."""
