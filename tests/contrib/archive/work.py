"""What the tasks do, whoever runs them: each effect is noted, so that it can be counted."""

from __future__ import annotations

import threading
from typing import Any

EFFECTS: list[tuple[Any, ...]] = []
LOCK = threading.Lock()
REFUSED_ONCE: set[str] = set()

SCHEDULES = {
    "Check all e-mail accounts": ("process_mail_accounts", "*/10 * * * *", 9 * 60),
    "Train the classifier": ("train_classifier", "5 */1 * * *", 59 * 60),
    "Optimize the index": ("index_optimize", "0 0 * * *", 23 * 3600),
    "Perform sanity check": ("sanity_check", "30 0 * * sun", (7 * 24 - 1) * 3600),
}
"""The schedules by name: task, crontab, and the seconds after which a job that has not begun expires."""


class Unreadable(Exception):
    """Nobody can read the attachment."""


class Refused(Exception):
    """The other server has too much to do."""


def note(*effect: Any) -> None:
    with LOCK:
        EFFECTS.append(effect)


def consume_file(path: str) -> str:
    if path.endswith(".exe"):
        raise Unreadable(path)
    note("consumed", path)
    return f"Success. New document id {path} created"


def apply_mail_action(results: list[str], uid: str) -> None:
    note("mail is done", uid, *results)


def error_callback(uid: str) -> None:
    note("mail has failed", uid)


def update_document_archive_file(document: int) -> None:
    note("archived", document)


def bulk_update_documents(documents: list[int]) -> None:
    with LOCK:
        archived = {effect[1] for effect in EFFECTS if effect[0] == "archived"}
    note("indexed", *documents, "after their archives" if set(documents) <= archived else "too early")


def send_webhook(url: str) -> None:
    with LOCK:
        is_first = url not in REFUSED_ONCE
        REFUSED_ONCE.add(url)
    if is_first:
        raise Refused(url)
    note("sent", url)


def ran(task: str) -> None:
    note("ran", task)
