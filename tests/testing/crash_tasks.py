"""Handlers that bear a crash, and handlers that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import Group, Permission
from django.db import connection, transaction

from django_pgqueue.tasks import task

if TYPE_CHECKING:
    from django_pgqueue.durable import DurableContext


@task
def idempotent(name: str) -> None:
    Group.objects.get_or_create(name=name)


@task
def once_and_again(name: str) -> None:
    group, _ = Group.objects.get_or_create(name=name)
    group.permissions.set(Permission.objects.order_by("pk")[:2])


@task
def twice(name: str) -> None:
    Group.objects.create(name=f"{name} {Group.objects.count()}")
    Group.objects.filter(name="nobody").update(name="somebody")


@task(atomic=True)
def atomically(name: str) -> None:
    Group.objects.create(name=f"{name} {Group.objects.count()}")
    idempotent.enqueue(name)
    with transaction.atomic():
        Group.objects.create(name=f"{name} {Group.objects.count()}")


@task
def between_two_transactions(name: str) -> None:
    with transaction.atomic():
        Group.objects.create(name=f"{name} {Group.objects.count()}")
    with transaction.atomic():
        Group.objects.get_or_create(name=name)


@task
def in_one_transaction(name: str) -> None:
    """All or nothing, but the end is recorded after it."""
    with transaction.atomic():
        if not Group.objects.filter(name=name).exists():
            Group.objects.create(name=name)
            Group.objects.create(name=f"{name}'s friend")


@task
def enqueues(name: str) -> None:
    Group.objects.get_or_create(name=name)
    idempotent.enqueue(name)
    Group.objects.filter(name=name).update(name=name)


@task
async def on_its_way(name: str) -> None:
    await Group.objects.aget_or_create(name=name)
    await Group.objects.acreate(name=f"{name} {await Group.objects.acount()}")


@task
def rolls_a_savepoint_back(name: str) -> None:
    with transaction.atomic():
        try:
            with transaction.atomic():
                Group.objects.create(name=f"{name} in vain")
                raise ZeroDivisionError  # noqa: TRY301
        except ZeroDivisionError:
            Group.objects.get_or_create(name=name)


@task
def tidies_up(name: str) -> None:
    """Whatever happens: but nothing happens any more to who is dead."""
    try:
        Group.objects.filter(name=name).update(name=name)
    finally:
        Group.objects.get_or_create(name=f"{name} tidied")


@task(max_attempts=1)
def only_once(name: str) -> None:
    Group.objects.get_or_create(name=name)


@task
def breaks(name: str) -> None:
    Group.objects.create(name=name)
    Group.objects.create(name=f"{name} and more")


@task
def fails(name: str) -> None:
    raise ZeroDivisionError


@task
def leaves_nothing(name: str) -> None: ...


@task
def at_some_time(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()::text")
        [now] = cursor.fetchone()
    Group.objects.filter(name__startswith=name).delete()
    Group.objects.create(name=f"{name} {now}")


@task(durable=True)
def in_steps(context: DurableContext, name: str) -> None:
    context.step("first", add_group, name, atomic=True)
    context.step("second", add_group, name, atomic=True)


@task(durable=True)
def in_plain_steps(context: DurableContext, name: str) -> None:
    context.step("first", add_group, name)
    context.step("second", add_group, name)


def add_group(name: str) -> None:
    Group.objects.create(name=f"{name} {Group.objects.count()}")
