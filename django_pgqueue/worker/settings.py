"""The settings of a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_RETIRING = 3
"""At most this many processes of one place retire at a time.  Each keeps its memory until its longest job has ended: a
worker needs at most four times the memory of its processes."""

RECYCLED_EXIT_CODE = 75
"""The exit code of a process that left on purpose, to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    queues: tuple[str, ...] | None = None
    """The queues to serve; None: every one."""
    exclude_queues: tuple[str, ...] = ()
    backend: str = "default"
    """Alias in TASKS: its OPTIONS say where the queue is."""
    processes: int = 1
    threads: int = 4
    """Slots of each process: how many jobs run at a time."""
    burst: bool = False
    """Leave when nothing is ready."""
    exit_when_idle_seconds: float | None = None
    """Leave when nothing has been ready or has run for this long, in any process."""
    lock_seconds: float = 60
    grace_seconds: float = 25
    history_days: int | None = 30
    lake_days: int = 7
    listen: bool = True
    idle_poll_seconds: float = 1.0
    """How often a process with nothing to do looks without a notification."""
    max_jobs: int | None = None
    """A process that has ended this many jobs is replaced."""
    max_memory_mb: int | None = None
    """A process that uses more is replaced."""
    metrics_port: int | None = None
    """The port of metrics and health.  0: any free port."""
    health_port: int | None = None
    """A port that serves health alone."""
    metrics_host: str = "127.0.0.1"
    idle_seconds: float = 5.0
    """A slot without a job for this long closes the connections that Django would close after each request."""
    quarantine: bool = False
    """The process takes only quarantined messages, one after the other, and leaves when none is due."""

    @property
    def of_quarantine(self) -> WorkerSettings:
        return replace(self, quarantine=True, burst=True, processes=1, threads=1, max_jobs=None)

    @property
    def leaves_after_seconds(self) -> float | None:
        """For how long a process has to find nothing before it leaves.  None: it never leaves."""
        return 0.0 if self.burst else self.exit_when_idle_seconds

    @property
    def is_watched(self) -> bool:
        return self.metrics_port is not None or self.health_port is not None

    @property
    def lock_ms(self) -> int:
        return max(1, int(self.lock_seconds * 1000))

    @property
    def served(self) -> str:
        """The queues, as text for the log."""
        queues = "all queues" if self.queues is None else ", ".join(self.queues)
        served = queues if not self.exclude_queues else f"{queues} except {', '.join(self.exclude_queues)}"
        return f"what is quarantined in {served}" if self.quarantine else served
