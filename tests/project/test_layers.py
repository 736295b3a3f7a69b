"""Imports of the package point down, and the map of the contributors shows how."""

from __future__ import annotations

import ast
import re

import pytest

from tests.project import layers

CONTRACTS = layers.contracts()
IMPORT_OF_TESTS = re.compile(r"^\s*(?:from tests import|(?:from|import) tests\.)\s*(\w+)", re.MULTILINE)
contracts = pytest.mark.parametrize("contract", CONTRACTS, ids=[each.container for each in CONTRACTS])
TESTS = layers.ROOT / "tests"
BESIDE_THE_MIRROR = {"bench", "project", "promises", "proofs", "sql", "support"}
"""Folders of tests that are about more than one room."""
MAX_ROOMS_A_FLOOR = 9
MAX_INSIDE_FUNCTIONS = 52
"""Imports inside functions: for optional extras, and for models before the apps are ready.  It may only fall."""


@contracts
def test_imports_point_down_and_not_to_a_sibling(contract: layers.Layers) -> None:
    assert sorted(map(str, contract.broken())) == []


def test_every_package_has_its_layer_and_its_line_on_the_map() -> None:
    contract = layers.of_the_package()
    on_floors = [room for floor in contract.floors for room in floor]
    assert sorted([*on_floors, *contract.apart]) == sorted(layers.rooms()) == sorted(layers.ROOMS)
    assert max(map(len, contract.floors)) <= MAX_ROOMS_A_FLOOR


def test_only_commands_import_spark_and_spark_imports_no_django() -> None:
    arrows = layers.of_the_package().arrows()
    assert {importer for importer, imported in arrows if imported == "spark"} == {"management"}
    assert {imported for importer, imported in arrows if importer == "spark"} == {"values", "distribution"}


def test_old_paths_reexport_names_and_no_module_imports_them() -> None:
    aliases = {"bulk", "dependencies", "recurrence", "retry"}
    arrows = layers.of_the_package().arrows()
    assert {imported for importer, imported in arrows if importer in aliases} == {"backend", "tasks"}
    assert {importer for importer, imported in arrows if imported in aliases} == set()


def test_a_folder_of_tests_is_a_package_folder_or_listed_beside() -> None:
    folders = {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert folders - set(layers.rooms()) == BESIDE_THE_MIRROR


def test_tests_import_only_their_own_folder_and_shared_support() -> None:
    shared = {"support", "settings", "__main__", "ci"}
    wrong = [
        f"{path.relative_to(TESTS)} imports tests.{folder}"
        for path in TESTS.rglob("*.py")
        for folder in IMPORT_OF_TESTS.findall(path.read_text(encoding="utf-8"))
        if folder not in {path.relative_to(TESTS).parts[0], *shared}
    ]
    assert wrong == []


def test_the_map_is_current() -> None:
    page = layers.PAGE.read_text(encoding="utf-8")
    assert page == layers.drawn(page), "Run: python -m tests.project.layers"


def test_an_import_that_points_up_or_aside_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = layers.Layers(container="house", floors=(("roof", "tower"), ("ground",)))
    down, up, aside = (
        layers.Import(importer=f"house.{importer}.door", imported=f"house.{imported}", line=1)
        for importer, imported in (("roof", "ground"), ("ground", "roof"), ("roof", "tower"))
    )
    monkeypatch.setattr(layers, "imports", lambda: (down, up, aside))
    assert contract.broken() == [up, aside]


def test_an_import_inside_a_function_or_for_types_counts() -> None:
    text = "def f():\n    from django_pgqueue.queue import queue\nif TYPE_CHECKING:\n    import django_pgqueue.apps\n"
    known = {"django_pgqueue.queue.queue"}
    found = [target for node in layers.statements(text) for target in layers.targets(node, known)]
    assert sorted(found) == ["django_pgqueue.apps", "django_pgqueue.queue.queue"]


def test_imports_inside_functions_stay_few() -> None:
    assert len(layers.inside_functions()) <= MAX_INSIDE_FUNCTIONS


def test_no_module_imports_a_private_name_of_another() -> None:
    private = [
        f"{name} imports {node.module}.{alias.name}"
        for name, path in layers.modules().items()
        for node in layers.statements(path.read_text(encoding="utf-8"))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(layers.PACKAGE)
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert private == []
