"""What time brings to the runs of a registry: who is silent, what has taken too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rendezvous.registry.live_run import LiveRun
from rendezvous.run import events
from rendezvous.run.events import Event
from rendezvous.run.leases import SWEEP_SECONDS
from rendezvous.run.protocol import due, launcher_gone
from rendezvous.wire.words import printable

_LAUNCHER_SECONDS = 120.0
_LEAST_PAUSE_SECONDS = 0.01


def seconds_until_sweep(lives: Iterable[LiveRun]) -> float:
    """A node whose connection has closed is judged when it is due, since all others wait for that;
    when many are, together."""
    going = (live for live in lives if not live.has_ended)
    due_in = min((live.leases.until_closed(live.now()) for live in going), default=SWEEP_SECONDS)
    return min(SWEEP_SECONDS, max(due_in, _LEAST_PAUSE_SECONDS))


def due_now(lives: Iterable[LiveRun]) -> Iterator[tuple[LiveRun, Event]]:
    """What has become true of these runs by the passing of time."""
    for live in lives:
        if not live.has_ended:
            yield from ((live, event) for event in _of(live, live.now()))


def _of(live: LiveRun, now: float) -> list[Event]:
    found = [_with_trouble(event, live, now) for event in due(live.run, now, live.leases)]
    if now - live.launcher_at > _LAUNCHER_SECONDS:
        found += launcher_gone(live.run)
    found += live.topics.events(live.run, now)
    return found


def _with_trouble(event: Event, live: LiveRun, now: float) -> Event:
    """A time-out, with what the registry itself had meanwhile."""
    trouble = live.trouble(now)
    if not trouble or not isinstance(event, events.TimedOut):
        return event
    return event.model_copy(update={"trouble": printable(trouble, 600)})
