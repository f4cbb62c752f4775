"""The fields of all messages: peers of one protocol number have to understand each other, so within
a released number a field is only ever added, with a default.

`python -m tests.support.wire_fields`, a step of each release, writes them to
`tests/wire/fields.txt`, and those of a feature to `tests/features/NAME/wire/fields.txt`; it refuses
to leave out or change one unless `PROTOCOL` has been raised. Before the first release there are no
such files.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

import rendezvous.wire
from rendezvous.feature import Lazy, declared
from rendezvous.proof.network_class import NetworkClass
from rendezvous.registry.journal import JOURNAL
from rendezvous.run import events
from rendezvous.run.placement import Placed, Placement
from rendezvous.run.records import Departure, Fence, RefusedJoin
from rendezvous.run.state import Attempt, LeftOut, Node, Probing, Run, Slot, Starts
from rendezvous.wire.protocol import PROTOCOL, Greeting
from rendezvous.wire.types import Wire

FOLDER = Path(__file__).parents[1] / "wire"
FEATURES = {
    f"features.{one.name}.wire": FOLDER.parent / "features" / one.name / "wire"
    for one in declared()
}
"""The module of a feature's messages, and where they are stored."""
FOLDERS = (FOLDER, *FEATURES.values())
_RAISE = "raise PROTOCOL in rendezvous/wire/protocol.py, and describe the change in CHANGELOG.md"
_RAISE_JOURNAL = "raise JOURNAL in rendezvous/registry/journal.py, and describe it in CHANGELOG.md"


_HEAD = f"protocol {PROTOCOL}"
_VERSION = "journal version"
_EVENTS = {kind.__name__ for kind in get_args(get_args(events.Event)[0])}
_PARTS = (Wire, Greeting, events.NodeEvent)
_STATE: tuple[Any, ...] = (
    *(Run, Slot, Node, Attempt, Probing, Starts),
    *(LeftOut, NetworkClass, Placed, Placement, Departure, Fence, RefusedJoin),
)


def stored(message: Lazy) -> Any:
    """The stored sample of a feature's message."""
    return json.loads((FEATURES[message.module] / f"{message.name}.json").read_bytes())


def models() -> dict[str, Any]:
    """The models of the wire and the events of the journal, by name.

    `Greeting` is a part of `JoinRequest`, and `NodeEvent` of several events.
    """
    core = pkgutil.iter_modules(rendezvous.wire.__path__, "rendezvous.wire.")
    names = [*(one.name for one in core), *FEATURES]
    found = {
        name: value
        for module in (*map(importlib.import_module, names), events)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ in (*names, events.__name__)
        if is_dataclass(value) or issubclass(value, BaseModel)
        if hasattr(value, "__pydantic_validator__") or hasattr(value, "__pydantic_config__")
    }
    return {name: one for name, one in found.items() if one not in _PARTS}


def fields_of(model: Any) -> Mapping[str, Any]:
    """The fields of a model, by name."""
    found: Mapping[str, Any] | None = getattr(model, "model_fields", None)
    if found is None:
        known = hasattr(model, "__pydantic_fields__")
        found = (model if known else pydantic_dataclass(frozen=True)(model)).__pydantic_fields__
    return found


def all_fields(folder: Path = FOLDER) -> dict[str, str]:
    """Every field of the messages that a folder stores as `Model.field`: whether it is needed, and
    its type."""
    found = {}
    known = models().items()
    for name, model in sorted(known, key=itemgetter(0)):
        if FEATURES.get(model.__module__, FOLDER) != folder:
            continue
        schema = TypeAdapter(model).json_schema()
        own = schema if "properties" in schema else schema["$defs"][name]
        for field, about in fields_of(model).items():
            kind = "|".join(sorted(set(_types(own["properties"][field]))))
            found[f"{name}.{field}"] = f"{'needed' if about.is_required() else 'default'} {kind}"
    if folder != FOLDER:
        return found
    found[_VERSION] = str(JOURNAL)
    for model in _STATE:  # of which the journal keeps what changes
        for one in fields(model):
            is_needed = one.default is MISSING and one.default_factory is MISSING
            about = f"{'needed' if is_needed else 'default'} {one.type}"
            found[f"state {model.__name__}.{one.name}"] = about
    return found


def _types(schema: dict[str, Any]) -> Iterator[str]:
    for each in schema.get("anyOf", schema.get("oneOf", [])):
        yield from _types(each)
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2]
    elif "const" in schema:
        yield f"={schema['const']}"
    elif schema.get("type") == "array" and "items" in schema:
        yield f"[{'|'.join(_types(schema['items']))}]"
    elif isinstance(schema.get("additionalProperties"), dict):
        yield f"{{{'|'.join(_types(schema['additionalProperties']))}}}"
    elif "type" in schema:
        yield schema["type"]


def changes(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The changes that a released number does not allow, as sentences."""
    found = _changes_of_journal(known, now)
    known = {field: about for field, about in known.items() if not _is_of_journal(field)}
    now = {field: about for field, about in now.items() if not _is_of_journal(field)}
    for field, about in known.items():
        if field not in now:
            found.append(f"{field} is gone: {_RAISE}")
        elif now[field] != about:
            found.append(f"{field} was '{about}' and is '{now[field]}': {_RAISE}")
    added = (field for field in now if field not in known)
    models_before = {field.partition(".")[0] for field in known}
    for field in added:
        if now[field].startswith("needed") and field.partition(".")[0] in models_before:
            found.append(f"{field} is new and has no default: give it one, or {_RAISE}")
    return found


def _is_of_journal(field: str) -> bool:
    about_state = field.startswith("state ") or field == _VERSION
    return about_state or field.partition(".")[0] in _EVENTS


def _changes_of_journal(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Any change at all: a field that a reader passes over would be lost to it."""
    names = sorted(filter(_is_of_journal, {*known, *now}))
    differ = [n for n in names if n != _VERSION and known.get(n) != now.get(n)]
    if not differ or known.get(_VERSION) != now.get(_VERSION):
        return []
    return [f"{name} is another one: {_RAISE_JOURNAL}" for name in differ]


def read_released(folder: Path = FOLDER) -> dict[str, str]:
    """The fields that the last release had, if its protocol is the one of now; else nothing."""
    file = folder / "fields.txt"
    if not file.exists():
        return {}
    head, *lines = file.read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines) if head == _HEAD else {}


def main() -> None:
    """Write the files, unless a released number forbids it."""
    for folder in FOLDERS:
        found = all_fields(folder)
        if wrong := changes(read_released(folder), found):
            sys.exit("\n".join(wrong))
        lines = [_HEAD, *(f"{name}: {about}" for name, about in found.items())]
        (folder / "fields.txt").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
