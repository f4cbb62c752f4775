"""Each message is stored, in `tests/wire/NAME.json`, and those of a feature in
`tests/features/FEATURE/wire`; every field is set to something of its own in one of these samples.

A number that was released allows new fields only: see `tests.support.wire_fields`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from rendezvous.wire.protocol import Greeting
from rendezvous.wire.reports import Report
from rendezvous.wire.table import EndpointTable
from tests.support.wire_fields import (
    FOLDER,
    FOLDERS,
    all_fields,
    changes,
    fields_of,
    models,
    read_released,
)

STORED = sorted(path for folder in FOLDERS for path in folder.glob("*.json"))
REPORTS = [
    path
    for path in STORED
    if "kind" in fields_of(models()[path.stem]) and path.stem.endswith("Report")
]


def model_of(path: Path) -> TypeAdapter[Any]:
    return TypeAdapter(models()[path.stem])


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", STORED, ids=named)
def test_a_message_is_read_and_written_back_the_same(path: Path) -> None:
    found = model_of(path).validate_json(path.read_bytes())
    written = to_json(found)
    assert model_of(path).validate_json(written) == found
    assert _kept(json.loads(path.read_bytes()), json.loads(written))


def _kept(stored: Any, written: Any) -> bool:
    """Whether all that is stored was written; a field that it leaves out has its default."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return all(name in written and _kept(each, written[name]) for name, each in stored.items())
    if isinstance(stored, list) and isinstance(written, list):
        return len(stored) == len(written) and all(map(_kept, stored, written))
    return bool(stored == written)


def test_every_field_has_a_value_of_its_own_in_a_stored_message() -> None:
    unset: dict[str, bool] = {}
    for path in STORED:
        for model, values in _models_in(model_of(path).validate_json(path.read_bytes())):
            for name, field in fields_of(model).items():
                usual = (
                    None if field.is_required() else field.get_default(call_default_factory=True)
                )
                is_set = field.is_required() or name == "kind" or values[name] != usual
                key = f"{model.__name__}.{name}"
                unset[key] = unset.get(key, True) and not is_set
    assert [key for key, is_unset in unset.items() if is_unset] == []


def _models_in(value: Any) -> Iterator[tuple[type[Any], dict[str, Any]]]:
    """The models in a message, each with its fields."""
    if isinstance(value, list):
        for one in value:
            yield from _models_in(one)
    elif isinstance(value, dict):
        yield from _models_in([*value.values()])
    elif isinstance(value, BaseModel) or is_dataclass(value):
        values = {name: getattr(value, name) for name in fields_of(type(value))}
        yield type(value), values
        yield from _models_in(values)


def test_every_model_is_stored_by_itself_or_within_another_one() -> None:
    found = (
        model
        for path in STORED
        for model, _ in _models_in(model_of(path).validate_json(path.read_bytes()))
    )
    assert {*models().values()} - {*found} == set()


@pytest.mark.parametrize("path", REPORTS, ids=named)
def test_a_report_is_known_by_its_kind(path: Path) -> None:
    report: TypeAdapter[Any] = TypeAdapter(Report)
    read = model_of(path).validate_json(path.read_bytes())
    assert report.validate_json(path.read_bytes(), strict=True) == read


@pytest.mark.parametrize("path", STORED, ids=named)
def test_a_peer_of_the_same_protocol_may_say_more(path: Path) -> None:
    """Models of a person's settings (`RunSpec`, `TenantRequest`) refuse what they do not know."""
    told, model = json.loads(path.read_bytes()), model_of(path)
    if path.stem in ("RunSpec", "TenantRequest"):
        with pytest.raises(ValidationError, match="invented"):
            model.validate_json(json.dumps(told | {"invented": 1}))
        return
    more = model.validate_json(json.dumps(told | {"invented": {"by": "a newer version"}}))
    assert more == model.validate_json(path.read_bytes())


def test_the_digest_of_a_table_is_the_same_in_every_version() -> None:
    """Registry and nodes of one protocol must name one table alike."""
    table = EndpointTable.model_validate_json((FOLDER / "EndpointTable.json").read_bytes())
    assert table.digest() == "dcb24d54c6fe2023244f3a0df2a3e32689f019625af4b5839a302bb61f98a31b"


# --- one number


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_a_released_protocol_keeps_its_fields(folder: Path) -> None:
    """Before the first release, and with each new number, there are none."""
    assert changes(read_released(folder), all_fields(folder)) == []


FOR_EVER = {
    "Problem.code": "needed string",
    "Problem.message": "needed string",
    "Problem.hint": "default string",
    "Problem.retryable": "default boolean",
    "Refusal.hostname": "needed string",
    "Refusal.code": "needed string",
    "Refusal.reason": "needed string",
    "Refusal.hint": "default string",
    "Refusal.exit_code": "needed integer",
    "Refusal.retryable": "default boolean",
    "Refusal.of_slot": "default boolean",
    "JoinRequest.protocol": "needed integer",
    "JoinRequest.slot": "needed integer",
    "JoinRequest.generation": "needed integer",
    "JoinRequest.hostname": "needed string",
    "JoinRequest.facts": "needed Facts",
    "Facts.rdzv_version": "default string",
}
"""What peers of any two numbers tell each other: no number changes it."""


def test_what_a_refusal_is_made_of_is_the_same_in_every_protocol() -> None:
    found = all_fields()
    assert {name: found[name] for name in FOR_EVER} == FOR_EVER
    needed = {name for name in found if found[name].startswith("needed")}
    of_refusals = {name for name in needed if name.startswith(("Problem.", "Refusal."))}
    assert of_refusals <= FOR_EVER.keys()
    assert [*fields_of(Greeting)] == ["protocol", "slot", "generation", "hostname", "facts"]


FIELDS = {"A.slot": "needed integer", "A.words": "default string"}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (FIELDS, ""),
        (FIELDS | {"A.more": "default integer", "B.slot": "needed integer"}, ""),
        (FIELDS | {"A.more": "needed integer"}, "A.more is new and has no default: give it one"),
        ({"A.slot": "needed integer"}, "A.words is gone"),
        (
            FIELDS | {"A.slot": "needed string"},
            "A.slot was 'needed integer' and is 'needed string'",
        ),
        (FIELDS | {"A.words": "needed string"}, "A.words was 'default string' and is"),
    ],
)
def test_a_released_number_only_gets_more_fields(now: dict[str, str], words: str) -> None:
    found = changes(FIELDS, now)
    assert len(found) == bool(words)
    for one in found:
        assert one.startswith(words)
        assert "raise PROTOCOL in rendezvous/wire/protocol.py" in one


STATE = {"journal version": "7", "state Slot.told": "default str", "Lost.slot": "needed integer"}


@pytest.mark.parametrize(
    "now",
    [
        STATE | {"state Slot.more": "default str"},
        STATE | {"state Slot.told": "default int"},
        STATE | {"Lost.more": "default integer"},
        {"journal version": "7", "Lost.slot": "needed integer"},
    ],
)
def test_a_journal_of_a_released_version_gets_no_other_field(now: dict[str, str]) -> None:
    (found,) = changes(STATE, now)
    assert "is another one: raise JOURNAL in rendezvous/registry/journal.py" in found
    assert changes(STATE, now | {"journal version": "8"}) == []
