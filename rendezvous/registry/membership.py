"""Who of the replicas lives, and which runs are whose: what one of them makes of its beats. Pure.

All times are seconds of the replica's own monotonic clock, but for how long another one has been
silent: that is the journal's. Who has just come back to the journal judges nobody for a while: the
journal may have been away, and all others with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rendezvous.registry.journal import JOURNAL
from rendezvous.registry.shared_journal import Beat, Holding, Member, Usages
from rendezvous.talk.join_string import weight

LEASE_SECONDS = 3.0
"""Without a beat for so long, a replica is not sure of its runs; for longer, it may be replaced."""
BEAT_SECONDS = 0.5
BEAT_LIMIT_SECONDS = 1.5
"""A beat without an answer is given up for the next one: one that is lost costs no lease."""
JUDGE_SECONDS = LEASE_SECONDS + 2 * BEAT_SECONDS
"""So long after the journal came back the others may still be on their way to it: a beat that was
under way when it went is given up after a lease, and the next one follows."""


@dataclass(slots=True)
class Membership:
    """What a replica knows of all of them.

    Attributes:
        me: Its own id.
        version: Of the records that it reads.
        beaten_at: When its newest beat that was answered had been sent.
        unbroken_since: Since when none has failed.
        members: What the journal said of all replicas with that.
    """

    me: str
    version: int = JOURNAL
    beaten_at: float = -math.inf
    unbroken_since: float = math.inf
    members: tuple[Member, ...] = ()

    def beaten(self, sent: float, beat: Beat) -> None:
        """The journal has answered the beat that was sent then."""
        if self.unbroken_since == math.inf or sent - self.beaten_at >= LEASE_SECONDS:
            self.unbroken_since = sent
        self.beaten_at, self.members = sent, beat.members

    def missed(self) -> None:
        """The journal did not answer."""
        self.unbroken_since = math.inf

    def is_sure(self, now: float) -> bool:
        """Whether nobody can have taken the runs of this replica for dead's."""
        return now - self.beaten_at < LEASE_SECONDS

    def may_judge(self, now: float) -> bool:
        """Whether it may replace others."""
        return self.is_sure(now) and now - self.unbroken_since >= JUDGE_SECONDS

    def claims(self, beat: Beat, now: float) -> list[Holding]:
        """The runs that this replica is to claim: what it was given, and its part of the dead's."""
        if not self.may_judge(now):
            return list(beat.given)
        readers = [member for member in self.living() if member.reads == self.version]
        takers = [member for member in readers if not member.drains] or readers
        left = [one for one in beat.left if one.version == self.version]
        return [*beat.given, *(one for one in left if heir(one.run, takers) == self.me)]

    def living(self) -> list[Member]:
        """The replicas that are alive, this one among them."""
        return [one for one in self.members if one.id == self.me or one.is_alive(LEASE_SECONDS)]

    def usages(self) -> list[Usages]:
        """What tenants use at the other replicas that are alive."""
        return [member.usage for member in self.living() if member.id != self.me]

    def found(self, owner: str) -> Member | None:
        """The replica of this id, if it is alive."""
        return next((member for member in self.living() if member.id == owner), None)

    def heir(self, run: str) -> Member | None:
        """Who is to have a run of this replica once that ends; None: nobody there reads it."""
        others = [
            one
            for one in self.living()
            if one.id != self.me and not one.drains and one.reads == self.version
        ]
        chosen = heir(run, others)
        return None if chosen is None else self.found(chosen)


def heir(run: str, members: Iterable[Member]) -> str | None:
    """Which of these replicas is to have a run that nobody has: by rendezvous hashing, so that all
    of them find the same one, and the runs of one that died are spread over the others."""
    return max((member.id for member in members), key=lambda one: weight(run, one), default=None)
