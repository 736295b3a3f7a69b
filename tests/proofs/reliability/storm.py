"""One storm, from the empty server to the log."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import signal
import threading
import time
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import psycopg
from django.db import DatabaseError, InterfaceError, connection

from django_pgqueue.worker.supervise.supervisor import KILL_SECONDS
from tests.proofs.reliability import bystanders, log, measurements, sabotage, tasks, zones
from tests.proofs.reliability.generator import BYSTANDERS, LIMITS, Generator
from tests.proofs.reliability.pace import CALM, REST, STORM, Pace
from tests.proofs.reliability.tormentor import Tormentor
from tests.proofs.reliability.workers import GRACE_SECONDS, HAS_POOL, LOCK_SECONDS, Workers
from tests.support import pgbouncer
from tests.support.proxy import Proxy
from tests.support.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WATCH_EVERY_SECONDS = 0.5
CALM_SHARE = 1 / 60
"""Of the storm's time, before it and after it."""
LULLS = 6
LULL_SECONDS, MIN_UNTIL_LULL_SECONDS = 20.0, 120.0
STOP_SLACK_SECONDS = 8.0
"""For a machine that is busy with other things."""
RECOUNT = """
select c.name, c.running - coalesce((select sum(a.ended) from pgqueue_arrival a where a.channel = c.name), 0)::int,
       (select count(*) from pgqueue_message m where m.channel = c.name and m.unlock_at is not null)::int
from pgqueue_channel c
"""
LEFT_BEHIND = """
select 'a session in ' || state || ' of: ' || left(query, 60) from pg_stat_activity
where usename in ('storm', 'bystander') and state <> 'idle' and state_change < now() - interval '2 s'
union all
select 'a lock on ' || coalesce(relation::regclass::text, locktype) || ' by ' || coalesce(a.query, l.pid::text)
from pg_locks l left join pg_stat_activity a using (pid)
where a.usename in ('storm', 'bystander') and a.xact_start < now() - interval '5 s' and l.granted
union all
select 'the prepared transaction ' || gid from pg_prepared_xacts
"""
DEAD_ROWS = """
select relname, n_dead_tup from pg_stat_user_tables where relname ~ '^pgqueue_(message|worker|channel|lane|arrival)$'
"""
# What no worker knows waits for one that does.  Nobody has deployed this.
UNWANTED = """
select pgqueue_message_cancel(array(
    select m.id from pgqueue_message m
    where m.parked_at is not null and not exists (select from storm_enqueued e where e.message_id = m.id)))
"""
SESSIONS = "select 'a session of: ' || left(query, 60) from pg_stat_activity where usename in ('storm', 'bystander')"


