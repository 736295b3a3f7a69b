"""Settings of workers that run this app; with PGQUEUE_TEST_NOW their clock stands still."""

import os

from tests.support.site.settings import *  # noqa: F403 -- all that the tests' workers have
from tests.support.site.settings import DATABASES, INSTALLED_APPS as THEIRS

INSTALLED_APPS = [*THEIRS, "tests.support.scheduled"]
if now := os.environ.get("PGQUEUE_TEST_NOW"):
    DATABASES["default"].setdefault("OPTIONS", {})["options"] = f"-c pgqueue.now={now}"
