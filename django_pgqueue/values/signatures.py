"""The signature of a project's function."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

if sys.version_info >= (3, 14):
    from annotationlib import Format

    def signature(function: Callable[..., object]) -> inspect.Signature:
        """Asks for no annotation: it may name what is imported for type checkers alone."""
        return inspect.signature(function, annotation_format=Format.FORWARDREF)

else:
    signature = inspect.signature
