"""What a recording has to know of a launch's machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from launcher.run.actions import Action
from launcher.run.ground import OnDisk, Wanted
from launcher.run.inputs import Input
from launcher.run.machine import Machine
from launcher.run.values import LaunchFacts
from rendezvous.recording.recorder import BackgroundRecorder, Codec, Step
from rendezvous.recording.values import leaves
from rendezvous.talk.join_string import without_secrets
from rendezvous.talk.secret_words import text_without_secrets
from worker.program.recording_file import begin_recording, drop_recording

NAME = "recording.jsonl"
"""In the run's folder."""
_KEPT_BYTES = 100 << 10
_OF_OTHERS = ("words", "line", "last_words")
"""What a scheduler or a program has printed."""


def record_into(path: Path) -> BackgroundRecorder:
    """Record a launch into this file."""
    return BackgroundRecorder(CODEC, partial(begin_recording, path))


def drop_if_long(folder: Path) -> None:
    """Of a run that ended ok: a recording is for what went wrong, and grows with the run's length.

    Args:
        folder: The run's.
    """
    with contextlib.suppress(OSError):
        drop_recording(folder / NAME, above_bytes=_KEPT_BYTES)


def made_with(facts: LaunchFacts, found: OnDisk, wanted: Wanted) -> dict[str, Any]:
    """What is written of a launch's beginning: of the fingerprints, which are of all options and
    COMMAND, only whether they are the same."""
    former = found.former
    if former is not None and former.fingerprint:
        same = former.fingerprint == wanted.fingerprint
        found = replace(found, former=replace(former, fingerprint="wanted" if same else "former"))
    return {"facts": facts, "found": found, "wanted": replace(wanted, fingerprint="wanted")}


def _without_secrets(said: Input) -> Input:
    texts = {name: getattr(said, name) for name in _OF_OTHERS if hasattr(said, name)}
    hidden: dict[str, Any] = {name: text_without_secrets(text) for name, text in texts.items()}
    return replace(said, **hidden) if hidden else said


def _start(values: Mapping[str, Any], _: float) -> tuple[Iterable[Action], Step]:
    machine = Machine.of(**values)

    def step(said: Input, now: float) -> Iterable[Action]:
        actions = machine.step(said, now)
        machine.due()
        return actions

    return (), step


CODEC = Codec(
    "launch",
    leaves(Input),
    {"facts": LaunchFacts, "found": OnDisk, "wanted": Wanted},
    _without_secrets,
    without_secrets,
    _start,
)
