"""Queues that are full: what does not fit is refused, and who has sent it is to send it again.

A bound of the product is lowered for a while. What keeps to it, and what sends again, is the
product's; `talking` has those who use the queues that a run can do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from rendezvous.feature import declared
from rendezvous.registry import log_views, relay, sequencer
from rendezvous.serving.answers import problem_response
from rendezvous.serving.room import Room, Seat
from rendezvous.talk.network import Answer
from tests.simulation.schedule import QUEUES, Fault

if TYPE_CHECKING:
    from tests.simulation.network import Path
    from tests.simulation.world import World

_BOUNDS: dict[str, tuple[ModuleType, str, int]] = {
    "requests": (sequencer, "_MOST_QUEUED", 0),
    "few requests": (sequencer, "_MOST_QUEUED", 1),
    "views": (log_views, "MOST_VIEWS", 0),
    "frames": (relay, "MOST_BYTES", 0),
}
"""Of each queue the module, its bound, and what that is while the queue is full."""
if any(feature.name == "metrics" for feature in declared()):
    _BOUNDS["rows"] = import_module("features.metrics.node"), "_MOST_WAITING", 1
_OF_ALL = {"requests", "few requests", "connections"}
"""Without these a run stands still."""


class Queues:
    """Which queues of a world are full, and until when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._full_until: dict[str, float] = {}
        self._refused: set[tuple[float, Path]] = set()
        self._real = {(module, name): getattr(module, name) for module, name, _ in _BOUNDS.values()}

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """As the product has them in the end."""
        try:
            yield
        finally:
            for (module, name), bound in self._real.items():
                setattr(module, name, bound)

    def fill(self, fault: Fault) -> None:
        """Have one of them be full for so long."""
        what, world = QUEUES[fault.count - 1], self._world
        until = world.loop.time() + fault.seconds
        self._full_until[what] = max(until, self._full_until.get(what, until))
        if what in _OF_ALL:
            world.registries.is_away(fault.seconds)
            world.registry_was_down = True
        self._bound()
        world.later(fault.seconds, self._bound)

    def is_full(self, what: str, within: float = 0.0) -> bool:
        """Whether this one is full, or was so in these last seconds."""
        return self._world.loop.time() < self._full_until.get(what, float("-inf")) + within

    def _bound(self) -> None:
        bounds = dict(self._real)
        for what, (module, name, least) in _BOUNDS.items():
            if self.is_full(what):
                bounds[module, name] = min(bounds[module, name], least)
        for (module, name), bound in bounds.items():
            setattr(module, name, bound)
        self._bound_lines()

    def _bound_lines(self) -> None:
        """Those of the registry that is there: another one has its own."""
        if (registry := self._world.network.registry) is None:
            return
        of_all = registry.service.sequencer.view_limits
        of_all.most = 0 if self.is_full("lines") else log_views.ALL_BYTES
        for live in registry.service.sequencer.runs.values():
            limits = live.views._limits
            limits.most = 0 if self.is_full("lines of a run") else log_views.RUN_BYTES

    # --- connections --------------------------------------------------------------------------

    def seat(self, path: Path) -> Seat:
        """What becomes of a connection that is opened now."""
        room = self._room()
        seat = room.seat(1 if not self.is_full("connections") else 2, 3)
        mark = self._full_until.get("connections", 0.0), path
        if seat is not Seat.FREE and mark not in self._refused:  # it may be the only one of a node
            self._refused.add(mark)
            path.light += 1
        return seat

    def refusal(self) -> Answer:
        """What is answered on a connection for which there is no room."""
        room = self._room()
        room.seat(2, 3)
        status, headers, body = problem_response(room.refusal(), close=True)
        return Answer(status, {name.decode(): value.decode() for name, value in headers}, body)

    def _room(self) -> Room:
        return Room(1, limit=lambda: 1_000, clock=self._world.loop.time)
