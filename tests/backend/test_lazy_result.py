"""Fields that are looked up when somebody looks."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.backend.lazy_result import is_known, know, later

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    order: int
    contents: tuple[str, ...] = ()
    weight: float | None = None
    seal: str = field(init=False, default="wax")


WHOLE = Parcel(order=7, contents=("tea",), weight=0.5)
LOOKS: list[Callable[[Parcel], Any]] = [
    lambda parcel: parcel.contents,
    lambda parcel: parcel.weight,
    lambda parcel: parcel == WHOLE,
    lambda parcel: WHOLE == parcel,  # noqa: SIM300
    repr,
    hash,
    asdict,
    copy.copy,
    copy.deepcopy,
    lambda parcel: replace(parcel, order=8),
    lambda parcel: pickle.loads(pickle.dumps(parcel)),  # noqa: S301
    lambda parcel: object.__setattr__(parcel, "weight", 0.5),
    know,
]


class Shelf:
    def __init__(self) -> None:
        self.looks = 0
        self.parcel = Parcel(order=7)
        later(self.parcel, "contents", "weight", look_up=self.look_up)

    def look_up(self) -> dict[str, Any]:
        self.looks += 1
        return {"contents": ("tea",), "weight": 0.5}


@pytest.mark.parametrize("look", LOOKS)
def test_reading_one_lazy_field_loads_all_of_them_once(look: Callable[[Parcel], Any]) -> None:
    shelf = Shelf()
    assert look(shelf.parcel) == look(WHOLE)
    assert (shelf.parcel.contents, shelf.parcel.weight) == (("tea",), 0.5)
    assert shelf.looks == 1
    assert type(shelf.parcel) is Parcel, "afterwards it is like any other"
    assert is_known(shelf.parcel)
    assert shelf.parcel == WHOLE


def test_the_other_fields_are_known_already() -> None:
    shelf = Shelf()
    assert (shelf.parcel.order, shelf.parcel.seal) == (7, "wax")
    object.__setattr__(shelf.parcel, "order", 8)
    assert isinstance(shelf.parcel, Parcel)
    assert not is_known(shelf.parcel)
    assert shelf.looks == 0


def test_a_load_that_failed_is_repeated() -> None:
    answers = iter([None, {"contents": (), "weight": 1.0}])
    parcel = Parcel(order=7)
    later(parcel, "contents", "weight", look_up=lambda: dict(next(answers)))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _ = parcel.weight
    assert parcel.weight == 1.0
