"""Show the code of a function, taken from the running project, so that a page never shows outdated code."""

import inspect
from textwrap import dedent

from django import template
from django.utils.module_loading import import_string

register = template.Library()


@register.simple_tag
def source_of(path: str) -> str:
    """The source of a function or of a task's function in this shop, such as ``checkout.place_order``."""
    found = import_string(f"example_project.shop.{path}")
    return dedent(inspect.getsource(getattr(found, "func", found)))
