"""Metrics for Prometheus, with the extra ``prometheus``.

``django_pgqueue.metrics.urls`` serves the metrics of the queue, from the database; ``qworker --metrics-port`` serves
those of a worker.
"""
