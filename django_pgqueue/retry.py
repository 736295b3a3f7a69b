"""Its names are in ``django_pgqueue.tasks``. This path stays through 0.x."""

from django_pgqueue.tasks.retry import Exponential

__all__ = ["Exponential"]
