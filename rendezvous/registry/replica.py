"""A registry that is one of several: it beats, takes and gives runs, and says where others are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from rendezvous.compat import timeout
from rendezvous.registry.acknowledging import Acknowledging
from rendezvous.registry.doors import Doors
from rendezvous.registry.loading import LOOK_SECONDS, Loads
from rendezvous.registry.membership import (
    BEAT_LIMIT_SECONDS,
    BEAT_SECONDS,
    LEASE_SECONDS,
    Membership,
)
from rendezvous.registry.sequencer import Change, Sequencer
from rendezvous.registry.shared_journal import Beat, Holding, SharedJournal
from rendezvous.registry.waiters import Waiters
from rendezvous.talk.credentials import Credential
from rendezvous.tasks import wait_for
from rendezvous.wire.errors import InternalError, Moved, RegistryError, Unavailable

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.5
"""How long a request waits for its run: less than its sender waits for the answer."""
_LEAST_PAUSE_SECONDS = 0.1
DRAIN_SECONDS = 10.0
_STAY_SECONDS = 0.5
"""After the last run was given away: a node that asked nothing just then is told where it is."""
_CUT_OFF = "this replica of the registry cannot reach its journal"
RESCUE_SECONDS = 30.0
"""A run is not taken more often: nodes that reach different replicas must not have it go to and
fro."""
_MOST_RESCUES = 10_000
_RESCUERS = ("node", "join", "admin")
"""The credentials without whose owners a run comes to no good end: its nodes and its launcher."""


class Replica:
    """What makes one registry of several.

    Args:
        journal: Which all of them share.
        sequencer: Of this registry.
        doors: Who may be told where a run is.
        address: Where nodes reach this one, as `host:port`.
    """

    def __init__(
        self, journal: SharedJournal, sequencer: Sequencer, doors: Doors, address: str
    ) -> None:
        self._journal, journal.clock = journal, sequencer.clock.now
        self._sequencer = sequencer
        self._address = address
        self._clock = sequencer.meters.clock
        self._began = self._clock()
        self.members = Membership(journal.id, journal.version)
        self._doors, doors.tenants = doors, sequencer.tenants
        self._changed = Waiters()
        self._hurry = asyncio.Event()
        self._owners = Owners(journal.owner)
        self._loads = Loads(journal, sequencer, self.members, self._changed, self._hurry)
        self._making: Counter[str] = Counter()
        self._named: set[str] = set()
        """Names that were nobody's, and are had for a run that is being made."""
        self._claiming: set[str] = set()
        self._claims: list[asyncio.Task[None]] = []
        """The one that is under way, or was last."""
        self._rescues = Rescues()
        self.commits = journal.commits
        self._acknowledging = Acknowledging(journal, sequencer, self._hurry)
        self.is_draining = self._has_left = False
        self.counters = sequencer.counters
        sequencer.kept.on_doubt = self._hurry.set

    # --- beats --------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Beat until cancelled, and load what this replica is to have."""
        try:
            while not self._has_left:
                self._hurry.clear()
                await self._beat()
                await asyncio.sleep(_LEAST_PAUSE_SECONDS)  # however many are in a hurry
                await wait_for(self._hurry, BEAT_SECONDS - _LEAST_PAUSE_SECONDS)
        finally:
            self._owners.cancel()
            self._loads.cancel()
            self._acknowledging.cancel()
            for task in self._claims:
                task.cancel()

    async def _beat(self) -> None:
        sent, usage = self._clock(), self._sequencer.tenants.usage()
        try:
            async with timeout(BEAT_LIMIT_SECONDS):
                beat = await self._journal.beat(
                    self._address, lease_seconds=LEASE_SECONDS, drains=self.is_draining, usage=usage
                )
            self.members.beaten(sent, beat)
            self._acknowledging.see()
            self._follow(beat)
            await self._sequencer.tenants.follow(beat.tenants, self.members.usages())
        except (Unavailable, TimeoutError) as exc:  # nothing can be decided until it answers again
            late = f"it has not answered for {BEAT_LIMIT_SECONDS:g} s"
            self.members.missed()
            why = exc.message if isinstance(exc, Unavailable) else late
            self._acknowledging.cut_off(f"{_CUT_OFF}: {why}")
        self._changed.wake_all()

    def _follow(self, beat: Beat) -> None:
        """Do what a beat has shown to be necessary."""
        for run in beat.lost:
            if run not in self._claiming:
                self._give_up(run)
        if self.commits.error() is not None:
            return  # a claim would not be acknowledged, either
        self._load_again()
        if not self._claiming:
            taking = self.members.claims(beat, self._clock())
            wanted = [*self._doubtful(), *(one for one in taking if not self._is_busy(one.run))]
            if wanted:
                self._claiming = {one.run for one in wanted}
                self._claims = [asyncio.create_task(self._claim(wanted))]

    async def _claim(self, wanted: list[Holding]) -> None:
        """Claim these runs and read them. The beats go on meanwhile: it may be a slow commit."""
        try:
            claimed = await self._journal.claim(wanted)
        except Unavailable as exc:  # the next beat shows what has come of it
            logger.warning("%d runs could not be claimed: %s", len(wanted), exc.message)
            return
        finally:
            self._claiming = set()
        if taken := sum(one.run in claimed and one.owner != self.members.me for one in wanted):
            self.counters["takeovers"] += taken
            logger.info("%d runs of replicas that are gone were taken over", taken)
        for holding in wanted:
            if holding.run in claimed:
                self._loads.begin(holding.run)
            else:
                self._give_up(holding.run)
        self._changed.wake_all()

    def _is_busy(self, run: str) -> bool:
        """Whether it is being claimed, read or removed: an older beat shows it as unclaimed."""
        is_changing = self._making[run] > 0 or self._sequencer.retention.is_going(run)
        return run in self._loads or run in self._claiming or is_changing

    def _doubtful(self) -> list[Holding]:
        """The runs to claim and read again, as nobody knows what was written of them last."""
        epochs, found = self._journal.epochs, []
        for run in [run for run in self._sequencer.kept.doubtful if run not in self._loads]:
            if run in epochs:
                found.append(Holding(run, self.members.me, epochs[run], self.members.version))
            else:
                self._give_up(run)
        return found

    def _load_again(self) -> None:
        """Those that were claimed, and could not be read."""
        for run in list(self._journal.epochs):
            is_known = run in self._sequencer.kept or run in self._loads.unreadable
            if not is_known and not self._is_busy(run):
                self._loads.begin(run)

    def _give_up(self, run: str) -> None:
        """Another replica has it."""
        if run in self._sequencer.kept:
            self.counters["fenced"] += 1
            logger.warning("run %s has gone to another replica", run)
            self._rescues.note(run, self._clock())
        self._sequencer.kept.let_go(run, Unavailable(f"run '{run}' is now at another replica"))

    # --- where a run is -----------------------------------------------------------------------

    async def find(self, run: str, shown: Credential | None, unreached: str = "") -> None:
        """See `Place`; a run whose owner its node cannot reach is taken from there."""
        await self._settle(lambda: self._look(run, shown, unreached))

    async def _settle(self, step: Callable[[], Awaitable[RegistryError | None]]) -> None:
        """Look until nothing is in the way any more, or for as long as a request may wait."""
        deadline = self._clock() + PATIENCE_SECONDS
        while True:
            is_sure = self.members.is_sure(self._clock())
            why = await step() if is_sure else Unavailable(_CUT_OFF)
            if why is None:
                return
            if isinstance(why, Moved | InternalError) or self._clock() >= deadline:
                raise why
            await self._changed.wait(LOOK_SECONDS)

    async def _look(
        self, run: str, shown: Credential | None, unreached: str
    ) -> RegistryError | None:
        """Why the run is not here; None where it is, or none is that the credential opens."""
        if run in self._sequencer.runs or self._doors.is_foreign(run, shown):
            return None
        if run in self._sequencer.kept.doubtful or self._making[run]:
            return Unavailable(f"run '{run}' is being read from the journal")
        held = await self._owners.of(run)
        if held is None or held.owner is None or shown is None:
            return None
        if not await self._doors.opens(run, shown):
            return None
        why, now = self._owned(held), self._clock()
        if not isinstance(why, Moved) or self.is_draining:
            return why
        if not self._rescues.may(run, why, shown, unreached, now):
            return why
        if run in await self._journal.claim([held]):
            self._rescues.note(run, now)
            logger.warning("run %s: a node cannot reach %s; taken from there", run, why.address)
            self.counters["takeovers"] += 1
            self._loads.begin(run)
        return Unavailable(f"run '{run}' is on its way to another replica")

    def _owned(self, held: Holding) -> RegistryError:
        """Why a run is not here that has an owner."""
        if (error := self._loads.unreadable.get(held.run)) is not None:
            return InternalError(error.message, hint=error.hint)
        member = None if held.owner is None else self.members.found(held.owner)
        # At this one's own address there was an earlier process of this replica.
        if member is not None and member.address != self._address:
            return Moved(f"run '{held.run}' is at another replica", address=member.address)
        self._hurry.set()
        return _on_its_way(held, self.members.version)

    def check_ready(self) -> None:
        """Whether the journal answers; raises Unavailable."""
        if self.is_draining:
            raise Unavailable("the registry is closing")
        if is_sure := self.members.is_sure(self._clock()):
            self.commits.check()
        if self._sequencer.standstill or not is_sure:
            raise Unavailable(self._sequencer.standstill or _CUT_OFF)

    def others(self) -> list[str]:
        """Where the other replicas are that are alive."""
        return [one.address for one in self.members.living() if one.id != self.members.me]

    def silent_seconds(self) -> float:
        """Since the journal has answered; as long as the process has had it, where it never has."""
        return min(self._clock() - self.members.beaten_at, self._clock() - self._began)

    # --- making and giving --------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def making(self, run: str) -> AsyncIterator[None]:
        """See `Place`."""
        self._making[run] += 1
        try:
            await self._settle(lambda: self._claim_name(run))
            yield
        finally:
            self._making[run] -= 1
            self._making = +self._making  # without what is at 0
            was_named = run in self._named  # of any other name that is held there may be records
            if not self._making[run]:
                self._named.discard(run)
            is_made = run in self._sequencer.kept or self._is_busy(run)
            if was_named and not is_made and run in self._journal.epochs:
                with contextlib.suppress(Unavailable):  # it stays with this replica, empty
                    await self._journal.hand_over(run, None)

    async def _claim_name(self, run: str) -> RegistryError | None:
        if run in self._sequencer.runs:
            return None
        if run in self._sequencer.kept.doubtful:
            return Unavailable(f"run '{run}' is being read")
        if run in self._journal.epochs:
            return None if run in self._named else Unavailable(f"run '{run}' is being read")
        held = await self._journal.owner(run)
        if held is not None and held.owner is not None:
            return self._owned(held)
        if self.is_draining:
            next_one = self.members.heir(run)
            if next_one is None:
                return Unavailable("the registry is closing")
            return Moved("this replica is closing", address=next_one.address)
        if (error := self.commits.error()) is not None:
            return error
        if run not in await self._journal.claim([held or Holding(run, None, 0)]):
            return Unavailable(f"run '{run}' is being made elsewhere")
        self._named.add(run)
        return None

    async def drain(self) -> None:
        """Take no run any more, and give away those that are here, one after the other."""
        self.is_draining = True
        try:
            async with timeout(DRAIN_SECONDS):
                while await self._give_all():
                    pass
        except (TimeoutError, RegistryError) as exc:
            logger.warning("not all runs could be given to other replicas: %s", exc or "too slow")
        self._has_left = True
        with contextlib.suppress(Unavailable):
            await self._journal.leave()

    async def _give_all(self) -> bool:
        """Give away all runs, also those being made or read; whether there were any."""
        while self._making:
            await self._changed.wait(LOOK_SECONDS)
        await self._beat()  # what it was given, or claimed unheard, shows itself
        await asyncio.gather(*self._claims)
        had = False
        while (runs := list(self._journal.epochs)) and self.members.heir(runs[0]):
            had = True
            for run in runs:
                await self._move(run)
            await asyncio.gather(*self._claims)
        await asyncio.sleep(_STAY_SECONDS if had else 0.0)
        return had

    async def _move(self, run: str) -> None:
        """Give a run away: who waits for news of it is told where it is, and hears no error."""
        heir = self.members.heir(run)
        if heir is None:
            return

        def set_aside(_: float) -> list[Change]:
            self._sequencer.kept.set_aside(run)
            return []

        with contextlib.suppress(RegistryError):  # in doubt it goes as well, and is read anew
            await self._sequencer.change(set_aside, about=run)
        self._sequencer.kept.set_aside(run)  # also where nothing can be decided
        try:
            await self._journal.hand_over(run, heir.id)
            self.counters["moves"] += 1
        except Unavailable as exc:  # if it is not given by now, it is taken once this one has left
            logger.warning("run %s: %s", run, exc.message)
        words = f"run '{run}' is at another replica"
        self._sequencer.kept.let_go(run, Moved(words, address=heir.address))
        self._changed.wake_all()


