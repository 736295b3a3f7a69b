"""Which peers there are, and what each needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    module: str
    packages: tuple[str, ...] = ()
    redis: bool = False
    """Its jobs are in Redis instead of PostgreSQL."""
    steps: bool = False
    """Its jobs may have steps, each of which is recorded."""
    python: tuple[int, int] = (3, 11)
    """The oldest that it runs on, with a Django that has tasks where it needs one."""

    @property
    def distribution(self) -> str:
        return self.packages[0].partition("[")[0]


OURS = Entry("django_pgqueue", "pgqueue", steps=True)
DRIVER = "psycopg[binary]"
PEERS = {
    entry.module: entry
    for entry in (
        OURS,
        Entry("PgQueuer", "pgqueuer", ("pgqueuer[asyncpg]",)),
        Entry("Procrastinate", "procrastinate", ("procrastinate", DRIVER)),
        Entry("Oban for Python", "oban", ("oban", DRIVER), python=(3, 12)),
        Entry("chancy", "chancy", ("chancy[cli]", DRIVER)),
        Entry("django-tasks-db", "django_tasks_db", ("django-tasks-db", DRIVER), python=(3, 12)),
        Entry("django-ox", "django_ox", ("django-ox", DRIVER), python=(3, 12)),
        Entry("dj-queue", "dj_queue", ("dj-queue", DRIVER), python=(3, 12)),
        Entry("django-qraft", "django_qraft", ("django-qraft", DRIVER), python=(3, 12)),
        Entry("awa", "awa", ("awa-pg",)),
        Entry("absurd", "absurd", ("absurd-sdk",), steps=True),
        Entry("DBOS", "dbos", ("dbos",), steps=True),
        Entry("pgtask", "pgtask", ("pgtask", DRIVER), steps=True),
        Entry("Huey", "huey", ("huey", DRIVER)),
        Entry("Celery", "celery", ("celery[redis]",), redis=True),
        Entry("Dramatiq", "dramatiq", ("dramatiq[redis]",), redis=True),
    )
}
