"""`frozen` makes what `dataclass(frozen=True, slots=True)` makes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from rendezvous.frozen import frozen


@frozen
class Point:
    x: int
    y: int = 0


@frozen
class Place(Point):
    """Another class with the same fields."""


@frozen
class Keyring:
    owner: str
    secret: str = field(repr=False)
    uses: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"the keys of {self.owner}"


def test_values_of_one_class_are_equal_by_their_fields() -> None:
    assert Point(1, 2) == Point(1, y=2)
    assert Point(1, 2) != Point(2, 1)
    assert len({Point(1), Point(1), Point(2)}) == 2
    one: Any = Point(1)
    assert one != Place(1)
    assert one != (1, 0)


@pytest.mark.parametrize("name", ["x", "y", "z"])
def test_nothing_can_be_set_or_deleted(name: str) -> None:
    point = Point(1)
    with pytest.raises((FrozenInstanceError, AttributeError)):
        setattr(point, name, 3)
    with pytest.raises(FrozenInstanceError):
        delattr(point, name)
    assert point == Point(1, 0)


def test_a_hidden_field_is_not_shown() -> None:
    keys = Keyring("ann", "hush")
    assert repr(keys) == "Keyring(owner='ann', uses=[])"
    assert str(keys) == "the keys of ann"
    assert keys != Keyring("ann", "other")


def test_values_can_be_changed_copied_and_matched() -> None:
    point = replace(Point(1), y=5)
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == Point(1, 5)
    match point:
        case Point(x, y):
            assert (x, y) == (1, 5)
