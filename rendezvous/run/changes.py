"""The changes that a decision has made to a run, as a journal keeps them: written and read. Pure.

    {"run": {FIELD: VALUE}, "attempt": ..., "starts": ..., "probing": ...,
     "slots": {FIELD: [[SLOT, ...], [VALUE, ...]]}, "nodes": ...}

What the event itself brings, and what was there before, is not written again. The last character of
a field's name says how its value is written:

    name    the value
    name=   the part of the event that it is: `report`, `report.pairs`, or the event itself (empty)
    name~   what is edited: of a list its items, in which a number is that item of the former list;
            of a set or dict what is taken out (`-`) and put in (`+`, `=` for parts of the event)
    ^       the fields that a new object has from the one in whose place it is
"""

from __future__ import annotations

import functools
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, cast

from pydantic import BaseModel

from rendezvous.proof.network_class import NetworkClass
from rendezvous.run.placement import Placement
from rendezvous.run.state import Attempt, Node, Probing, Run, Slot, Starts
from rendezvous.run.tracked import Assigned, Tracked, TrackedDict, TrackedSet
from rendezvous.wire.run import NodeState, Phase, Round, SlotState

Written = dict[str, Any]
"""An object of JSON; its values are what `pydantic_core.to_json` takes."""

_ENUMS = frozenset({NodeState, SlotState, Phase})
_PLAIN = _ENUMS | {NoneType, bool, int, float, str}
_PARTS: dict[type, str] = {Run: "run", Attempt: "attempt", Starts: "starts", Probing: "probing"}
_NOTHING = object()
"""Stands for a field that was not there before."""


