"""The doctor of a server that is not the tests' own: a standby."""

from tests.support.server_settings import database
from tests.support.site.settings import *  # noqa: F403

DATABASES = {"default": database()}
