"""The direction of a page's text: no name in it turns the words beside it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.http import HttpResponse

OVERRIDES = "\N{LEFT-TO-RIGHT OVERRIDE}\N{RIGHT-TO-LEFT OVERRIDE}"
MARKUP_OR_OVERRIDE = re.compile(f"(<textarea.*?</textarea>|<[^>]*>)|[{OVERRIDES}]", re.DOTALL)


def kept_in(response: HttpResponse) -> HttpResponse:
    response.content = kept(response.content.decode(response.charset))
    return response


def kept(page: str) -> str:
    """Replaces the characters that turn all that follows; forms, and the markup, keep theirs.

    >>> kept('<b title="a\\u202e">a\\u202eb</b>') == '<b title="a\\u202e">a\\ufffdb</b>'
    True
    """
    if not any(one in page for one in OVERRIDES):
        return page
    return MARKUP_OR_OVERRIDE.sub(lambda found: found[1] or "\N{REPLACEMENT CHARACTER}", page)
