"""A page of the admin, as a person would read it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import psycopg
from django.db import connections
from django.test import Client

from tests.support.address import conninfo
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source"}


class Element:
    def __init__(self, tag: str, attributes: dict[str, str], parent: Element | None) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        """All text inside, with blanks and line ends as one blank."""
        return " ".join(self.raw_text.split())

    @property
    def raw_text(self) -> str:
        return "".join(child if isinstance(child, str) else child.raw_text for child in self.children)

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    def all(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """The elements inside with this tag and these attributes; ``class_`` names one of the classes."""
        class_ = attributes.pop("class_", None)
        found = []
        for child in self.children:
            if isinstance(child, Element):
                fits = (tag is None or child.tag == tag) and (class_ is None or class_ in child.classes)
                if fits and attributes.items() <= child.attributes.items():
                    found.append(child)
                found += child.all(tag, **attributes, **({"class_": class_} if class_ else {}))
        return found

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} times <{tag} {attributes}>"
        return found[0]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.at = Element("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":  # the text goes on
            return
        element = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(element)
        if tag not in VOID:
            self.at = element

    def handle_endtag(self, tag: str) -> None:
        at: Element | None = self.at
        while at is not None and at.tag != tag:
            at = at.parent
        if at is not None and at.parent is not None:
            self.at = at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


class Page:
    def __init__(self, response: Any) -> None:
        self.response = response
        assert response.status_code == 200, (response.status_code, getattr(response, "url", ""))
        reader = _Reader()
        reader.feed(response.content.decode())
        self.root = reader.root

    @property
    def rows(self) -> list[dict[str, str]]:
        """The list, each row by the names of its columns."""
        return [{name: cell.text for name, cell in cells.items()} for cells in self.cells]

    @property
    def cells(self) -> list[dict[str, Element]]:
        [*tables] = self.root.all("table", id="result_list")
        if not tables:
            return []
        heads = [head.text.lower() for head in tables[0].one("thead").all("th")]
        return [
            dict(zip(heads, [cell for cell in row.all() if cell.tag in {"td", "th"}], strict=True))
            for row in tables[0].one("tbody").all("tr")
        ]

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.rows]

    @property
    def ids(self) -> list[int]:
        return [int(text) for text in self.column("id")]

    @property
    def fields(self) -> dict[str, Element]:
        """The values of a page about one row, by their labels."""
        found = {}
        for row in self.root.all("div", class_="form-row"):
            [value] = row.all("div", class_="readonly") or row.all("input")[:1]
            label = next(element for element in row.all() if element.tag in {"label", "legend"})
            found[label.text.rstrip(":").lower()] = value
        return found

    @property
    def form(self) -> dict[str, str]:
        """The values of what can be edited, by their names."""
        fields = [field for row in self.root.all("div", class_="form-row") for field in row.all("input")]
        return {field.attributes["name"]: field.attributes.get("value", "") for field in fields}

    @property
    def reasons(self) -> list[str]:
        """Why a message does not run yet."""
        return [item.text for listed in self.root.all("ul", class_="pgqueue-reasons") for item in listed.all("li")]

    @property
    def buttons(self) -> list[str]:
        return [
            button.text for shown in self.root.all("div", class_="pgqueue-buttons") for button in shown.all("button")
        ]

    @property
    def said(self) -> list[str]:
        """The messages at the top."""
        return [item.text for listed in self.root.all("ul", class_="messagelist") for item in listed.all("li")]

    @property
    def notes(self) -> list[str]:
        return [note.text for note in self.root.all("p", class_="pgqueue-note")]

    @property
    def count(self) -> str:
        return self.root.one(class_="paginator").text

    @property
    def actions(self) -> list[str]:
        selects = self.root.all("select", name="action")
        return [option.attributes["value"] for select in selects for option in select.all("option")][1:]

    def choices(self, title: str) -> list[str]:
        """The choices of a filter."""
        return [link.text for link in self.filter(title).all("a")]

    def filter(self, title: str) -> Element:
        nav = self.root.one(id="changelist-filter")
        return nav.one("details", **{"data-filter-title": title})

    def chosen(self, title: str) -> list[str]:
        return [item.text for item in self.filter(title).all("li", class_="selected")]


class Visitor:
    """A person who is logged in."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def open(self, url: str, **parameters: Any) -> Page:
        return Page(self.client.get(url, parameters, follow=True))

    def open_with_all_columns(self, url: str) -> Page:
        boxes = [box.attributes for box in self.open(url).root.all("input", name="columns")]
        self.client.get(url, {"columns": [box["value"] for box in boxes]})
        return self.open(url)

    def act(self, url: str, action: str, selected: Sequence[int | str], **more: object) -> Page:
        """Choose an action for some rows of a list, and see what comes."""
        data = {"action": action, "_selected_action": selected, "index": 0, "select_across": 0, **more}
        return Page(self.client.post(url, data, follow=True))

    def double_click(self, url: str, action: str, selected: Sequence[int | str]) -> list[str]:
        """Choose an action in two requests at a time, which both get as far as the log.  Returns what both are told."""
        sent = {"seen": self.open(url).root.one("input", name="seen").attributes["value"]}

        def click() -> list[str]:
            try:
                client = Client()
                client.cookies = self.client.cookies.copy()  # type: ignore[assignment]
                return Visitor(client).act(url, action, selected, **sent).said
            finally:
                connections.close_all()

        waiting = "select count(distinct pid) from pg_locks where not granted"
        with ThreadPoolExecutor(2) as pool, psycopg.connect(conninfo()) as other:
            other.execute("lock table django_admin_log in exclusive mode")
            answers = [pool.submit(click) for _ in range(2)]
            wait_until(lambda: other.execute(waiting).fetchone() == (2,), "both wait")
            other.rollback()
            return [text for one in answers for text in one.result()]

    def press(self, page: Page, words: str) -> Page:
        """Press one of the buttons of a message's page."""
        button = next(button for button in page.root.all("button") if button.text == words)
        form = page.root.one("form", id=button.attributes["form"])
        data = {field.attributes["name"]: field.attributes.get("value", "") for field in form.all("input")}
        return Page(self.client.post(form.attributes["action"], data, follow=True))

    def confirm(self, page: Page, **changes: object) -> Page:
        """Press the button of a page that asks first."""
        form = next(form for form in page.root.all("form", method="post") if form.all("input", name="confirmed"))
        data: dict[str, Any] = {}
        for field in form.all("input"):
            data.setdefault(field.attributes.get("name", ""), []).append(field.attributes.get("value", ""))
        for select in form.all("select"):
            data[select.attributes["name"]] = [
                option.attributes["value"] for option in select.all("option") if "selected" in option.attributes
            ]
        return Page(self.client.post(page.response.request["PATH_INFO"], {**data, **changes}, follow=True))


def parameters(url: str) -> dict[str, list[str]]:
    return parse_qs(url.partition("?")[2], keep_blank_values=True)
