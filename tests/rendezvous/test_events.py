"""Old messages stay readable: `tests/wire/` keeps one of each kind, with every field set.

A file is never changed. A message that gets a new form gets a second file (`JoinRequest.2.json`),
and the first one must still be read; what it does not tell is left at its default.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

import rendezvous.wire
from rendezvous.run.events import Event, dump_event, load_event
from rendezvous.wire.reports import Report
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import Wire

STORED = sorted((Path(__file__).parent.parent / "wire").glob("*.json"))
EVENTS = [path for path in STORED if path.name.startswith("event-")]
MODELS = [path for path in STORED if path not in EVENTS]
REPORTS = [
    path
    for path in MODELS
    if path.name.split(".")[0].endswith("Report")
    and not path.name.startswith(("RunReport.", "LookReport."))
]
WIRE = {
    name: value
    for module in pkgutil.iter_modules(rendezvous.wire.__path__)
    for name, value in vars(importlib.import_module(f"rendezvous.wire.{module.name}")).items()
}
KINDS = {model.model_fields["kind"].default for model in get_args(get_args(Event)[0])}


def model_of(path: Path) -> TypeAdapter[Any]:
    return TypeAdapter(WIRE[path.name.split(".")[0]])


def read(path: Path) -> Any:
    """What is stored in the file, read as its receiver reads it."""
    data = path.read_bytes()
    return load_event(data) if path in EVENTS else model_of(path).validate_json(data)


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", STORED, ids=named)
def test_a_stored_message_is_read_whole(path: Path) -> None:
    stored = json.loads(path.read_bytes())
    found = read(path)
    assert _of_these(json.loads(to_json(found)), stored) == stored


def _of_these(value: Any, names: Any) -> Any:
    """The value without the fields that are not named, at any depth."""
    if isinstance(names, dict):
        return {name: _of_these(value[name], more) for name, more in names.items()}
    if isinstance(names, list):
        return [_of_these(one, more) for one, more in zip(value, names, strict=True)]
    return value


@pytest.mark.parametrize("path", EVENTS, ids=named)
def test_an_event_is_written_as_it_was_read(path: Path) -> None:
    event = load_event(path.read_bytes())
    assert load_event(dump_event(event)) == event


@pytest.mark.parametrize("path", REPORTS, ids=named)
def test_a_report_is_known_by_its_kind(path: Path) -> None:
    report: TypeAdapter[Any] = TypeAdapter(Report)
    assert report.validate_json(path.read_bytes(), strict=True) == read(path)


def test_every_kind_of_event_is_stored() -> None:
    assert {json.loads(path.read_bytes())["kind"] for path in EVENTS} == KINDS


def test_every_model_of_the_wire_is_stored_with_every_field_set() -> None:
    models = {
        model
        for model in WIRE.values()
        if isinstance(model, type) and model.__module__.startswith(rendezvous.wire.__name__)
        if is_dataclass(model) or issubclass(model, BaseModel)
    } - {Wire}
    stored: set[type[Any]] = set()
    for path in MODELS:
        stored |= _complete_models(read(path), json.loads(path.read_bytes()))
    assert {model.__name__ for model in models - stored} == set()


def _complete_models(value: Any, stored: Any) -> set[type[Any]]:
    """The models in a message of which every field was given."""
    if isinstance(value, list):
        return set().union(*map(_complete_models, value, stored))
    if isinstance(value, dict):
        return set().union(*(_complete_models(one, stored[str(key)]) for key, one in value.items()))
    is_model = isinstance(value, BaseModel)
    if not is_model and not is_dataclass(value):
        return set()
    names = type(value).model_fields if is_model else [each.name for each in fields(value)]
    complete = {type(value)} if stored.keys() >= set(names) else set()
    given = (
        _complete_models(getattr(value, name), stored[name]) for name in names if name in stored
    )
    return complete.union(*given)


@pytest.mark.parametrize("path", STORED, ids=named)
def test_a_newer_peer_may_say_more(path: Path) -> None:
    """Models of a person's settings (`RunSpec`, `TenantRequest`) refuse what they do not know."""
    told = json.loads(path.read_bytes())
    if path.name.startswith(("RunSpec.", "TenantRequest.")):
        with pytest.raises(ValidationError, match="invented"):
            model_of(path).validate_json(json.dumps(told | {"invented": 1}))
        return
    data = json.dumps(told | {"invented": {"by": "a newer version"}}).encode()
    more = load_event(data) if path in EVENTS else model_of(path).validate_json(data)
    assert more == read(path)


def test_the_digest_of_a_table_is_the_same_in_every_version() -> None:
    """Registry and nodes of two versions must name one table alike."""
    path = next(path for path in MODELS if path.stem == "EndpointTable.2")
    table = EndpointTable.model_validate_json(path.read_bytes())
    assert table.digest() == ("907d0df23993f76b60ede67b2d7a7fe8084d01255c9923ea19d32a731605e893")
