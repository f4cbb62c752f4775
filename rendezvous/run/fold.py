"""Applies what a journal holds: the event, and what was decided on it then. Pure.

Nothing is decided here: whichever rules this version of rdzv has, a run comes out of its journal as
the one that wrote it had it. The format is that of `rendezvous.run.changes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import to_json

from rendezvous.proof.network_class import NetworkClass
from rendezvous.run.changes import Written
from rendezvous.run.decision import Decision
from rendezvous.run.events import Event
from rendezvous.run.placement import Placement, placement_of
from rendezvous.run.state import Attempt, Node, Probing, Run, Slot, Starts
from rendezvous.run.tracked import (
    EditedMapping,
    EditedSet,
    Tracked,
    TrackedDict,
    TrackedSet,
)
from rendezvous.wire.node import Candidate
from rendezvous.wire.run import Round
from rendezvous.wire.table import EndpointTable, digest_of
from rendezvous.wire.types import adapter_of


def apply(run: Run, event: Event, decision: Decision) -> None:
    """Change the run as was decided; raises ValueError, LookupError, AttributeError, TypeError or
    AssertionError where that does not fit it."""
    run.version += 1
    _Reader(run, event, decision.table).make(decision.changed)


class _Reader:
    """Makes the changes that were written for one event."""

    def __init__(self, run: Run, event: Event, table: bytes) -> None:
        self._run, self._event, self._table = run, event, table
        self._probing = run.attempt.probing

    def make(self, written: Mapping[str, Written]) -> None:
        """Make all of them, containers first: a new object may hold what was put into one."""
        run, slots = self._run, self._run.slots
        self._edit_containers(run, written.get("run", {}))
        self._edit_containers(run.attempt.probing, written.get("probing", {}))
        for key, (indices, values) in written.get("slots", {}).items():
            for index, value in zip(indices, values, strict=True):
                self._set(slots[index], key, value)
        for key, (indices, values) in written.get("nodes", {}).items():
            for index, value in zip(indices, values, strict=True):
                self._set(slots[index].its_node, key, value)
        parts = {
            "attempt": run.attempt,
            "probing": run.attempt.probing,
            "starts": run.starts,
            "run": run,
        }
        for part, holder in parts.items():
            for key, value in written.get(part, {}).items():
                if key not in _IN_PLACE.get(type(holder), ()):
                    self._set(holder, key, value)

    def _edit_containers(self, holder: Run | Probing | None, written: Written) -> None:
        for key, edit in written.items():
            if key not in _IN_PLACE.get(type(holder), ()):
                continue
            held: TrackedSet[int] | TrackedDict[int, Any] = getattr(holder, key[:-1])
            if isinstance(held, TrackedDict):
                self._put(held, _HINTS[type(holder)][key[:-1]], edit)
            else:
                held.difference_update(edit.get("-", ()))
                held.update(edit.get("+", ()))

    def _put(self, held: TrackedDict[int, Any], kind: Any, edit: Written) -> None:
        for slot, value in edit.get("+", {}).items():
            held[int(slot)] = self._plain(get_args(kind)[1], value, None)
        for slot, path in edit.get("=", {}).items():
            held[int(slot)] = part_at(self._event, path)

    def _set(self, holder: Any, key: str, value: Any) -> None:
        """Set a field."""
        if key == "table":
            self._set_table(holder, value)
        elif key == "network":
            holder.network = None if value is None else holder.classes[value]
        else:
            name, made = self._field(type(holder), key, value, holder)
            setattr(holder, name, made)

    def _field(self, kind: Any, key: str, value: Any, former: Any) -> tuple[str, Any]:
        """Read a field of this class; what is edited is that of the former object."""
        if (scalar := _SCALARS[kind].get(key)) is not None:
            return key, None if value is None else scalar(value)
        name, form = (key[:-1], key[-1]) if key[-1] in "=~" else (key, "")
        if form == "=":
            return name, part_at(self._event, value)
        before = getattr(former, name, None)
        read = self._edited if form else self._plain
        return name, read(_HINTS[kind][name], value, before)

    def _set_table(self, attempt: Attempt, is_new: object) -> None:
        if not is_new:
            attempt.table, attempt.written, attempt.digest = None, b"", ""
            return
        attempt.table = EndpointTable.model_validate_json(self._table)
        attempt.written, attempt.digest = self._table, digest_of(self._table)

    def _edited(self, kind: Any, value: Any, before: Any) -> Any:
        """A list, tuple or dict, of the one before."""
        if isinstance(value, list):
            item = get_args(kind)[0]
            items = [
                self._plain(item, one[0], None) if isinstance(one, list) else before[one]
                for one in value
            ]
            return tuple(items) if get_origin(kind) is tuple else items
        key_kind, item = get_args(kind)
        gone = {key_kind(key) for key in value.get("-", ())}
        out = {key: one for key, one in before.items() if key not in gone}
        new = {key: self._plain(item, one, None) for key, one in value.get("+", {}).items()}
        new |= {key: part_at(self._event, path) for key, path in value.get("=", {}).items()}
        for text, one in new.items():
            out.pop(key := key_kind(text), None)  # it is the last one now
            out[key] = one
        return out

    def _plain(self, kind: Any, value: Any, before: Any) -> Any:
        """A value of this type."""
        if value is None:
            return None
        kind = _without_none(kind)
        of = get_origin(kind)
        if kind is NetworkClass:
            return self._network(value)
        if kind is Placement:
            return self._placement()
        if kind is Round and "reports" not in value:
            assert self._probing is not None
            reports = {slot: list(pairs) for slot, pairs in self._probing.reports.items()}
            return Round(**value, reports=reports)
        if of is tuple and get_args(kind)[1:] == (...,):
            item = get_args(kind)[0]
            return tuple([self._plain(item, one, None) for one in value])
        if of is EditedSet:
            return TrackedSet(value)
        if of is EditedMapping:
            item = get_args(kind)[1]
            return TrackedDict({int(k): self._plain(item, v, None) for k, v in value.items()})
        if isinstance(kind, type) and issubclass(kind, Tracked):
            return self._whole(kind, value, before)
        return _read(kind, value)

    def _whole(self, kind: type[Tracked], written: Written, former: Any) -> Any:
        """A new object, in the place of a former one."""
        values = {name: getattr(former, name) for name in written.get("^", ())}
        later = {}
        for key, value in written.items():
            if key in ("table", "network"):  # which follow from what the object holds
                later[key] = value
            elif key != "^":
                name, values[name] = self._field(kind, key, value, former)
        made = kind(**values)
        for key, value in later.items():
            self._set(made, key, value)
        return made

    def _network(self, value: Any) -> NetworkClass:
        members = {
            slot: self._run.slots[slot].its_node.join.candidates[one]
            if isinstance(one, int)
            else _read(Candidate, one)
            for slot, one in zip(value["slots"], value["members"], strict=True)
        }
        return NetworkClass(value["number"], value["words"], members, value["is_last"])

    def _placement(self) -> Placement:
        table = self._run.table
        assert table is not None
        slots = self._run.slots
        return placement_of(table, {r.slot: slots[r.slot].its_node.incarnation for r in table.rows})


def part_at(event: BaseModel, path: str) -> Any:
    """The part of an event that a path names, the event itself where it is empty."""
    return functools.reduce(getattr, path.split("."), event) if path else event


@functools.cache
def _without_none(kind: Any) -> Any:
    """The one type that may be missing, of `X | None`."""
    if get_origin(kind) in (Union, UnionType):
        some = [one for one in get_args(kind) if one is not NoneType]
        return some[0] if len(some) == 1 else kind
    return kind


def _scalars_of(hints: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
    """The fields that hold no more than a number, a text or a word."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, hint in hints.items():
        one = _without_none(hint)
        if one in (int, float, str, bool) or (isinstance(one, type) and issubclass(one, Enum)):
            found[name] = one
    return found


_KINDS: tuple[Any, ...] = (Run, Slot, Node, Attempt, Probing, Starts)
_HINTS: dict[Any, dict[str, Any]] = {kind: get_type_hints(kind) for kind in _KINDS}
_SCALARS = {kind: _scalars_of(hints) for kind, hints in _HINTS.items()}
_IN_PLACE = {
    kind: [
        f"{name}~" for name, hint in hints.items() if get_origin(hint) in (EditedSet, EditedMapping)
    ]
    for kind, hints in _HINTS.items()
}
"""The edits of containers, which are changed in place and before all else."""


def _read(kind: Any, value: Any) -> Any:
    return adapter_of(kind).validate_json(to_json(value))
