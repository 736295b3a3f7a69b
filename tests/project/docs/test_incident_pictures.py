"""The first screen in each incident of the operations handbook, as pictures.

``PGQUEUE_PICTURES=1 python3 tests tests/project/docs/test_incident_pictures.py`` makes all of them anew; without it one
is made, and thrown away.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.project.docs.test_incidents import OVERVIEW, TITLES, Incident, site
from tests.support import pages
from tests.support.fixtures.admin import root, shop_tasks
from tests.support.fixtures.browser import Page, chromium, page

if TYPE_CHECKING:
    from tests.project.docs.test_incidents import Site
    from tests.support.admin_page import Visitor

__all__ = ["chromium", "page", "root", "shop_tasks", "site"]

IS_TAKEN = os.environ.get("PGQUEUE_PICTURES") == "1"
HERE = pages.FOLDER / "operate"
PICTURE = re.compile(r"^!\[(.+?)\]\((.+?)\)$", re.MULTILINE | re.DOTALL)
PNG = b"\x89PNG\r\n"
WIDTH, SHARPNESS = 767, 2
MOST_BYTES = 500_000


def picture(title: str) -> tuple[str, str]:
    """What the page says in place of an incident's picture, and where it is."""
    [(words, path)] = PICTURE.findall(Incident(title).text)
    return " ".join(words.split()), path


def test_each_incident_has_a_picture_which_is_told_to_those_who_do_not_see_it() -> None:
    found = {title: picture(title) for title in TITLES}
    assert len(set(found.values())) == len(TITLES)
    files = [HERE / path for _, path in found.values()]
    assert [file.name for file in files if not file.read_bytes().startswith(PNG)] == []
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    assert {file.name for file in files} == {file.name for file in files[0].parent.iterdir()}


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("title", TITLES if IS_TAKEN else TITLES[:1])
def test_a_picture_of_an_incident_is_taken(title: str, site: Site, root: Visitor, page: Page) -> None:
    incident = Incident(title)
    getattr(site, incident.name)()
    page.open("/static/pgqueue/admin.css")
    page.driver.add_cookie({"name": "sessionid", "value": root.client.cookies["sessionid"].value})
    page.open(OVERVIEW)
    page.shows(*(part.strip() for part in incident.on_overview[0].split("…")))
    taken = page.picture(WIDTH, part=".pgqueue-warnings", scale=SHARPNESS)
    assert taken.startswith(PNG)
    if IS_TAKEN:
        (HERE / picture(title)[1]).write_bytes(taken)
