"""Who asks to join a run and is refused, as its registry hears it: how often is not journalled."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rendezvous.run import events, refusals
from rendezvous.run.events import Event
from rendezvous.run.leases import Leases
from rendezvous.run.state import Run
from rendezvous.wire.errors import RdzvError, RequestError
from rendezvous.wire.node import JoinRequest

if TYPE_CHECKING:
    from rendezvous.server.live_run import LiveRun
    from rendezvous.server.sequencer import Sequencer


class RefusedJoins:
    """Of one run."""

    def __init__(self) -> None:
        self.asks = refusals.Asks()

    def applied(self, event: Event) -> None:
        """An event has changed the run."""
        if isinstance(event, events.Joined):
            self.asks.forget(refusals.who_joins(event.request))
        elif isinstance(event, events.JoinRefused):
            self.asks.written(event.ask.who)

    def note(
        self,
        run: Run,
        request: JoinRequest,
        error: RequestError,
        source: str,
        now: float,
        leases: Leases,
    ) -> Event | None:
        """What is written down of a join that is refused."""
        ask = refusals.ask_of_join(run, request, error, source)
        asked = self.asks.count(ask.who, now)
        return refusals.decide_refused_join(run, request, error, ask, asked, now, leases)


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
        await sequencer.change_run(
            live, lambda now: refusals.decide_stranger(live.run, ask, live.refused_joins.asks, now)
        )
