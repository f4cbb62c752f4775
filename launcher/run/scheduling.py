"""Worker runs at their schedulers and in the ledger: what the machines' actions do there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from launcher.plan.plan import WorkerRun
from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.footing import Footing
from launcher.run.preparation import starter_of
from launcher.run.sentences import UnknownLeft
from launcher.run.values import Key, Left
from launcher.schedulers.contract import NothingSubmitted, Scheduler, SchedulerContext
from launcher.state.ledger import Ledger, LedgerEntry
from rendezvous.compat import timeout
from rendezvous.wire.errors import RdzvError, SchedulerError, UsageError
from rendezvous.wire.words import printable

_LAST_LINE_SECONDS = 10.0
_LAST_LINES = 5
_MOST_LAST_LINE = 300

SchedulerAction = do.Find | do.Describe | do.ReadLastLine | do.CancelWorkerRun


@dataclass
class Remains:
    """What a ledger says may still exist, with the schedulers that were found for it.

    Attributes:
        entries: By key; the keys of former launches have the worker run's name.
        schedulers: By the name that the ledger has for them.
        unknown: Those whose scheduler cannot be used.
    """

    entries: dict[Key, LedgerEntry] = field(default_factory=dict)
    schedulers: dict[str, Scheduler] = field(default_factory=dict)
    unknown: list[UnknownLeft] = field(default_factory=list)

    @staticmethod
    def of(
        ledger: Ledger,
        context: SchedulerContext,
        make: Callable[[str, SchedulerContext], Scheduler],
    ) -> Remains:
        """Those of a ledger."""
        found = Remains()
        for entry in ledger.left():
            try:
                if entry.starter not in found.schedulers:
                    found.schedulers[entry.starter] = make(entry.starter, context)
            except UsageError as exc:
                found.unknown.append(UnknownLeft(entry.name, exc.message))
                continue
            run = entry.run
            found.entries[Key(run.slot, run.generation, run.name)] = entry
        return found

    def left(self) -> tuple[Left, ...]:
        """All of them, as worker runs of former launches."""
        return tuple(self._left(key, entry) for key, entry in self.entries.items())

    def own(self) -> tuple[Left, ...]:
        """Those of the newest launch, as its own."""
        return tuple(
            self._left(Key(entry.run.slot, entry.run.generation), entry)
            for entry in self.entries.values()
            if not entry.former
        )

    def _left(self, key: Key, entry: LedgerEntry) -> Left:
        starter = starter_of(self.schedulers[entry.starter], entry.starter)
        return Left(key, starter, entry.handle, str(entry.run.variables.get("HOST", "")))


class Scheduling:
    """Carries out what is asked of schedulers and the ledger.

    Args:
        ledger: What is known of worker runs on disk.
        remains: What it said when this began.
        jitter: A number in 0 to 1.
    """

    def __init__(self, ledger: Ledger, remains: Remains, jitter: Callable[[], float]) -> None:
        self._ledger = ledger
        self._remains = remains
        self._entries: dict[Key, LedgerEntry] = dict(remains.entries)
        self._jitter = jitter
        self._further: dict[int, asyncio.Future[None]] = {}
        self._launch: Footing | None = None
        self._feed: Callable[[inputs.Input], None] | None = None

    def begin(self, launch: Footing, feed: Callable[[inputs.Input], None]) -> None:
        """The launch has its plan: from now on its own worker runs are known, and no other's.

        Args:
            launch: What it submits.
            feed: Takes an input that comes before the answer.
        """
        self._launch, self._feed = launch, feed
        self._entries = {key: entry for key, entry in self._entries.items() if key.former}
        for key, entry in list(self._entries.items()):
            own = Key(key.slot, key.generation)
            if entry.name == launch.submission(own).name:
                self._entries[own] = entry

    async def make_ready(self) -> None:
        """Have the nodes of this machine made ready, while the registry of a new launch starts."""
        launch = self._launch
        assert launch is not None
        facts = launch.prepared.facts()
        for key in [Key(slot, 1) for slot in range(launch.plan.slots)]:
            if (starter := facts.starter_of(key.slot)) is not None and starter.loopback:
                with contextlib.suppress(RdzvError):  # `submit` says what is wrong
                    await launch.starter(key).make_ready(launch.submission(key))

    async def close(self) -> None:
        """End what was made ready in vain."""
        if self._launch is not None:
            for scheduler in (self._launch.prepared.here, self._launch.prepared.others):
                await scheduler.close()

    def entry(self, key: Key) -> LedgerEntry:
        """What is known of a worker run."""
        if key not in self._entries:
            assert self._launch is not None
            run, starter = self._launch.submission(key), self._launch.starter_name(key)
            self._entries[key] = LedgerEntry(run, starter)
        return self._entries[key]

    def scheduler(self, key: Key) -> Scheduler:
        """What has it."""
        if key.former:
            return self._remains.schedulers[self._entries[key].starter]
        assert self._launch is not None
        return self._launch.starter(key)

    def name(self, key: Key) -> str:
        """Its unique name."""
        return self.entry(key).run.name

    def start_words(self, key: Key, handle: str) -> str:
        """The command with which a person starts it; empty where there is none."""
        return self.scheduler(key).start_words(handle)

    def end_words(self, key: Key, handle: str) -> str:
        """The command with which a person ends it; empty where there is none."""
        return self.scheduler(key).cancel_words(self.entry(key).run, handle or None)

    # --- the ledger ---------------------------------------------------------------------------

    async def write_intent(self, action: do.WriteIntent) -> inputs.Input:
        """Write down what is about to be submitted."""
        assert self._launch is not None
        run = self._launch.submission(action.key, action.where)
        self._entries[action.key] = replace(self.entry(action.key), run=run)
        try:
            self._ledger.begin(self.entry(action.key))
        except OSError as exc:
            return inputs.NotWritten(action.id, str(exc), self._jitter())
        return inputs.Done(action.id)

    def note(self, action: do.Note) -> None:
        """Write down what became known; without it, its name still finds it."""
        entry = replace(self.entry(action.key), handle=action.handle, gone=action.gone)
        self._entries[action.key] = entry
        with contextlib.suppress(OSError):
            if action.whole:
                self._ledger.begin(entry)
            else:
                self._ledger.note(entry)

    # --- schedulers ---------------------------------------------------------------------------

    async def submit(self, action: do.Submit) -> inputs.Input:
        """Submit it; between two tries the machine is asked."""
        assert self._launch is not None
        feed, number, key = self._feed, action.id, action.key
        assert feed is not None
        run, join = self._launch.submission(key, action.where), self._launch.join(key)

        async def trouble(words: str) -> None:
            self._further[number] = further = asyncio.get_running_loop().create_future()
            feed(inputs.SubmitTroubled(number, key, words))
            await further

        try:
            handle = await self._launch.starter(key).submit(run, join, trouble=trouble)
        except SchedulerError as exc:
            failed = inputs.SubmitFailed(
                number, key, certain=False, words=exc.message, hint=exc.hint
            )
            if not isinstance(exc, NothingSubmitted):
                return failed
            return replace(failed, certain=True, final=exc.final, no_host=exc.no_host)
        finally:
            self._further.pop(number, None)
        return inputs.Submitted(number, key, handle)

    def try_again(self, number: int) -> None:
        """Let a submission go on."""
        further = self._further.get(number)
        if further is not None and not further.done():
            further.set_result(None)

    async def ask(self, action: SchedulerAction) -> inputs.Input:
        """Ask or tell a scheduler, once."""
        scheduler, run = self.scheduler(action.key), self.entry(action.key).run
        try:
            match action:
                case do.Find():
                    return inputs.Found(action.id, await scheduler.find(run))
                case do.Describe():
                    found = await scheduler.describe(run, action.handle)
                    return inputs.Described(action.id, found)
                case do.ReadLastLine():
                    return inputs.LineRead(action.id, await _last_line(scheduler, run, action))
                case do.CancelWorkerRun():
                    grace = action.grace
                    await scheduler.cancel(run, action.handle, grace_seconds=grace)
                    return inputs.RunTold(action.id)
        except SchedulerError as exc:
            return inputs.SchedulerSilent(action.id, exc.message)


async def _last_line(scheduler: Scheduler, run: WorkerRun, action: do.ReadLastLine) -> str:
    """What the scheduler keeps as the run's last line; empty when it cannot say in time."""
    last = ""
    lines = scheduler.logs(run, action.handle, lines=_LAST_LINES, follow=False)
    with contextlib.suppress(SchedulerError, TimeoutError):
        async with timeout(_LAST_LINE_SECONDS):
            async for line in lines:
                last = line.strip() or last
    return printable(last, _MOST_LAST_LINE)
