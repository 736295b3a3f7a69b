from __future__ import annotations

import importlib
import os

from django.apps import AppConfig


class ReliabilityConfig(AppConfig):
    """Installed in the storm's own processes only."""

    name = "tests.proofs.reliability"

    def ready(self) -> None:
        if os.environ.get("STORM_WORKER") == "1":
            from tests.proofs.reliability import sabotage, tasks, traps

            if not tasks.IS_OLD:
                importlib.import_module("tests.proofs.reliability.durable")

            traps.set_up()
            sabotage.patch_worker(os.environ.get("STORM_SABOTAGE", ""))
