"""Raw messages: JSON in a queue, without tasks."""

from django_pgqueue.queue.message import ReceivedMessage
from django_pgqueue.queue.queue import Queue

__all__ = ["Queue", "ReceivedMessage"]
