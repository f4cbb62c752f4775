"""What `rdzv replay` prints of a recording: each input, and what the machine does about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.run.recorded import CODEC as LAUNCH
from rendezvous.recording.reading import Recording, Replayed, read, replay
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.words import printable
from worker.agent import node_codec

_CODECS = {codec.of: codec for codec in (LAUNCH, node_codec())}
_MAX_VALUE = 100
_MAX_LINE = 10_000


def show_recording(parts: list[Path], say: Callable[[str], None], *, as_json: bool) -> int:
    """Show a recording, line by line; returns the exit code: 1 where the machine now does something
    else. Raises UsageError."""
    recording = read(parts)
    if (codec := _CODECS.get(recording.of)) is None:
        raise UsageError(
            f"{parts[0]} is a recording of '{printable(recording.of, 100)}'",
            hint=f"this rdzv replays those of {', '.join(_CODECS)}",
        )
    counts = {"fed": 0, "differ": 0, "left": 0}
    for one in replay(recording, codec):
        counts["fed"] += one.actions is not None and one.line is not None
        counts["differ"] += one.differs
        counts["left"] += one.actions is None
        say(_json(recording, one) if as_json else printable(_text(recording, one), _MAX_LINE))
    if not as_json:
        say(_verdict(recording, **counts))
    return int(ExitCode.FAILED if counts["differ"] else ExitCode.OK)


def _json(recording: Recording, one: Replayed) -> str:
    line = one.line
    return json.dumps(
        {
            "of": recording.of,
            "number": line.number if line else 0,
            "at_seconds": round(line.at - recording.at, 3) if line else 0.0,
            "input": line.input if line else "",
            "values": line.values if line else recording.made_with,
            "recorded": one.recorded,
            "actions": one.actions,
        }
    )


def _text(recording: Recording, one: Replayed) -> str:
    number, seconds, said = 0, 0.0, f"the {recording.of} begins"
    if (line := one.line) is not None:
        number, seconds, said = line.number, line.at - recording.at, line.input
        if shown := _shown(line.values):
            said += f"({shown})"
    text = f"{number:5d} {seconds:9.3f} s  {said}: {', '.join(one.recorded) or 'nothing'}"
    if one.actions is None:
        return f"{text}; not replayed"
    return f"{text}; NOW {', '.join(one.actions) or 'nothing'}" if one.differs else text


def _shown(values: dict[str, Any]) -> str:
    """Numbers, and the beginnings of texts; of what is within a value only these."""
    shown = []
    for name, value in values.items():
        match value:
            case dict() if inner := _shown({k: v for k, v in value.items() if _is_short(v)}):
                shown.append(f"{name} {inner}")
            case _ if _is_short(value):
                shown.append(f"{name}={value}")
    return ", ".join(shown)


def _is_short(value: Any) -> bool:
    is_text = isinstance(value, str) and 0 < len(value) <= _MAX_VALUE
    return is_text or (isinstance(value, int | float) and bool(value))


def _verdict(recording: Recording, *, fed: int, differ: int, left: int) -> str:
    words = f"{fed} inputs of a {recording.of} replayed"
    words += f", {differ} now with other actions" if differ else (", all with the recorded actions")
    if left:
        words += f"; {left} after the first gap were not replayed"
    if recording.version != rdzv_version():
        words += f"; recorded by rdzv {recording.version}, replayed by {rdzv_version()}"
    return words
