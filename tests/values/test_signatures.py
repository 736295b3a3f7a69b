"""Signatures of a project's functions."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from django_pgqueue.values.signatures import signature


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated where the function is defined")
def test_an_annotation_that_only_type_checkers_know_is_not_read() -> None:
    names: dict[str, Any] = {}
    exec("def wait(error, result: TaskResult): ...", names)  # noqa: S102
    assert list(signature(names["wait"]).parameters) == ["error", "result"]