class Writer:
    """Writes what was assigned while one event was decided on."""

    def __init__(self, run: Run, event: BaseModel, assigned: Assigned) -> None:
        self._run, self._event, self._assigned = run, event, assigned
        self.table = b""
        """Canonical form of the table that was sealed; empty: none was."""

    @functools.cached_property
    def _paths(self) -> dict[int, str]:
        return parts_of(self._event)

    @functools.cached_property
    def _probing(self) -> Probing | None:
        """The round of probes that was on before."""
        probing: Probing | None = self._former(self._former(self._run, "attempt"), "probing")
        return probing

    def _former(self, holder: object, name: str) -> Any:
        key = id(holder), name
        return self._assigned[key][1] if key in self._assigned else getattr(holder, name)

    def write(self) -> Written:
        """All that has changed."""
        out: Written = {}
        nodes: Written = {}
        slots, assigned = self._run.slots, self._assigned
        for (_, name), (holder, before) in assigned.items():
            kind = type(holder)
            if kind is Node:  # one event may change all of them
                slot = slots[holder.join.slot]
                if slot.node is holder and (id(slot), "node") not in assigned:
                    self._column(nodes, slot.index, name, getattr(holder, name), before)
            elif kind is Slot:
                if slots[holder.index] is holder:
                    columns = out.setdefault("slots", {})
                    self._column(columns, holder.index, name, getattr(holder, name), before)
            elif (part := _PARTS.get(kind)) is not None:
                if self._is_part(holder):
                    self._field(out.setdefault(part, {}), name, getattr(holder, name), before)
            elif kind is TrackedSet:
                self._element(out, holder, name, before)
            else:
                self._entry(out, holder, name)
        out["nodes"] = nodes
        return out if all(out.values()) else {part: each for part, each in out.items() if each}

    def _is_part(self, holder: object) -> bool:
        """Tell an object that the run had before from a new one, which another field brings."""
        run, assigned = self._run, self._assigned
        if holder is run or holder is run.starts:
            return True
        if (id(run), "attempt") in assigned:
            return False
        if holder is run.attempt:
            return True
        return holder is run.attempt.probing and (id(run.attempt), "probing") not in assigned

    def _column(self, columns: Written, index: int, name: str, value: Any, before: object) -> None:
        kind = type(value)
        if kind in _ENUMS:  # three times as fast as what `to_json` does with them
            value, before = value._value_, getattr(before, "_value_", None)
        if kind in _PLAIN:
            if value == before:
                return
        else:
            form, value = self._value(value, before)
            name += form
        if (column := columns.get(name)) is None:
            columns[name] = [index], [value]
        else:
            column[0].append(index)
            column[1].append(value)

    def _field(self, out: Written, name: str, value: Any, before: object) -> None:
        if type(value) in _PLAIN:
            if value != before and name != "digest":  # that follows from the table
                out[name] = value
        elif name == "table":
            self.table = self._run.attempt.written
            out[name] = True
        elif name == "network":
            out[name] = value.number
        elif name != "written":
            form, written = self._value(value, before)
            out[name + form] = written

    def _element(self, out: Written, holder: TrackedSet[int], element: int, was_in: bool) -> None:
        """One that was put into a set, or taken out of it."""
        name = "missing" if holder is self._run.missing else "waiting_for"
        if holder is not getattr(self._run, name) or (id(self._run), name) in self._assigned:
            return
        if was_in != (is_in := element in holder):
            edit = out.setdefault("run", {}).setdefault(f"{name}~", {})
            edit.setdefault("+" if is_in else "-", []).append(element)

    def _entry(self, out: Written, holder: TrackedDict[int, Any], key: int) -> None:
        """One that was put into a dict."""
        run = self._run
        if holder is run.worlds and (id(run), "worlds") not in self._assigned:
            edit = out.setdefault("run", {}).setdefault("worlds~", {})
        elif self._probing is not None and holder is self._probing.reports:
            edit = out.setdefault("probing", {}).setdefault("reports~", {})
        else:
            return
        self._put(edit, key, holder[key])

    # --- values -------------------------------------------------------------------------------

    def _value(self, value: Any, before: Any) -> tuple[str, Any]:
        """Return in which form it is written, and how."""
        if (path := self._paths.get(id(value))) is not None:
            return "=", path
        if isinstance(value, list | tuple) and isinstance(before, list | tuple) and before:
            places = {id(item): place for place, item in enumerate(before)}
            return "~", [
                [self._plain(item)] if (place := places.get(id(item))) is None else place
                for item in value
            ]
        if type(value) is dict and type(before) is dict:
            return self._edited_dict(value, before)
        if isinstance(value, Tracked):
            return "", self._whole(value, before if isinstance(value, Attempt) else None)
        return "", self._plain(value)

    def _edited_dict(self, value: dict[Any, Any], before: dict[Any, Any]) -> tuple[str, Any]:
        new = {key for key, one in value.items() if before.get(key, self) is not one}
        edit: Written = {}
        if gone := [key for key in before if key not in value]:
            edit["-"] = gone
        for key in value:
            if key in new:
                self._put(edit, key, value[key])
        kept = [key for key in before if key in value and key not in new]
        if [*kept, *edit.get("+", ()), *edit.get("=", ())] != [*value]:
            return "", self._plain(value)  # the order is another one
        return "~", edit

    def _put(self, edit: Written, key: Any, value: Any) -> None:
        if (path := self._paths.get(id(value))) is None:
            edit.setdefault("+", {})[key] = self._plain(value)
        else:
            edit.setdefault("=", {})[key] = path

    def _plain(self, value: Any) -> Any:
        """As `to_json` takes it."""
        if isinstance(value, NetworkClass):
            return self._network(value)
        if isinstance(value, Placement):
            return True  # it follows from the table
        if isinstance(value, Round):
            written = dict(value)
            if self._probing is not None and value.reports == self._probing.reports:
                del written["reports"]
            return written
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        return value

    def _whole(self, value: Any, former: Any) -> Written:
        """A new object, in the place of a former one."""
        out: Written = {}
        unchanged = []
        for name, default in _defaults(cast("Any", type(value))).items():
            now = getattr(value, name)
            if now is default or (now == default and type(now) is type(default)):
                continue
            # As the reader has it: what the former had before this event.
            before = _NOTHING if former is None else self._former(former, name)
            if now is before or (type(now) in _PLAIN and now == before):
                unchanged.append(name)
            else:
                self._field(out, name, now, before)
        if unchanged:
            out["^"] = unchanged
        return out

    def _network(self, value: NetworkClass) -> Written:
        """A class with the place of each node's candidate among those that it has offered."""
        members: list[Any] = []
        for slot, candidate in value.members.items():
            node = self._run.slots[slot].node
            offered = node.join.candidates if node is not None else ()
            place = next((place for place, one in enumerate(offered) if one is candidate), None)
            members.append(candidate if place is None else place)
        return {
            "number": value.number,
            "words": value.words,
            "is_last": value.is_last,
            "slots": [*value.members],
            "members": members,
        }


def parts_of(event: BaseModel) -> dict[int, str]:
    """The parts of an event that the state may hold, by identity."""
    found = {id(event): ""}
    for name, value in event.__dict__.items():
        if type(value) not in _PLAIN:
            found[id(value)] = name
            if isinstance(value, BaseModel):
                for inner, part in value.__dict__.items():
                    if type(part) not in _PLAIN:
                        found[id(part)] = f"{name}.{inner}"
    return found


@functools.cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass, with what they are unless it is said."""
    return {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in fields(kind)
    }
