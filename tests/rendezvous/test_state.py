"""The state of a run is declared so that nothing of it can change but by an assignment that the
journal sees."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from rendezvous.run.state import LeftOut, Run
from rendezvous.run.tracked import EditedMapping, EditedSet, Tracked

_UNCHANGEABLE = {tuple, Sequence, Mapping, AbstractSet, EditedSet, EditedMapping}
_UNIONS = {typing.Union, types.UnionType}
_PLAIN = (int, float, str, bytes, range, types.NoneType, Enum)


def changeable(kind: Any, place: str, seen: set[Any]) -> Iterator[str]:
    """Where a value of this type may be changed in place, as it is declared.

    Of a message of the wire only that its fields cannot be assigned.
    """
    if kind in seen or kind is ...:
        return
    origin = typing.get_origin(kind)
    if origin in _UNCHANGEABLE | _UNIONS:
        for inner in typing.get_args(kind):
            yield from changeable(inner, place, seen)
    elif not isinstance(kind, type) or origin is not None:
        yield f"{place}: {kind}"
    elif issubclass(kind, BaseModel):
        if not kind.model_config.get("frozen"):
            yield f"{place}: {kind.__name__}"
    elif dataclasses.is_dataclass(kind):
        is_message = kind.__module__.startswith("rendezvous.wire.")
        if not is_frozen(kind) and not issubclass(kind, Tracked):
            yield f"{place}: {kind.__name__}"
        seen.add(kind)
        for name, inner in {} if is_message else typing.get_type_hints(kind).items():
            yield from changeable(inner, f"{kind.__name__}.{name}", seen)
    elif not issubclass(kind, _PLAIN):
        yield f"{place}: {kind.__name__}"


def is_frozen(kind: Any) -> bool:
    """Whether no field of a dataclass can be assigned once it is made."""
    made, name = object.__new__(kind), dataclasses.fields(kind)[0].name
    object.__setattr__(made, name, None)
    try:
        setattr(made, name, None)
    except dataclasses.FrozenInstanceError:
        return True
    return False


def test_no_field_of_the_state_can_be_changed_behind_the_journal() -> None:
    assert list(changeable(Run, "Run", set())) == []


@dataclasses.dataclass
class Open:
    """A record that is not frozen."""

    number: int


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (list[int], "x: list[int]"),
        (dict[int, LeftOut], "x: dict[int, rendezvous.run.state.LeftOut]"),
        (set[int] | None, "x: set[int]"),
        (Mapping[int, list[int]], "x: list[int]"),
        (tuple[dict[int, int], ...], "x: dict[int, int]"),
        (Open, "x: Open"),
        (list, "x: list"),
    ],
)
def test_a_field_that_can_be_changed_in_place_is_found(kind: Any, words: str) -> None:
    assert list(changeable(kind, "x", set())) == [words]
