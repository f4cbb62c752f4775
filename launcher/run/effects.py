"""What the launch's machine decides is carried out here: one try each, and what came of it.

Nothing is decided: whether to try again, what comes first and when to give up is the machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.environment import Child, LaunchEnvironment, WordsKeeper, registry_log
from launcher.run.footing import Footing, Surveyor
from launcher.run.inputs import Input
from launcher.run.port import LauncherPort, run_features
from launcher.run.preparation import Preparation
from launcher.run.scheduling import Remains, Scheduling
from launcher.run.sentences import EndsRun
from launcher.run.values import ErrorKind, Fresh, Trouble, Verdict
from launcher.run.words import Names, cancel_reason, detail_of, lines, result_of
from launcher.show.board import Board
from launcher.state.state_dir import StateDir, outlives_launch
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.sealed import send_secrets
from rendezvous.wire.errors import Cause, RdzvError
from rendezvous.wire.run import Result, RunReport, SlotNews, SlotState
from rendezvous.wire.words import printable

_CREATOR_SECONDS = 10.0
_REQUEST_SECONDS = 5.0
_REPLICA_SECONDS = 2.0
"""As long as a node waits: then another replica may have the run."""
_KILL_SECONDS = 5.0
_MOST_HANDLE = 253


@dataclass
class Clients:
    """The ways to the registry: each credential has a connection of its own."""

    creator: RegistryClient
    admin: RegistryClient
    viewer: RegistryClient

    @staticmethod
    def of(footing: Footing, world: LaunchEnvironment) -> Clients:
        """Those of a launch."""
        near, keys = footing.near, footing.keys
        seconds = _REPLICA_SECONDS if near.replicas else _REQUEST_SECONDS
        return Clients(
            world.client(near, footing.creator, _CREATOR_SECONDS),
            world.client(near, keys.admin, seconds),
            world.client(near, keys.read, seconds),
        )

    async def close(self) -> None:
        """Close all connections."""
        for client in (self.creator, self.admin, self.viewer):
            await client.close()


class Effects:
    """Carries actions out for one launch.

    Args:
        prepared: What is launched.
        state: The run's folder, its lock held.
        board: Where the person sees it.
        world: The outer world.
        feed: Takes an input that comes before the answer of its action.
    """

    def __init__(
        self,
        prepared: Preparation,
        state: StateDir,
        board: Board,
        world: LaunchEnvironment,
        feed: Callable[[Input], None],
    ) -> None:
        self._state = state
        self._board = board
        self._world = world
        self._feed = feed
        self.surveyor = Surveyor(prepared, state, world)
        self.remains = Remains.of(state.ledger, prepared.context, world.scheduler)
        self.result: Result | None = None
        self._scheduling = Scheduling(state.ledger, self.remains, world.jitter)
        self._clients: Clients | None = None
        self._footing: Footing | None = None
        self._port: LauncherPort | None = None
        self._words: WordsKeeper | None = None
        self._child: Child | None = None
        self._said_end = False
        self._seen = 0  # the number of the last event that was shown
        self._reading: asyncio.Task[bool] | None = None
        self._starting = asyncio.Lock()
        self._is_new = False
        self._names = Names(
            state.run,
            state.ledger.path,
            registry_log(state),
            state.former_logs / registry_log(state).name,
            outlives_launch(),
            self._scheduling.name,
            self._scheduling.start_words,
            self._scheduling.end_words,
        )

    async def close(self) -> None:
        """Nothing is left open, whatever became of the launch."""
        await self._scheduling.close()
        self._world.dismiss()
        if self._clients is not None:
            await self._clients.close()
        await self._end_child()

    # --- acting -------------------------------------------------------------------------------

    def act(self, action: do.Action) -> None:
        """Carry out one action that is not answered."""
        match action:
            case do.Show(status=status):
                self._board.status(status)
            case do.Say(sentence=sentence):
                self._said_end |= isinstance(sentence, EndsRun)
                for line in lines(sentence, self._names):
                    self._board.say(line)
            case do.CloseBoard():
                self._board.close()
            case do.FinishFeatures():
                assert self._port is not None
                self._port.part()
            case do.Note():
                self._scheduling.note(action)
            case do.TryAgain(id=number):
                self._scheduling.try_again(number)
            case _:
                raise AssertionError(f"nothing carries out {action}")

    async def carry_out(self, action: do.Answerable) -> Input:
        """Carry out one action; returns its answer."""
        match action:
            case do.Find() | do.Describe() | do.ReadLastLine() | do.CancelWorkerRun():
                return await self._scheduling.ask(action)
            case do.Submit():
                return await self._scheduling.submit(action)
            case do.WriteIntent():
                return await self._scheduling.write_intent(action)
            case do.StartChild():
                return await self._run_child(action)
            case do.CloseChild():
                return await self._close_child(action)
            case do.FollowEvents():
                return await self._follow_events(action)
            case do.RunFeatures():
                assert self._port is not None
                await run_features(self._port)
                return inputs.Done(action.id)
            case do.FetchWords():
                return await self._fetch_words(action)
            case do.WriteResult():
                return self._write_result(action.id, action.verdict)
        try:
            return await self._ask(action)
        except RdzvError as exc:  # somebody raised it on purpose: it is an answer
            trouble = Trouble.of(exc)
            if trouble.kind in (ErrorKind.NOT_NOW, ErrorKind.STORAGE_FULL):
                return inputs.Unanswered(action.id, trouble, self._world.jitter())
            return inputs.Refused(action.id, trouble)

    async def _ask(self, action: do.Answerable) -> Input:
        number, run = action.id, self._state.run
        match action:
            case do.OpenFormer(listens=listens):
                await self._stand_on(self.surveyor.open_former(listens=listens))
                return inputs.Done(number)
            case do.Establish(ground=ground):
                await self._stand_on(self.surveyor.make(ground))
                self._is_new = isinstance(ground, Fresh)
                return inputs.Done(number)
            case do.Keep():
                return inputs.ReportCame(number, await self._keep(action))
            case do.KeepReport():
                return inputs.ReportCame(number, await self._keep_report())
        clients, footing = self._clients, self._footing
        assert clients is not None
        assert footing is not None
        match action:
            case do.CreateRun():
                await clients.creator.create(run, footing.spec())
                return inputs.Done(number)
            case do.AskStatus(after=after, wait=wait):
                found = await clients.admin.status(run, after=after, wait=wait)
                if clients.viewer.lines.is_elsewhere(clients.admin.base) and self._reading:
                    self._reading.cancel()  # the former owner of the run may be cut off
                return inputs.StatusCame(number, found)
            case do.SendSecrets():
                await send_secrets(clients.admin, run, footing.sealed())
                return inputs.Done(number)
            case do.CancelRun(reason=reason):
                words = cancel_reason(reason, self._names)
                return inputs.StatusCame(number, await clients.admin.cancel(run, words))
            case do.TellSlot(key=key):
                await clients.admin.slot_news(run, key.slot, self._slot_news(action, footing))
                return inputs.Done(number)
        raise AssertionError(f"nothing carries out {action}")

    async def _stand_on(self, footing: Footing) -> None:
        """From now on this is the launch; what belongs to another one is closed."""
        if self._footing is footing:
            return
        if self._clients is not None:
            await self._clients.close()
        self._footing, self._clients = footing, Clients.of(footing, self._world)
        self._port = LauncherPort(self._clients.viewer, self._state, self._board.say)
        self._scheduling.begin(footing, self._feed)

    # --- the registry -------------------------------------------------------------------------

    def _slot_news(self, action: do.TellSlot, footing: Footing) -> SlotNews:
        key, news = action.key, action.news
        is_intent = news.state is SlotState.SUBMITTING and not news.detail
        return SlotNews(
            generation=key.generation,
            state=news.state,
            name=self._scheduling.name(key) if is_intent else "",
            handle=printable(news.handle, _MOST_HANDLE),
            detail=detail_of(news),
            token_sha256=footing.token_sha256(key) if is_intent else None,
            cause=_cause_of(news),
        )

    async def _follow_events(self, action: do.FollowEvents) -> Input:
        """What is shown must not end what is done."""
        self._seen = action.after
        reading = self._reading = asyncio.create_task(self._read_events())
        try:
            await asyncio.wait({reading})
        finally:
            reading.cancel()
        broken = reading.cancelled() or reading.result()
        return inputs.EventsOver(action.id, self._seen, broken, self._world.jitter())

    async def _read_events(self) -> bool:
        """Show them to the end of the run; whether they broke off before."""
        assert self._clients is not None
        try:
            async for line in self._clients.viewer.events(self._state.run, self._seen):
                self._seen = line.number
                self._board.event(line, said=self._said_end and line.kind == "cancelled")
        except RdzvError:
            return True
        return False

    async def _fetch_words(self, action: do.FetchWords) -> Input:
        if self._words is None:
            assert self._clients is not None
            admin = self._clients.admin
            self._words = self._world.words_keeper(admin, self._state, self._board.say)
        await self._words.fetch()
        return inputs.Done(action.id)

    # --- files --------------------------------------------------------------------------------

    async def _keep(self, action: do.Keep) -> RunReport:
        """`rdzv logs` and `rdzv status --env` read it."""
        assert self._clients is not None
        status = action.status
        self._state.write("status.json", status.model_dump_json().encode())
        table = await self._clients.viewer.table(self._state.run, status.digest)
        self._state.write("table.json", table.canonical())
        return await self._keep_report()

    async def _keep_report(self) -> RunReport:
        """What was checked has to be known when the registry is gone."""
        assert self._clients is not None
        report = await self._clients.viewer.checks(self._state.run)
        self._state.write("report.json", report.model_dump_json().encode())
        return report

    def _write_result(self, number: int, verdict: Verdict) -> Input:
        self.result = result_of(verdict, self._names)
        try:
            self._state.write_result(self.result)
        except RdzvError as exc:
            return inputs.NotWritten(number, exc.message)
        return inputs.Done(number)

    # --- the registry's process ---------------------------------------------------------------

    async def _run_child(self, action: do.StartChild) -> Input:
        assert self.surveyor.socket is not None
        async with self._starting:
            child = await self._world.start_registry(self._state, self.surveyor.socket)
            self._child = child
        if self._is_new:
            self._is_new = False
            await self._scheduling.make_ready()
            self._world.dismiss()
        code = await child.wait()
        return inputs.ChildEnded(action.id, code, self._world.registry_words(self._state))

    async def _close_child(self, action: do.CloseChild) -> Input:
        """The connections first: a registry that ends need not wait for them."""
        if self._clients is not None:
            await self._clients.close()
        await self._end_child()
        return inputs.Done(action.id)

    async def _end_child(self) -> None:
        async with self._starting:  # one that is being started is ended as well
            if self._child is not None:
                await self._child.end(_KILL_SECONDS)
                self._child = None
            if self.surveyor.socket is not None:
                self.surveyor.socket.close()
                self.surveyor.socket = None


def _cause_of(news: do.News) -> str:
    """Why a worker run ends, where its scheduler or its spec says so."""
    if news.preempted:
        return Cause.PREEMPTED
    return Cause.SCHEDULER_FAILED if news.final else ""
