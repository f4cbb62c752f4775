"""What a registry does once its launcher was killed: node 0's agent died with it."""

from __future__ import annotations

import contextlib

from rendezvous.compat import timeout
from rendezvous.registry.sequencer import Change, Sequencer
from rendezvous.run import events
from rendezvous.run.views import everyone_left
from rendezvous.wire.run import Phase


async def launcher_ended(sequencer: Sequencer, limit_seconds: float) -> None:
    """End the runs that were let go.

    A run of which no program runs stays as it is, from this moment on: the same launch, started
    again, takes it up, and what its nodes say as they end with their launcher would end it.
    Returns once every node of the ended runs has left, or after `limit_seconds`.
    """
    let_go = (Phase.RUNNING, Phase.FINISHED)
    ended = [live for live in sequencer.runs.values() if live.run.phase in let_go]
    if not ended:
        sequencer.closing.set()
        return
    await sequencer.change(
        lambda _: [
            Change(live, events.Cancelled(reason="its launcher was killed"))
            for live in ended
            if live.run.phase is Phase.RUNNING
        ]
    )
    with contextlib.suppress(TimeoutError):
        async with timeout(limit_seconds):
            for live in ended:
                while not everyone_left(live.run):
                    await live.people.wait(limit_seconds)
