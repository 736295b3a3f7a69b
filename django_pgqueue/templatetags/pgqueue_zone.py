"""The name of the time zone in which the admin shows times."""

from django.template import Library

from django_pgqueue.values import times

register = Library()
register.simple_tag(times.time_zone_name)
