"""A module that ends the program when it is imported."""

from __future__ import annotations

raise SystemExit(5)
