"""Settings of workers that run this app."""

from tests.support.site.settings import *  # noqa: F403 -- all that the tests' workers have
from tests.support.site.settings import INSTALLED_APPS as THEIRS

INSTALLED_APPS = [*THEIRS, "tests.support.scheduled"]
