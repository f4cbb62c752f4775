"""Who asks to join with a token of another launch: kept of the one run that it can be meant for."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.sequencer import Sequencer
from rendezvous.run import refusals
from rendezvous.wire.errors import RdzvError


async def note_stranger(
    sequencer: Sequencer, runs: Mapping[str, LiveRun], name: str, slot: int, source: str
) -> None:
    """Keep that somebody has asked with a token that is not of the run; it decides nothing.

    Of a run that is not here only the one that is can know: a registry of many keeps nothing.
    """
    found = [runs[name]] if name in runs else list(runs.values())
    if len(found) != 1:
        return
    live, ask = found[0], refusals.ask_of_stranger(name, slot, source)
    with contextlib.suppress(RdzvError):
        await sequencer.change_run(live, lambda now: refusals.decide_stranger(live.run, ask, now))
