"""What every test may need."""

from tests.emptying import emptied_quickly

__all__ = ["emptied_quickly"]
