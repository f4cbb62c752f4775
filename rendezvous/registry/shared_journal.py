"""What several replicas of a registry need of one journal: who owns a run, and the fence around it.

A run has one owner and an epoch, which counts its owners. What is appended carries the epoch of
whom it comes from, and is refused in the very statement that would write it once another one has
claimed the run: an owner that was stopped, or cut off, can write nothing after that.

Who is alive is judged by the journal's clock alone. That only decides who may be replaced: where it
is wrong, that costs a move and never an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from rendezvous.registry.commits import Commits
from rendezvous.registry.journal import JOURNAL, Journal, Record
from rendezvous.wire.errors import RegistryError, Unavailable, UsageError
from rendezvous.wire.tenant import Usage

Usages = Mapping[str, Usage]
"""What tenants use at one replica, by their names."""
UNUSED: Usages = MappingProxyType({})


class Overtaken(Unavailable):
    """Another replica owns the run: what was to be written was not, and never will be."""


class Away(UsageError):
    """It cannot be opened now; nothing has to be changed for it to be there later."""


class InDoubt(Unavailable):
    """Whether it was written is not known: the journal went away while it was being written."""


@dataclass(frozen=True, slots=True)
class Member:
    """A replica, as the journal knows it.

    Attributes:
        id: Of this process of it; another process has another one.
        address: Where nodes reach it, as `host:port`.
        silent_seconds: Since its last beat, by the journal's clock.
        has_session: Whether the session still stands that it has held from its first beat on: a
            process that dies loses it at once.
        drains: Whether it is ending, and takes no run.
        usage: By tenant, what it uses there.
        reads: The version of records that it reads.
    """

    id: str
    address: str
    silent_seconds: float
    has_session: bool
    drains: bool = False
    usage: Usages = field(default_factory=dict)
    reads: int = JOURNAL

    def is_alive(self, lease_seconds: float) -> bool:
        """Whether it keeps its runs, and is shown wherever a run is looked for: until its silence
        is longer than its lease. It has ceased to be sure of them by then."""
        return self.has_session and self.silent_seconds <= lease_seconds


@dataclass(frozen=True, slots=True)
class Holding:
    """Who owns a run; None: nobody, it has no records any more, or was let go.

    `version` is that of its records: only a replica that reads it may have the run.
    """

    run: str
    owner: str | None
    epoch: int
    version: int = JOURNAL


@dataclass(frozen=True, slots=True)
class Beat:
    """What a replica learns with each of its beats.

    Attributes:
        members: All replicas that have not been silent for long, this one among them.
        lost: Runs that it held when it asked, and holds no more; none that it is just claiming.
        given: Runs of which it is the owner, and which it has not claimed, nor is just claiming.
        left: Runs whose owner is none of the members that could be alive: it is silent for longer
            than the lease, or its session has ended.
        tenants: How often the tenants have changed: for another number they are read again.
    """

    members: tuple[Member, ...]
    lost: tuple[str, ...]
    given: tuple[Holding, ...]
    left: tuple[Holding, ...]
    tenants: int = 0


class SharedJournal(Journal, Protocol):
    """A journal of several replicas, as one of them uses it.

    It knows the epochs of the runs that it has claimed: `append` and `hand_over` need them. Every
    call raises Unavailable where the journal cannot be reached.

    Attributes:
        clock: The replica's own, in seconds. Each beat tells the journal what it shows: so the time
            of a run goes on at whoever has it next, without the time in which nobody had it.
        version: Of the records that this replica reads and writes.
        commits: What must be acknowledged: all that is changed, but no beat.
    """

    version: int
    clock: Callable[[], float]
    commits: Commits

    @property
    def id(self) -> str:
        """Of this replica."""

    @property
    def epochs(self) -> Mapping[str, int]:
        """By run, of those that this replica has claimed and not given or lost."""

    def ahead(self, run: str) -> float:
        """By how many seconds a run's time is ahead of this replica's clock, as far as the journal
        knows: it may have been later, by one beat at most. Of a run that is not held, -inf."""

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        """See `Journal`; by run Overtaken where another one owns it, InDoubt where the connection
        was lost meanwhile: then nothing may be told until the run is claimed and read again.

        It must not be cancelled: a journal with a standby takes that for an acknowledgement.
        """

    async def beat(
        self, address: str, *, lease_seconds: float, drains: bool = False, usage: Usages = UNUSED
    ) -> Beat:
        """Say that this replica is alive, and what tenants use here; returns who else is, and what
        that means for the runs."""

    async def owner(self, run: str) -> Holding | None:
        """Who owns a run; None where there has never been one of that name."""

    async def claim(self, wanted: Sequence[Holding]) -> Mapping[str, int]:
        """Own these runs, where owner and epoch are still as said here and this replica reads their
        records; epoch 0 is a run of which nobody has heard. Returns the new epochs of those
        that were claimed.

        What the former owner was writing is in the journal by then, or never will be: it may be
        read now.
        """

    async def hand_over(self, run: str, to: str | None) -> bool:
        """Have another replica own a run that this one holds, or nobody; whether it was still its
        own. It holds it no more in any case."""

    async def probe(self) -> None:
        """Commit something that changes nothing; raises StorageFull where no room is left."""

    async def leave(self) -> None:
        """This replica ends: it is a member no longer, its session is over, and the time of runs
        that it still has stands still."""
