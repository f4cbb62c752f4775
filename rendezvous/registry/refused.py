"""Who asks to join a run and is refused, as its registry hears it: how often is not journalled."""

from __future__ import annotations

from rendezvous.run import events, refusals
from rendezvous.run.events import Event
from rendezvous.run.leases import Leases
from rendezvous.run.state import Run
from rendezvous.wire.errors import RequestError
from rendezvous.wire.node import JoinRequest


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
