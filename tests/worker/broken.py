"""A module that cannot be imported."""

from __future__ import annotations

message = "this module is broken"
raise RuntimeError(message)
