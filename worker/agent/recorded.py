"""What a recording has to know of a node's machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rendezvous.recording.recorder import BackgroundRecorder, Codec, Step
from rendezvous.recording.values import leaves
from rendezvous.talk.secret_words import HIDDEN, text_without_secrets
from worker.agent import node
from worker.agent.actions import Action
from worker.agent.inputs import Armed, Input, Joined, Offered
from worker.agent.state import Rules
from worker.contracts import Contract
from worker.program.recording_file import begin_recording

_JOIN_ID = "hidden-in-a-recording"


def record_into(path: Path) -> BackgroundRecorder:
    """Record a node into this file."""
    return BackgroundRecorder(CODEC, partial(begin_recording, path))


def _without_secrets(said: Input) -> Input:
    match said:
        case Joined():
            return replace(said, reply=said.reply.model_copy(update={"credential": HIDDEN}))
        case Offered():  # whoever repeats a join gets its credential
            return replace(said, offer=replace(said.offer, join_id=_JOIN_ID))
        case Armed():
            return replace(said, contract=_outline(said.contract))
    return said


def _outline(contract: Contract) -> Contract:
    """What the machine looks at, and none of the words and variables of the user's."""
    return Contract(
        [HIDDEN] * bool(contract.argv),
        {},
        notes=[HIDDEN] * len(contract.notes),
        fatal_workers=contract.fatal_workers,
        nccl_log=contract.nccl_log,
        port=contract.port,
    )


def _start(made_with: Mapping[str, Any], at: float) -> tuple[Iterable[Action], Step]:
    state, actions = node.begin(made_with["rules"], at)

    def step(said: Input, now: float) -> Iterable[Action]:
        nonlocal state
        state, done = node.step(state, said, now)
        return done

    return actions, step


CODEC = Codec(
    "node", leaves(Input), {"rules": Rules}, _without_secrets, text_without_secrets, _start
)
