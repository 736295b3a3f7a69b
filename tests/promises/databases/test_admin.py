"""The admin shows the queue of each database, and never takes one for the other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import connections

from django_pgqueue import control, functions
from django_pgqueue.models import Attempt, Binding, Exchange, Message, Schedule
from tests.support.admin_page import Page
from tests.support.fixtures.admin import ATTEMPTS, MESSAGES, WORKERS, visitor_of

if TYPE_CHECKING:
    from tests.support.admin_page import Visitor

# "jobs" is that of the default backend.
OTHER = "?database=default"
ID = 1_000_000

pytestmark = pytest.mark.django_db(databases=["default", "jobs"])


@pytest.fixture
def root() -> Visitor:
    return visitor_of(User.objects.create_superuser("root"))


@pytest.fixture
def one_in_each() -> int:
    """Messages of the same id, which are different ones."""
    for database in ("jobs", "default"):
        Message.objects.using(database).create(id=ID, dequeue_at=2**50, queue=f"in-{database}", content={}, task="t")
    return ID


def links(page: Page) -> dict[str, str]:
    nav = page.root.one("nav", class_="pgqueue-databases")
    return {link.text: link.attributes["href"] for link in nav.all("a")}


def due(database: str) -> Any:
    return Message.objects.using(database).values_list("dequeue_at", flat=True).get().epoch_ms


@pytest.mark.parametrize(
    "url",
    [
        MESSAGES,
        ATTEMPTS,
        WORKERS,
        "/admin/django_pgqueue/queuestate/",
        "/admin/django_pgqueue/schedule/",
        "/admin/django_pgqueue/exchange/",
        "/admin/django_pgqueue/binding/",
    ],
)
def test_each_list_offers_a_choice_of_databases(root: Visitor, url: str) -> None:
    assert links(root.open(url)) == {"jobs": url, "default": f"{url}{OTHER}"}
    selected = [link.text for link in root.open(f"{url}{OTHER}").root.all("a", **{"aria-current": "page"})]
    assert "default" in selected
    assert "jobs" not in selected


def test_the_list_and_its_links_stay_with_the_database(root: Visitor, one_in_each: int) -> None:
    assert root.open(MESSAGES).column("queue") == ["in-jobs no worker"]
    other = root.open(f"{MESSAGES}{OTHER}")
    assert other.column("queue") == ["in-default no worker"]
    link = other.cells[0]["id"].one("a").attributes["href"]
    page = root.open(link)
    assert page.fields["queue"].text == "in-default"
    assert page.notes == ["This is in the database default."]
    assert root.open(f"{MESSAGES}{one_in_each}/change/").fields["queue"].text == "in-jobs"
    filtered = other.choices("status")
    assert filtered
    for choice in other.filter("status").all("a"):
        assert "database=default" in choice.attributes["href"]


def test_actions_act_where_the_page_was(root: Visitor, one_in_each: int) -> None:
    page = root.press(root.open(f"{MESSAGES}{one_in_each}/change/{OTHER}"), "Run now")
    assert page.fields["queue"].text == "in-default"
    assert due("default") < 2**50
    assert due("jobs") == 2**50
    assert LogEntry.objects.get().change_message == "Made ready to run now. (In the database default.)"
    question = root.press(page, "Cancel…")
    form = {
        field.attributes["name"]: field.attributes["value"] for field in question.root.all("input", type="hidden")
    } | {"confirmed": "yes"}
    root.client.post(f"{MESSAGES}{OTHER}", form)
    assert not Message.objects.using("default").exists()
    assert Message.objects.using("jobs").exists()


def test_an_edit_is_saved_where_the_page_was(root: Visitor, one_in_each: int) -> None:
    url = f"{MESSAGES}{one_in_each}/change/{OTHER}"
    answer = root.client.post(url, {**root.open(url).form, "priority": 7})
    assert "database=default" in answer.url  # type: ignore[attr-defined]
    assert Message.objects.using("default").get().priority == 7
    assert Message.objects.using("jobs").get().priority == 0


def test_an_ended_message_is_searched_in_the_history_of_its_database(root: Visitor, one_in_each: int) -> None:
    functions.message_cancel(connections["default"], [one_in_each])
    page = root.open(f"{MESSAGES}{one_in_each}/change/{OTHER}")
    assert page.column("queue") == ["in-default"]
    [ended] = Attempt.objects.using("default").all()
    again = root.press(root.open(f"{ATTEMPTS}{ended.pk}/change/{OTHER}"), "Enqueue again")
    assert again.said[0].startswith("1 message enqueued again: ")
    assert Message.objects.using("default").count() == 1
    assert Message.objects.using("jobs").count() == 1


@pytest.mark.parametrize("name", ["empty", "nowhere", "", "jobs' or 1"])
def test_a_database_without_a_queue_is_not_queried(root: Visitor, one_in_each: int, name: str) -> None:
    assert root.open(MESSAGES, database=name).column("queue") == ["in-jobs no worker"]


SIDEBAR = "nav-sidebar"


def addresses(page: Page, part: str) -> list[str]:
    """Where the links of the breadcrumbs or of the sidebar lead, as far as that is about the queue."""
    place = page.root.one(id=SIDEBAR) if part == SIDEBAR else page.root.one("div", class_=part)
    found = [link.attributes["href"] for link in place.all("a")]
    return [address for address in found if re.match(r"/admin/django_pgqueue/\w+/", address)]


@pytest.mark.parametrize("page", ["", "add/", "{pk}/change/", "{pk}/history/", "{pk}/delete/"])
def test_breadcrumbs_and_the_sidebar_lead_to_the_same_database(root: Visitor, page: str) -> None:
    for database in ("jobs", "default"):
        Exchange.objects.using(database).create(name="orders")
    made, _ = functions.binding_declare(
        connections["default"], functions.KnownBinding(exchange="orders", pattern="#", queue="q")
    )
    functions.binding_declare(connections["jobs"], functions.KnownBinding(exchange="orders", pattern="#", queue="q"))
    [here] = Binding.objects.using("jobs").values_list("pk", flat=True)
    url = "/admin/django_pgqueue/binding/"
    elsewhere = root.open(f"{url}{page.format(pk=made)}{OTHER}")
    assert {address.partition("?")[2] for address in addresses(elsewhere, SIDEBAR)} == {"database=default"}
    current = [link for link in elsewhere.root.one(id=SIDEBAR).all("a") if "aria-current" in link.attributes]
    assert [link.text for link in current] == ["Bindings"], "where somebody is stays marked"
    if page:
        crumbs = addresses(elsewhere, "breadcrumbs")
        assert crumbs[0] == f"{url}{OTHER}"
        assert all(address.endswith(OTHER) for address in crumbs)
        assert root.open(crumbs[-1]).response.status_code == 200
    usual = root.open(f"{url}{page.format(pk=here)}")
    assert not any("database=" in address for address in addresses(usual, SIDEBAR))


def within(page: Page) -> dict[str, str]:
    """The links of the page itself, beside the choice between the databases."""
    found = page.root.one(id="content").all("a")
    return {link.text: link.attributes.get("href", "") for link in found if link.parent and link.parent.tag != "nav"}


@pytest.mark.parametrize("model", ["schedule", "channel", "exchange", "binding", "queuestate"])
def test_add_leads_to_the_same_database(root: Visitor, model: str) -> None:
    url = f"/admin/django_pgqueue/{model}/"
    for query in ("", "&e=1"):
        [add] = [href for href in within(root.open(f"{url}{OTHER}{query}")).values() if "/add/" in href]
        assert add.startswith(f"{url}add/{OTHER}"), add
        assert root.open(add).notes == ["This is in the database default."]


def test_what_is_added_stands_in_the_database_of_the_list(root: Visitor) -> None:
    url = "/admin/django_pgqueue/exchange/"
    add = within(root.open(f"{url}{OTHER}"))["Add exchange"]
    listed = Page(root.client.post(add, {"name": "orders"}, follow=True))
    assert Exchange.objects.using("default").get().name == "orders"
    assert not Exchange.objects.using("jobs").exists()
    assert listed.column("name") == ["orders"], "the list that is shown next is that of the same database"


def test_the_message_about_a_saved_row_leads_to_it(root: Visitor) -> None:
    control.set_channel("tenant", max_concurrency=1, database="default")
    url = "/admin/django_pgqueue/channel/tenant/change/"
    saved = Page(root.client.post(f"{url}{OTHER}", {"max_concurrency": 2}, follow=True))
    [told] = saved.root.one("ul", class_="messagelist").all("a")
    assert told.attributes["href"] == f"{url}{OTHER}"


@pytest.mark.parametrize("page", ["history", "delete"])
def test_django_s_links_of_a_row_lead_to_the_same_row(root: Visitor, page: str) -> None:
    for database in ("jobs", "default"):
        Exchange.objects.using(database).create(name="orders")
    url = "/admin/django_pgqueue/exchange/"
    links = within(root.open(f"{url}orders/change/{OTHER}"))
    assert links[page.capitalize()] == f"{url}orders/{page}/{OTHER}"
    assert links["Close"] == f"{url}{OTHER}"
    leads_back = within(root.open(links[page.capitalize()])).get("orders", f"{url}orders/change/{OTHER}")
    assert leads_back == f"{url}orders/change/{OTHER}"


@pytest.mark.parametrize("query", ["p=99", "nonsense=1", "nonsense=1&download=csv"])
def test_a_list_that_refuses_its_parameters_is_shown_for_the_same_database(
    root: Visitor, one_in_each: int, query: str
) -> None:
    assert root.open(f"{MESSAGES}{OTHER}&{query}").column("queue") == ["in-default no worker"]


def test_show_all_leads_to_all_of_the_same_database(root: Visitor, one_in_each: int) -> None:
    address = within(root.open(f"{MESSAGES}{OTHER}", database="default", q="nothing"))["show all"]
    assert root.open(address).column("queue") == ["in-default no worker"]


def test_the_sidebar_of_the_overview_keeps_the_database(root: Visitor) -> None:
    page = root.open(f"/admin/django_pgqueue/overview/{OTHER}")
    assert f"{MESSAGES}{OTHER}" in addresses(page, SIDEBAR)


def test_a_deletion_redirects_to_the_list_of_its_database(root: Visitor) -> None:
    Exchange.objects.using("default").create(name="orders")
    answer = root.client.post(f"/admin/django_pgqueue/exchange/orders/delete/{OTHER}", {"post": "yes"})
    assert answer.url == f"/admin/django_pgqueue/exchange/{OTHER}"  # type: ignore[attr-defined]
    assert not Exchange.objects.using("default").exists()
    assert LogEntry.objects.get().action_flag == DELETION


@pytest.mark.django_db(transaction=True, databases=["default", "jobs"])
def test_a_double_click_acts_once_where_the_queue_has_another_database_than_the_log(root: Visitor) -> None:
    task, content = "tests.support.tasks.remind", {"args": ["Ada"], "kwargs": {}}
    Schedule.objects.using("jobs").create(name="daily", task=task, content=content, cron="0 * * * *", next_at=0)
    said = root.double_click("/admin/django_pgqueue/schedule/", "run_now", ["daily"])
    assert any("since the page was shown, you or somebody else has acted on" in text for text in said), said
    assert Message.objects.using("jobs").count() == 1
