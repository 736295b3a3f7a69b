"""The list of models beside a page: its links stay with the database that the page is about."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from django_pgqueue.admin.parts.database import PARAMETER, alias
from django_pgqueue.backend.lookup import default_database
from django_pgqueue.conf import APP_LABEL


class Link(str):
    """An address that is written with its database, and compared without it.

    Django's template looks whether the path of the page is in it, to mark where somebody is.
    """

    __slots__ = ()

    def __html__(self) -> SafeString:
        return mark_safe(escape(f"{self[:]}?{urlencode({PARAMETER: alias()})}"))  # noqa: S308 -- just escaped


def lead_to_the_same_database(context: dict[str, Any]) -> None:
    """Changes the context of a page of the admin."""
    if alias() == default_database():
        return
    for app in context.get("available_apps") or ():
        if app["app_label"] == APP_LABEL:
            for model in app["models"]:
                model |= {name: Link(model[name]) for name in ("admin_url", "add_url") if model.get(name)}
