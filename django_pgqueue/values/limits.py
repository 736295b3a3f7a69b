"""Limits of a message.  Spark's executors import this module, so it imports neither Django nor this package."""

from __future__ import annotations

MAX_NAME_BYTES = 255
"""Limit of names, also in the tables: with it, names fit into an index, a notification and a log line."""
CONTROL_CHARACTER = r"[\x00-\x1f\x7f]"
"""Pattern of the characters that names must not have."""
MAX_STORED_BYTES = 16_777_216
"""Limit of content, headers, state, progress and results, each as the text that PostgreSQL prints of its jsonb: as in
pgqueue_message_readable."""
MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_MAX_ATTEMPTS = 1_000_000
"""Limit that stops endless retries.  It is far below the maximum of the column, whose value each defer raises."""
DEFAULT_MAX_LOST, MAX_MAX_LOST = 20, 32_767
"""Times that workers may die while they run a message, where it sets no number: as in pgqueue_message_lose.  The limit
is that of the column."""
MAX_IDLE_POLL_SECONDS = 3600
"""pgqueue_worker_wake_by relies on it: what is due later than that wakes nobody."""