class Storm:
    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        jobs: int,
        faults: int,
        minutes: float,
        short: bool,
        only: list[str],
        sabotaged: str,
        say: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.seed, self.jobs, self.short, self.sabotaged, self.say = seed, jobs, short, sabotaged, say
        self.pace = Pace(jobs, faults, minutes * 60)
        self.seconds_until_lull = max(MIN_UNTIL_LULL_SECONDS, minutes * 60 / LULLS) if minutes else None
        self.calm_seconds = 3.0 if short else max(30.0, CALM_SHARE * minutes * 60)
        self.server = Server(folder)
        self.tormentor = Tormentor(self, seed=seed, count=faults, only=only)
        self.generator = Generator(seed, self.pace)
        self.proxy: Proxy
        self.pooler: pgbouncer.Pooler | None = None
        self.workers: Workers
        self.stops: list[dict[str, Any]] = []
        self.recounts: list[tuple[str, int, int]] = []
        self.kill_recovery: list[float] = []
        self.restart_recovery: list[float] = []
        self.looks: list[float] = []
        self.clock_changes: list[tuple[str, int]] = []
        self.innocents: list[int] = []
        self.calms: list[tuple[float, float]] = []
        self.raged_seconds = 0.0
        self.rollouts = 0
        self.began = time.monotonic()
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._tokens = itertools.count(900_000_001)

    def run(self) -> tuple[log.Log, dict[str, Any]]:
        """Answers the log, and facts for the report."""
        try:
            self.set_up()
            self.measure()
            self.rage()
            facts = self.calm_down()
            with self.server.when_there() as admin:
                log.save(self.folder / "log", admin, facts)
            return log.load(self.folder / "log", self.folder / "diary"), self.facts()
        finally:
            self.over.set()
            self.generator.over.set()
            with contextlib.suppress(AttributeError):
                self.workers.kill()
            if self.pooler is not None:
                self.pooler.end(signal.SIGKILL)
            self.server.remove()

    # Setting up

    def set_up(self) -> None:
        self.say("starting PostgreSQL")
        self.server.make()
        self.proxy = Proxy(self.server.primary.port)
        if pgbouncer.PROGRAM is not None:
            upstream, password = self.server.primary.port, self.server.password
            self.pooler = pgbouncer.Pooler(self.folder, self.server.account, password=password, upstream=upstream)
            self.pooler.start()
            self.generator.pooler = self.pooler.port
        variables = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.proofs.reliability.settings",
            "STORM_PORTS": ",".join(map(str, self.server.ports)),
            "STORM_PASSWORD": self.server.password,
            "STORM_FOLDER": str(self.folder),
            "STORM_SABOTAGE": self.sabotaged,
            "PYTHONTZPATH": zones.search_path(self.folder / "zones"),
        }
        os.environ.update(variables)
        zoneinfo.reset_tzpath(variables["PYTHONTZPATH"].split(":"))
        from django.core.management import call_command

        connection.settings_dict.update(PORT=variables["STORM_PORTS"], PASSWORD=self.server.password)
        connection.settings_dict["HOST"] = "127.0.0.1,127.0.0.1"
        call_command("migrate", verbosity=0)
        with self.server.connect() as admin:
            admin.execute("set role storm")
            admin.execute(Path(__file__).with_name("tables.sql").read_bytes())
            sabotage.alter_sql(admin, self.sabotaged)
            for name, limit in LIMITS.items():
                admin.execute("select pgqueue_channel_set(%s, %s)", [name, limit])
        self.say(f"starting workers on {self.server.version}")
        behind = None if self.pooler is None else self.pooler.port
        self.workers = Workers(self.folder, variables, proxy=self.proxy.port, pooler=behind)
        self.workers.start()
        with self.server.connect() as admin:
            self.workers.wait_until_started(admin)

    def measure(self) -> None:
        times = 1 if self.short else 3
        # Kills come first: after a restart, psycopg's pool takes up to some seconds to connect the slots of a worker.
        for number in range(times):
            self.say(f"measuring how long recovery from a kill takes, {number + 1} of {times}")
            self.kill_recovery.append(measurements.worker_kill(self))
        for number in range(times):
            self.say(f"measuring how long recovery from a restart takes, {number + 1} of {times}")
            self.restart_recovery.append(measurements.server_restart(self))
        self.proxy.cut()
        looks = 6 if self.short else 20
        while len(self.looks) < looks:
            self.say(f"falling asleep, {len(self.looks) + 1} of {looks}")
            open_seconds = 0.4 * (len(self.looks) % 2)  # each other commit comes when the worker has looked
            if (seconds := measurements.second_look(self, open_seconds=open_seconds)) is not None:
                self.looks.append(seconds)

    # The storm itself

    def rage(self) -> None:
        with self.server.connect() as admin:
            for number, (interval_ms, catch_up) in enumerate([(200, "all"), (500, "one"), (1100, "skip")]):
                admin.execute(
                    "insert into pgqueue_schedule (name, next_at, interval_ms, catch_up, task, queue, max_attempts) "
                    "values (%s, pgqueue_now(), %s, %s, 'tests.proofs.reliability.tasks.tick', 'default', 30)",
                    [f"s{number}", interval_ms, catch_up],
                )
        self.watcher.start()
        self.generator.start()
        self.calm()
        began = time.monotonic()
        self.pace.begin(STORM)
        self.tormentor.start()
        while not self.tormentor.join(self.seconds_until_lull):
            self.lull()
        while not self.pace.is_enough:
            time.sleep(0.1)
        self.pace.begin(REST)
        self.raged_seconds = time.monotonic() - began

    def calm(self) -> None:
        """The same jobs, and no faults: what the bystanders are compared with."""
        self.pace.begin(CALM)
        time.sleep(1)  # nobody has connected yet
        began = time.time()
        time.sleep(self.calm_seconds)
        self.calms.append((began, time.time()))

    def lull(self) -> None:
        """A calm in between, because a machine that others use as well is not the same all the time."""
        with self.tormentor.lull():
            time.sleep(bystanders.AFTERMATH_SECONDS)
            began = time.time()
            time.sleep(LULL_SECONDS)
            self.calms.append((began, time.time()))

    def _watch(self) -> None:
        while not self.over.wait(WATCH_EVERY_SECONDS):
            with contextlib.suppress(psycopg.Error), self.server.connect(options="-c statement_timeout=5s") as admin:
                [self.pace.waiting] = admin.execute("select count(*) from pgqueue_message").fetchone() or [0]
                self.recounts += [(name, running, counted) for name, running, counted in admin.execute(RECOUNT)]
            self.say(
                f"{self.pace.phase}: {self.pace.jobs_done} of {self.jobs} jobs, "
                f"{self.pace.faults_done} of {self.pace.faults} faults, {self.pace.waiting} in the queue; "
                f"{self.tormentor.doing}"
            )

    @contextlib.contextmanager
    def enqueuing(self) -> Iterator[Callable[[int, Any], None]]:
        """Around a transaction: what is remembered in it was acknowledged if it commits."""
        tokens: list[int] = []

        def remember(token: int, result: Any) -> None:
            tokens.append(token)
            tasks.remember(token, result.id)

        try:
            yield remember
        except (DatabaseError, InterfaceError):
            connection.close()
            raise
        self.generator.acknowledged |= set(tokens)

    def new_token(self) -> int:
        return next(self._tokens)

    def diary(self) -> str:
        return "".join(file.read_text() for file in (self.folder / "diary").iterdir())

    def environments(self) -> dict[str, str]:
        """Those that are not there, and why."""
        reasons = {
            "a worker and an application behind PgBouncer": "" if self.pooler else pgbouncer.MISSING,
            "a worker with psycopg's connection pool": "" if HAS_POOL else "psycopg_pool is not installed",
        }
        return {name: reason for name, reason in reasons.items() if reason}

    # After it

    def calm_down(self) -> dict[str, Any]:
        began = time.monotonic()
        self.heal()
        with self.server.when_there() as admin:
            admin.execute("delete from pgqueue_schedule")
        allowed = 120.0
        self._wait_until_empty(began, allowed * 2)
        seconds = time.monotonic() - began
        self.calm()
        self.pace.begin(REST)
        self._wait_until_empty(time.monotonic(), allowed)
        self.generator.over.set()
        self.generator.join()
        self.over.set()
        self.watcher.join()
        with self.server.when_there() as admin:
            self.say("quiet: looking at what is left behind")
            left = self._settled(admin, LEFT_BEHIND)
            self.recounts += [tuple(row) for row in admin.execute(RECOUNT)]
            dead = self._dead_rows(admin)
            self.say("stopping the workers")
            connection.close()
            self.stops += self.workers.stop()
            if self.pooler is not None:
                self.pooler.end(signal.SIGTERM)
            left += self._settled(admin, SESSIONS)
        return {
            "acknowledged": sorted(self.generator.acknowledged),
            "rolled_back": sorted(self.generator.rolled_back),
            "limits": {name: limit for name, limit in LIMITS.items() if limit is not None},
            "recounts": self.recounts,
            "stops": [
                (each["worker"], each["seconds"], each["code"], GRACE_SECONDS + KILL_SECONDS + STOP_SLACK_SECONDS)
                for each in self.stops
                if each
            ],
            "looks": self.looks,
            "clock_changes": self.clock_changes,
            "innocents": self.innocents,
            "bystanders": self.generator.bystanders,
            "refused": self.generator.refused,
            "calms": self.calms,
            "spells": [
                (each["fault"], each["began"], each["over"], each["stops everybody"])
                for each in self.tormentor.done
                if "skipped" not in each
            ],
            "starts_of_bystanders": self.workers.named(BYSTANDERS).starts,
            "left_behind": left,
            "dead_rows": dead,
            "seconds_to_the_end": seconds,
            "seconds_allowed_to_the_end": allowed,
            "kill_recovery_seconds": self.kill_recovery,
            "restart_recovery_seconds": self.restart_recovery,
            "lock_seconds": LOCK_SECONDS,
        }

    def heal(self) -> None:
        """All faults are over."""
        self.server.heal()
        self.proxy.upstream = self.server.primary.port
        self.proxy.cut()
        self.proxy.heal()
        if self.pooler is not None:
            self.pooler.heal(self.server.primary.port)
        self.workers.heal()
        with self.server.when_there() as admin:
            admin.execute("alter role storm reset all")
            admin.execute("delete from pgqueue_queue")
            admin.execute("alter system reset synchronous_standby_names")
            admin.execute("select pg_reload_conf()")

    def _wait_until_empty(self, began: float, seconds: float) -> None:
        while time.monotonic() - began < seconds:
            with contextlib.suppress(psycopg.Error), self.server.connect() as admin:
                admin.execute(UNWANTED)
                [left] = admin.execute("select count(*) from pgqueue_message").fetchone() or [0]
                self.say(f"the faults are over: {left} messages are left")
                if left == 0:
                    return
            time.sleep(0.2)

    def _settled(self, admin: psycopg.Connection[Any], query: str) -> list[str]:
        """What is still there after a while."""
        deadline = time.monotonic() + 15
        while (found := [what for [what] in admin.execute(query.encode())]) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _dead_rows(self, admin: psycopg.Connection[Any]) -> dict[str, int]:
        deadline = time.monotonic() + 30
        while True:
            found = dict(admin.execute(DEAD_ROWS).fetchall())
            if max(found.values()) < 5000 or time.monotonic() > deadline:
                return found
            time.sleep(0.5)

    def facts(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "sabotage": self.sabotaged or None,
            "server": self.server.version,
            "old version": self.workers.old.name,
            "versions": f"Python {platform.python_version()} and Django {django.__version__}",
            "processors": os.cpu_count(),
            "lock seconds": LOCK_SECONDS,
            "seconds": round(time.monotonic() - self.began, 1),
            "jobs asked for": self.jobs,
            "faults": [json.loads(json.dumps(each, default=str)) for each in self.tormentor.done],
            "errors the application saw": self.generator.errors,
            "enqueues without an answer": len(self.generator.unknown),
            "environments": self.environments(),
            "storm seconds": round(self.raged_seconds, 1),
            "worker starts": {worker.name: worker.starts for worker in self.workers.all},
            "rollouts": self.rollouts,
            "begun by": begun_by(self.folder / "diary"),
            "second look seconds": [round(each, 3) for each in self.looks],
        }


def begun_by(diary: Path) -> dict[str, int]:
    """How many attempts each worker began."""
    found: dict[str, int] = {}
    for file in diary.iterdir():
        name = file.name.rpartition(" ")[0]
        found[name] = found.get(name, 0) + len(file.read_bytes().splitlines())
    return found
