"""Brings a queue of 0.1.0 to the SQL of today."""

from django_pgqueue.functions.replace_function import ReplaceFunction
from django_pgqueue.functions.upgrade import Upgrade


class Migration(Upgrade):
    dependencies = [("django_pgqueue", "0001_initial")]
    since = "0.1.0"
    # The tables that the operations alter, or on which they make triggers or indexes.
    locks = ()

    operations = [
        # The version
        ReplaceFunction("pgqueue_version", since="0.1.0"),
    ]
