"""The page of the Python API: every promised name, as the code has it, with an example that runs."""

from __future__ import annotations

import re

import pytest

from tests.project.docs import api_reference
from tests.support.pages import FOLDER, ROOT, blocks, text_of
from tests.support.promised import PROMISED, SPARK

PAGE = text_of("reference/api")
SECTION = re.compile(r"^### (?:\w+\.)?(\w+)\n(.*?)(?=^##? |^### |\Z)", re.MULTILINE | re.DOTALL)
PLACED = re.compile(r"<!-- api: ([\w.]+) -->")
TESTS = re.compile(r"`(tests/[\w/]+\.py)`")


@pytest.mark.once
def test_the_page_is_as_the_code_says() -> None:
    assert api_reference.written(PAGE) == PAGE, "Run: python -m tests.project.docs.api_reference"


def test_the_page_has_each_promised_name() -> None:
    """A name of several modules has its place under one of them; the page imports it from the others."""
    placed = PLACED.findall(PAGE)
    assert len(placed) == len(set(placed))
    promised = {f"{module}.{name}" for module, names in PROMISED.items() for name in names}
    assert set(placed) <= promised
    described = {name.rpartition(".")[2] for name in placed}
    for name in sorted(promised - set(placed)):
        module, _, last = name.rpartition(".")
        assert last in described or last == "enqueue_again", f"the page has no {name}"
        assert re.search(rf"^from {module} import .*\b{last}\b", PAGE, re.MULTILINE), f"the page does not import {name}"
    for module, names in SPARK.items():
        assert [name for name in names if f"{module}.{name}`" not in PAGE and f"`{name}`" not in PAGE] == []


def test_each_name_of_the_page_has_an_example_or_a_test() -> None:
    run = {block.text for block in blocks(FOLDER / "reference" / "api.md", "python")}
    for name, text in SECTION.findall(PAGE):
        examples = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if block in run]
        shown = any(re.search(rf"\b{name}\b", example) for example in examples)
        tests = [ROOT / path for path in TESTS.findall(text)]
        assert shown or tests, f"{name} has neither an example nor a test"
        assert [path for path in tests if not re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))] == []
