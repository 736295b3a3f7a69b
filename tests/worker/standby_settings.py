"""The tests' workers on a server of their own, which is one of two."""

from tests.reliability.settings import database
from tests.worker.settings import *  # noqa: F403

DATABASES = {"default": database()}