def _on_its_way(held: Holding, version: int) -> Unavailable:
    """The run goes to another replica, once one is there that reads its records."""
    if held.version == version:
        return Unavailable(f"run '{held.run}' is on its way to another replica")
    return Unavailable(
        f"run '{held.run}' is kept in journal version {held.version}, which no replica that is "
        f"there reads: this one reads version {version}",
        hint="start a replica of the rdzv that made this run, until an hour after its end",
    )


class Owners:
    """The look-ups of who owns which run: one at a time for each run, however many ask.

    Args:
        look: The journal's; raises Unavailable.
    """

    def __init__(self, look: Callable[[str], Awaitable[Holding | None]]) -> None:
        self._look = look
        self._tasks: dict[str, asyncio.Future[Holding | None]] = {}

    async def of(self, run: str) -> Holding | None:
        """Who owns this run. Raises Unavailable."""
        if (task := self._tasks.get(run)) is None:
            task = self._tasks[run] = asyncio.ensure_future(self._look(run))
            task.add_done_callback(lambda done: self._looked_up(run, done))
        return await asyncio.shield(task)

    def _looked_up(self, run: str, task: asyncio.Future[Holding | None]) -> None:
        self._tasks.pop(run, None)
        if not task.cancelled():
            task.exception()  # whoever still waits for it is told

    def cancel(self) -> None:
        """Nobody waits for any of them."""
        for task in list(self._tasks.values()):
            task.cancel()


class Rescues:
    """When each run has gone from one living replica to another, as far as this one has seen it.

    A run is taken from an owner that lives where a node of it cannot reach that. Such a replica
    beats, and keeps its runs; the others answer `Moved` to an address that the node cannot connect
    to. So the node would be given up there, though it asks all the time.
    """

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def may(self, run: str, why: Moved, shown: Credential, unreached: str, now: float) -> bool:
        """Whether to take a run from its owner.

        Args:
            run: Its name.
            why: What would be answered otherwise.
            shown: What opens the run.
            unreached: Where whoever asks was sent to, and could not connect.
            now: Seconds of a monotonic clock.
        """
        if why.address != unreached or shown.kind not in _RESCUERS:
            return False
        return now - self._at.get(run, -math.inf) >= RESCUE_SECONDS

    def note(self, run: str, now: float) -> None:
        """The run goes now."""
        self._at.pop(run, None)
        self._at[run] = now
        if len(self._at) > _MOST_RESCUES:
            del self._at[next(iter(self._at))]
