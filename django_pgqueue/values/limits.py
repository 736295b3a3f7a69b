"""What a message may have at most.  Spark's executors import these limits: no Django, and nothing of this package."""

from __future__ import annotations

MAX_NAME_BYTES = 255
"""The tables have the same limit: names fit into an index, a notification and a line of a log."""
CONTROL_CHARACTER = r"[\x00-\x1f\x7f]"
"""Names have none."""
MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_MAX_ATTEMPTS = 1_000_000
"""No retries without end, and far from what the column can hold: it grows with each defer."""
