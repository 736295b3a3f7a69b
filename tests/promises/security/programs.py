"""What processes of a project do, each with a login that has one role."""

PRODUCER = """
import django; django.setup()
import datetime as dt
from django.db import connection, transaction
from django_pgqueue.backend import enqueue_many
from django_pgqueue.tasks import batch
from django_pgqueue.exceptions import ChannelFull
from django_pgqueue.queue import Queue
from django_pgqueue.routing import publish
from tests.support.site.tasks import nothing, take

first = nothing.enqueue()
nothing.using(priority=3, queue_name="other", run_after=dt.timedelta(milliseconds=1)).enqueue()
nothing.using(after=[first]).enqueue()
for _ in range(2):
    nothing.using(unique_key="only").enqueue()
assert enqueue_many(take, [0.0, 0.0]) == 2
enqueue_many(nothing.using(unique_key="only"), [()])
mail = Queue("mail")
with transaction.atomic():
    mail.send({"raw": 1}, headers={"trace": "x"})
    mail.send_many([{"raw": 2}, {"raw": 3}])
    try:
        mail.send("more", channel="full")
        raise SystemExit("a full channel took it")
    except ChannelFull as error:
        assert "'full' is full" in str(error)
    assert len(publish("orders", "order.created", {"order": 1})) == 1
with connection.cursor() as cursor:
    cursor.execute("select session_user")
    assert cursor.fetchone()[0].endswith("_producer")
print("all enqueued")
"""

CONSUMER = """
import django; django.setup()
from django_pgqueue.queue import Queue

mail = Queue("mail")
received = [mail.receive(), *mail.receive_many(10)]
assert len(received) == 4, received
received[0].heartbeat()
received[0].defer()
again = mail.receive()
assert (again.id, again.attempt) == (received[0].id, 2)
for message in [again, *received[1:]]:
    message.complete()
print("all consumed")
"""

READER = """
import django; django.setup()
import django.apps
from django.core.management import call_command
from django.db import ProgrammingError
from django_pgqueue.metrics import queue
from django_pgqueue.models import Attempt, Message
from django_pgqueue.monitoring.overview import overview

for model in django.apps.apps.get_app_config("django_pgqueue").get_models():
    list(model.objects.all()[:5])
assert Attempt.objects.filter(status="succeeded").exists()
assert overview.taken("default")
call_command("qstatus", "--once", "--json")
try:
    Message.objects.all().delete()
    raise SystemExit("a reader has deleted messages")
except ProgrammingError as error:
    assert "permission denied" in str(error)
print("all read")
"""
