"""The faults, one noun a file.  Importing this package makes them known."""

from tests.proofs.reliability.faults import (
    administrators,
    backends,
    clocks,
    disks,
    handlers,
    hostile,
    installations,
    limits,
    locks,
    neighbours,
    networks,
    partitions,
    poison,
    poolers,
    rollouts,
    servers,
    signals,
    snapshots,
    stages,
)
from tests.proofs.reliability.faults.fault import FAULTS, Fault, Skipped

__all__ = [
    "FAULTS", "Fault", "Skipped", "administrators", "backends", "clocks", "disks", "handlers", "hostile",
    "installations", "limits", "locks", "neighbours", "networks", "partitions", "poison", "poolers", "rollouts",
    "servers", "signals", "snapshots", "stages",
]  # fmt: skip
