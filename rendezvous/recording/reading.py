"""Reads a recording, and feeds it to the machine that is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from rendezvous.frozen import frozen
from rendezvous.recording.recorder import FORMAT, Codec, Step
from rendezvous.recording.values import hints_of, made, words
from rendezvous.wire.errors import UsageError

_BEGIN = b'{"rdzv":"recording"'
_FAULTS = (TypeError, ValueError, KeyError, AttributeError)
"""What may come of a file that somebody has changed, or that another version has written."""


@frozen
class Line:
    """One input as it stands in the file.

    Attributes:
        number: Counts the inputs from 1; those that are missing are left out.
        at: On the clock of the recorded loop.
        values: Of its fields, but for those that are `same` as in the last input of its class.
        actions: In words: what the machine did about it.
    """

    number: int
    at: float
    input: str
    values: dict[str, Any] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)


@frozen
class Recording:
    """A recording that was read.

    Attributes:
        of: Which machine's.
        version: Of the rdzv that wrote it.
        at: When the machine was made, on the clock of the recorded loop.
        made_with: As it stands in the file.
        actions: What the machine did first.
    """

    of: str
    version: str
    at: float
    made_with: dict[str, Any]
    actions: list[str]
    lines: list[Line]


@frozen
class Replayed:
    """One input of a recording that was fed again.

    Attributes:
        line: As it was recorded; None: the machine was made.
        actions: What the machine does now; None where it was not fed: inputs before it are missing.
    """

    line: Line | None
    recorded: list[str]
    actions: list[str] | None

    @property
    def differs(self) -> bool:
        """Whether the machine now does something else."""
        return self.actions is not None and self.actions != self.recorded


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return False


def read(parts: Sequence[Path]) -> Recording:
    """Read a recording from its parts, in order. Raises UsageError."""
    try:
        texts = [text for part in parts for text in part.read_bytes().splitlines()]
        first, *rest = (json.loads(text) for text in texts if _is_whole(text))
        if first.pop("rdzv") != "recording":
            raise KeyError("rdzv")
        if (form := first.pop("format")) != FORMAT:
            raise UsageError(
                f"{parts[0]} is a recording of format {form}, but this rdzv reads format {FORMAT}",
                hint=f"replay it with the rdzv that wrote it: {first.get('version')}",
            )
        found: Recording = made(Recording, {**first, "lines": rest})
    except OSError as exc:
        raise UsageError(f"{exc.filename} cannot be read: {exc.strerror}") from exc
    except _FAULTS as exc:
        raise UsageError(f"{parts[0]} is not a complete recording: {exc!r}") from exc
    return found


def _is_whole(text: bytes) -> bool:
    """Not the last line of a killed process, and not the one that says what was left out; that
    inputs are missing is seen by their numbers."""
    return text.startswith(b"{") and text.endswith(b"}")


def replay(recording: Recording, codec: Codec) -> Iterator[Replayed]:
    """Feed the recording to a machine made anew, up to where inputs are missing.

    Raises:
        UsageError: A value cannot be read: another version wrote it, or somebody has changed it.
    """
    try:
        given = {name: made(codec.made_with[name], v) for name, v in recording.made_with.items()}
        actions, step = codec.start(given, recording.at)
    except _FAULTS as exc:
        raise _not_understood("what the machine was made with", recording, exc) from exc
    yield Replayed(None, recording.actions, [words(action) for action in actions])
    fed = 0
    for line, said in inputs_of(recording, codec):
        yield Replayed(line, line.actions, _does(step, said, line.at))
        fed += 1
    yield from (Replayed(line, line.actions, None) for line in recording.lines[fed:])


def inputs_of(recording: Recording, codec: Codec) -> Iterator[tuple[Line, Any]]:
    """The inputs up to the first that is missing. Raises UsageError as `replay` does."""
    kinds = {kind.__name__: kind for kind in codec.inputs}
    last: dict[tuple[str, str], Any] = {}
    for expected, line in enumerate(recording.lines, 1):
        if line.number != expected:
            return
        try:
            said = _input(kinds[line.input], line, last)
        except _FAULTS as exc:
            raise _not_understood(f"input {line.number}", recording, exc) from exc
        yield line, said


def _does(step: Step, said: Any, at: float) -> list[str]:
    try:
        return [words(action) for action in step(said, at)]
    except Exception as exc:  # noqa: BLE001 (it may be what the recording is looked at for)
        return [f"raises {exc!r}"]


def _input(kind: type, line: Line, last: dict[tuple[str, str], Any]) -> Any:
    hints, values = hints_of(kind), {}
    for name, value in line.values.items():
        values[name] = last[line.input, name] = made(hints[name], value)
    return kind(**values, **{name: last[line.input, name] for name in line.same})


def _not_understood(what: str, recording: Recording, error: Exception) -> UsageError:
    return UsageError(
        f"{what} cannot be understood: {error!r}",
        hint=f"replay it with the rdzv that wrote it: {recording.version}",
    )
