"""Raw messages: JSON in a queue, without tasks."""

from django_pgqueue.queue.queue import Queue, ReceivedMessage

__all__ = ["Queue", "ReceivedMessage"]
