"""Recordings in the hands of a test: stored ones, such that a simulation keeps, and made-up inputs.

A field report becomes a test:

    recording, codec = load(path)
    for line, said in inputs_of(recording, codec): ...        # what the machine has heard
    assert differing(path) == []                               # it still does what it did
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from pydantic.dataclasses import is_pydantic_dataclass

from launcher.run import recorded as of_a_launch
from rendezvous.recording.reading import Recording, Replayed, read, replay
from rendezvous.recording.recorder import Codec
from rendezvous.recording.values import Unforeseen, hints_of
from rendezvous.wire.errors import Fenced, Mismatch, RdzvError, Unavailable, UsageError
from rendezvous.wire.verify import PairProbe
from worker.agent import recorded as of_a_node
from worker.program.recording_file import parts_of_recording

CODECS = {codec.of: codec for codec in (of_a_launch.CODEC, of_a_node.CODEC)}
STORED = Path(__file__).parent.parent / "launcher" / "data" / "recordings"
_WIRE = Path(__file__).parent.parent / "wire"


def load(path: Path) -> tuple[Recording, Codec]:
    """A recording, with the codec of its machine."""
    recording = read(parts_of_recording(path))
    return recording, CODECS[recording.of]


def replayed(path: Path) -> list[Replayed]:
    """What the machines that ship do about it, input by input."""
    return list(replay(*load(path)))


def differing(path: Path) -> list[Replayed]:
    """Where they now do something else."""
    return [one for one in replayed(path) if one.differs]


@dataclass
class Kept:
    """Keeps the lines of a recording in memory."""

    lines: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        """See `rendezvous.recording.recorder.Sink`."""
        self.lines.append(data)

    def close(self) -> None:
        """See `rendezvous.recording.recorder.Sink`."""

    def save(self, path: Path) -> Path:
        """Write them into a file."""
        path.write_bytes(b"".join(self.lines))
        return path


# --- made-up inputs -------------------------------------------------------------------------------

ERRORS: list[RdzvError] = [
    Unavailable("nobody listens", hint="look there"),
    Fenced("another has the slot"),
    Mismatch("another job", command_word=2, is_alone=False),
    UsageError("no such option"),
]
_PROBES = [
    PairProbe(slot=1, outcome="ok", rtt_ms=0.5, path_mtu=9_000),
    PairProbe(slot=2, outcome="timeout", detail="no answer", source="10.0.0.1"),
]
_NUMBERS = st.integers(0, 1 << 40)
_TEXTS = st.text("ab =é\n\"'\\{}\x00\U0001f600", max_size=9)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: _NUMBERS,
    float: st.floats(allow_nan=False),
    str: _TEXTS,
    PairProbe: st.sampled_from(_PROBES),
    object: _NUMBERS | _TEXTS | st.none() | st.booleans() | st.floats(allow_nan=False),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type; models are those that are stored in tests/wire."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is type(None):
        return st.none()
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        return st.one_of([values_of(one) for one in args])
    if origin is tuple and args[-1] is not ...:
        return st.tuples(*map(values_of, args))
    if origin in (tuple, list, frozenset):
        return st.lists(values_of(args[0]), max_size=3).map(origin)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3)
    return _PLAIN[hint] if hint in _PLAIN else _values_of_class(hint)


def _values_of_class(kind: type) -> st.SearchStrategy[Any]:
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if issubclass(kind, BaseModel) or is_pydantic_dataclass(kind):
        stored = sorted(_WIRE.glob(f"{kind.__name__}.*json"))
        assert stored, f"no {kind.__name__} in {_WIRE}"
        return st.sampled_from(
            [TypeAdapter(kind).validate_json(one.read_bytes()) for one in stored]
        )
    if issubclass(kind, RdzvError):
        return st.sampled_from(ERRORS)
    if issubclass(kind, BaseException):
        return st.sampled_from([*ERRORS, ValueError("so"), Unforeseen("KeyError(3)")])
    assert is_dataclass(kind), kind
    return st.builds(kind, **{name: values_of(one) for name, one in hints_of(kind).items()})


def seen_of(value: Any) -> Any:
    """What is compared: errors by their class and attributes, or their words."""
    if isinstance(value, RdzvError):
        return type(value), vars(value)
    if isinstance(value, BaseException):
        return repr(value)
    if is_dataclass(value):
        return type(value), [seen_of(getattr(value, one.name)) for one in fields(value)]
    return value
