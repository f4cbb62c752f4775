"""The time between the result and the end: every node learns it before the registry goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from launcher.run.actions import Say
from launcher.run.desk import Desk
from launcher.run.following import Following
from launcher.run.sentences import DidNotLeave, WaitsForOthers
from launcher.run.values import LaunchFacts
from rendezvous.wire.errors import JoinTimeout
from rendezvous.wire.run import NodeState, Result, RunStatus

LEAVE_SECONDS: Final = 8.0
OTHERS_SECONDS: Final = 30.0
"""How long the registry of a symmetric start stays for nodes that come after the end."""


@dataclass(slots=True)
class Leaving:
    """How far the nodes have left.

    Attributes:
        since: When the result was seen first.
        result: The registry's.
        signalled: A signal ends the run: nobody is waited for who is not here.
    """

    facts: LaunchFacts
    desk: Desk
    following: Following
    since: float = 0.0
    result: Result | None = None
    signalled: bool = False

    def begin(self, result: Result, now: float) -> None:
        """The result is known."""
        self.since, self.result = now, result
        self._look_at(now)

    def may_go(self, now: float) -> bool:
        """Whether every node knows the result, or has had the time to learn it."""
        status = self.following.status
        assert status is not None
        self._look_at(now)
        if self._awaits_others(status, now):
            return False
        limit = self.facts.grace + LEAVE_SECONDS
        if status.everyone_left:
            return now - self.since >= limit or not self.following.awaits_errands()
        if now - self.since < limit:
            return False
        gone = (None, NodeState.LEFT, NodeState.LOST)
        slots = tuple(slot.slot for slot in status.slots if slot.node_state not in gone)
        self.desk.do(Say(DidNotLeave(slots, limit)))
        return True

    def _look_at(self, now: float) -> None:
        """Whatever the registry says or does not say, the time-outs hold."""
        ends = (self.since + self.facts.grace + LEAVE_SECONDS, self.since + OTHERS_SECONDS)
        if later := [at for at in ends if at > now]:
            self.desk.look_at("leave", min(later))

    def _awaits_others(self, status: RunStatus, now: float) -> bool:
        """Whether nodes may still come that nobody can cancel: without a registry each would wait
        for it until its join time-out, and not know why."""
        assert self.result is not None
        ended_early = self.result.status != "ok" and self.result.code != JoinTimeout.code
        is_symmetric = self.facts.others is None and self.facts.owns_registry
        if not is_symmetric or not ended_early or self.signalled:
            return False
        others = tuple(slot for slot in status.untold if slot or not self.facts.joins_here)
        awaits = bool(others) and now - self.since < OTHERS_SECONDS
        if awaits:
            self.following.say_once(WaitsForOthers(others, OTHERS_SECONDS))
        return awaits
