"""Clamps PostgreSQL's times to those that Python can hold."""

from __future__ import annotations

from django.db.models import DateTimeField, Func


class Moment(Func):
    """A timestamptz that a Python datetime can hold: rows written by hand may have infinity."""

    template = (
        "case when %(expressions)s is not null "
        "then greatest(least(%(expressions)s, '9999-12-30 00:00:00+00'), '0001-01-02 00:00:00+00') end"
    )
    output_field = DateTimeField()
