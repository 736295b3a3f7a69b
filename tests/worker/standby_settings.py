"""The tests' workers on a server of their own, which is one of two."""

from tests.support.server_settings import database
from tests.support.site.settings import *  # noqa: F403

DATABASES = {"default": database()}
