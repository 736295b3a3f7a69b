"""People who look at the queue, and a queue to look at."""

from tests.support.fixtures.admin import clock, noon, root, shop_tasks, visitor

__all__ = ["clock", "noon", "root", "shop_tasks", "visitor"]
