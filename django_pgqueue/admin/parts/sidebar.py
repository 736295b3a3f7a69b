"""The list of models beside a page: its links keep the page's database."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from django_pgqueue.admin.parts.database import PARAMETER, alias
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.conf import APP_LABEL


class Link(str):
    """A URL that is rendered with its database, and compared without it.

    Django's template looks for the URL in the path of the page, to mark the current page.
    """

    __slots__ = ()

    def __html__(self) -> SafeString:
        return mark_safe(escape(f"{self[:]}?{urlencode({PARAMETER: alias()})}"))  # noqa: S308 -- just escaped


def lead_to_the_same_database(context: dict[str, Any]) -> None:
    """Changes the links in the context of an admin page."""
    if alias() == default_database():
        return
    for app in context.get("available_apps") or ():
        if app["app_label"] == APP_LABEL:
            for model in app["models"]:
                model |= {name: Link(model[name]) for name in ("admin_url", "add_url") if model.get(name)}
