"""People who look at the queue."""

from tests.support.fixtures.admin import root

__all__ = ["root"]
