"""A consumer's row in pgqueue_worker: its name, and how often it is refreshed."""

from __future__ import annotations

import os
import re
import secrets
import socket

SEEN_EVERY_SECONDS = 4.0
SEEN_HOLDING_SECONDS = 2.0
"""The same while it holds messages: the longer ago it was seen, the shorter a break of its connection may be before
others take it for dead."""
ASLEEP_MS = int(2.5 * SEEN_EVERY_SECONDS * 1000)
"""Who wakes the sleepers believes a row for this long after its last refresh."""


def hostname() -> str:
    """Returns the name of this host.  The system allows any bytes in it, and a row of PostgreSQL does not."""
    return re.sub("[^!-~]", "?", socket.gethostname())[:255]


def new_id() -> str:
    """Returns an id for a consumer that starts now."""
    # Unique for each start: a server crash may undo a claim and hand the same attempt out again.
    return f"{hostname()[:30]}-{os.getpid()}-{secrets.token_hex(4)}"
