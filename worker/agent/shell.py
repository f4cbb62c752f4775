"""The shell of a node's machine: it carries out what is decided, and decides nothing itself.

Each action is a call here; each effect is a task that is answered by one input. What goes on beside
them (remote commands, the program, features) feeds the machine when it has something to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rendezvous.shell import Shell
from rendezvous.talk.client import REQUEST_SECONDS, RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.sealed import fetch_secrets
from rendezvous.talk.sealed_variables import NotSealedHere, unseal
from rendezvous.tasks import cancel_all, now
from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.words import node_name
from worker.agent import actions as do
from worker.agent import inputs, node
from worker.agent.answering import Answers
from worker.agent.arming import NodeSpec, arm
from worker.agent.begun import Begun, begins_early
from worker.agent.environment import AgentEnvironment, Listener
from worker.agent.notices import Note, Notice, notice, text_of
from worker.agent.own_words import own_word
from worker.agent.port import Parts, RunningRanks
from worker.agent.running import Running
from worker.agent.session import one_try, talk
from worker.agent.state import Node, Rules
from worker.agent.views import Views
from worker.agent.visiting import listen, visit
from worker.agent.words_sender import send_last_words
from worker.probe.packets import Identity
from worker.program.local_socket import Caller, Request
from worker.rsh.remote import RemoteCommands
from worker.rsh.served import ServedShell
from worker.settings import signal_number

logger = logging.getLogger("worker.agent")

_HEAR_SECONDS = 1.0


class _OpenedSecrets:
    """The run's sealed variables on this node, held in memory for its programs; none before they
    were fetched."""

    def __init__(self) -> None:
        self.values: Mapping[str, str] = {}

    async def fetch(
        self, asked: do.FetchSecrets, client: RegistryClient, join: JoinString
    ) -> inputs.Input:
        """Fetch and open them, once. Raises RdzvError."""
        launch = {"run": join.run, "launch_id": join.launch_id}
        sealed = await fetch_secrets(client, join.run, join.slot)
        if not sealed:
            return inputs.NotSent(asked.number)
        try:
            self.values = unseal(sealed, join.row_key, **launch, slot=join.slot)
        except NotSealedHere as exc:
            raise ArmingFailed(
                f"the registry's secret variables were not sent by this run's launcher: {exc}"
            ) from exc
        return inputs.Done(asked.number)


class _Until:
    """Until when what runs here, and what begins here, may run."""

    def __init__(self) -> None:
        self._at: float | None = None

    def get(self) -> float | None:
        """The time; None: for ever."""
        return self._at

    def allow(self, at: float, *runs: Running | RemoteCommands) -> None:
        """Until then, and no longer."""
        self._at = at
        for one in runs:
            one.may_run(at)


class NodeShell:
    """One node's machine, and what carries out its decisions.

    Args:
        spec: What this agent is.
        environment: The outer world.
        client: Of the registry.
    """

    def __init__(
        self, spec: NodeSpec, environment: AgentEnvironment, client: RegistryClient
    ) -> None:
        join = spec.join
        self._until = _Until()
        self._spec = spec
        self._environment = environment
        self._client = client
        self._hosts = environment.hosts_block(environment.hosts_file, join.run)
        self._resolver = environment.resolver()
        self._identity = Identity(join.probe_key, join.run, join.launch_id, join.slot)
        self._listener: Listener | None = None
        self._port: int | None = None
        self._offers_loopback = False
        self._secrets = _OpenedSecrets()
        self._remote = RemoteCommands(client, join, allowed=spec.remote)
        self._remote_work: asyncio.Task[None] | None = None
        self._socket = environment.local_socket(
            take={"waits": partial(_waits, self.feed)}, serve={"exec": self._serve_remote}
        )
        self._parts = Parts(spec, environment, client, self._socket, self.feed, self._begin_beside)
        self._views = Views(client, join, environment, spec.log_folder(environment.environ))
        self._answers = Answers(client, join, self._parts)
        self._begun = Begun(spec, environment, self._say)
        self._running: dict[int, Running] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._node = Node(rules_of(spec, environment))
        self._core: Shell[inputs.Input, do.Action] = Shell(
            self._step,
            self._due,
            tick=inputs.Tick(),
            act=self._act,
            broken=inputs.Broken,
        )

    async def run(self) -> int:
        """Take part in the run; returns the exit code. Raises what the node ends with instead."""
        self._node, actions = node.begin(self._node.rules, now())
        for action in actions:
            self._act(action)
        if self._spec.settings.notice_file is not None:
            self._begin_beside("watching the notice file", self._watch_notice())
        try:
            return await self._over
        finally:
            await self._close()

    def feed(self, said: inputs.Input) -> None:
        """Tell the machine something that happened by itself."""
        self._core.feed(said)

    async def _watch_notice(self) -> None:
        file = self._spec.settings.notice_file
        seconds = await self._environment.notice_in(file, self._environment.in_thread)
        self.feed(inputs.DepartureNear(seconds, f"its notice file {file} appeared"))

    async def _close(self) -> None:
        await cancel_all(self._beside)
        await self._core.close()
        await self._begun.end()

    def _step(self, said: inputs.Input, now: float) -> Sequence[do.Action]:
        self._node, actions = node.step(self._node, said, now)
        self._parts.runs(self._node.runs)
        return actions

    def _due(self) -> float | None:
        return node.due(self._node, now())

    # --- what is done at once -----------------------------------------------------------------

    def _act(self, action: do.Action) -> None:
        match action:
            case do.Say():
                self._say(action.notice)
            case do.ShowWord():
                words = own_word(self._spec.command, action.word)
                self._say(notice(Note.WARNED, words=words))
            case do.Drop():
                self._core.drop(action.number)
            case do.StartEarly():
                self._begin_beside("starting early", self._begun.begin(cold=action.cold))
            case do.StopListening():
                self._stop_listening()
            case do.OpenRemote():
                self._open_remote(action)
            case do.AnswerQuestion():
                self._begin_beside("answering a question", self._answer(action))
            case do.ServeView():
                self._begin_beside("sending output to a reader", self._views.serve(action))
            case do.MayRun(until=until):
                self._until.allow(until, *self._running.values(), self._remote)
            case do.Stop() | do.Kill() | do.PassSignal() | do.ShowDeparture() | do.LookAtProgram():
                self._act_on_program(action)
            case do.End():
                self._end(action)
            case _:
                work = partial(self._carry_out, action)
                self._core.start(action.number, one_try(action, work, self._client.pause))

    def _say(self, said: Notice) -> None:
        logger.log(said.note.level, "%s", text_of(said))

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _open_remote(self, asked: do.OpenRemote) -> None:
        row = self._spec.row(asked.table)
        environ = asked.contract.served_environment(self._environment.environ)
        grace = self._spec.settings.grace
        shell = ServedShell(node_name(row.node, row.hostname), environ, grace, self._until.get)
        if self._remote_work is not None:  # those of an epoch that is over
            self._remote = RemoteCommands(self._client, self._spec.join, allowed=True)
        self._remote.begin(asked.table, asked.digest, shell)
        self._remote_work = self._begin_beside("remote commands", self._remote.work())

    async def _serve_remote(self, request: Request, caller: Caller) -> None:
        await self._remote.serve(request, caller)

    async def _close_remote(self, asked: do.CloseRemote) -> None:
        await self._remote.close(text_of(asked.why))
        if self._remote_work is not None:
            self._remote_work.cancel()

    def _begin_beside(self, what: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on that the run can do without."""

        async def go() -> None:
            try:
                await work
            except Exception as exc:  # noqa: BLE001 (the run does without)
                self.feed(inputs.PartBroken(what, exc))

        task = asyncio.create_task(go())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def _act_on_program(
        self, action: do.Stop | do.Kill | do.PassSignal | do.ShowDeparture | do.LookAtProgram
    ) -> None:
        if (running := self._running.get(action.program)) is None:
            return
        match action:
            case do.Stop():
                running.stop(ends_itself=action.ends_itself)
            case do.Kill():
                running.kill()
                self._remote.kill_now()
            case do.PassSignal():
                running.pass_signal(action.signal)
            case do.ShowDeparture():
                showing = running.show_departure(action.departure, action.signal)
                self._begin_beside("showing a notice", showing)
            case do.LookAtProgram():
                running.look()

    async def _answer(self, asked: do.AnswerQuestion) -> None:
        running = self._running.get(asked.program) if asked.program is not None else None
        await self._answers.answer(asked, running.ranks() if running is not None else None)

    def _ranks(self, running: Running) -> RunningRanks | None:
        return None if self._node.is_ending else running.ranks()

    def _end(self, asked: do.End) -> None:
        if asked.error is not None:
            self._over.set_exception(asked.error)
        else:
            self._over.set_result(asked.code)

    # --- effects ------------------------------------------------------------------------------

    async def _carry_out(self, asked: do.Effect) -> inputs.Input:
        spec, environment = self._spec, self._environment
        match asked:
            case do.Connect() | do.Join() | do.Refuse() | do.Watch() | do.Tell() | do.CloseClient():
                return await talk(asked, self._client, spec.join)
            case do.FetchSecrets():
                return await self._secrets.fetch(asked, self._client, spec.join)
            case do.RestoreHosts():
                return await self._restore_hosts(asked)
            case do.Listen():
                return self._listen(asked)
            case do.LookAhead():
                await environment.in_thread(
                    environment.look_ahead,
                    *(spec.settings, spec.join.slot, spec.command, environment.environ),
                )
            case do.MakeOffer():
                return await self._make_offer(asked)
            case do.Visit():
                self._resolver.ask(peer.hostname for peer in asked.plan.peers)
                return await visit(asked, self._identity, environment, near=self._offers_loopback)
            case do.Arm():
                return await self._arm(asked)
            case do.Start():
                running = Running(
                    asked, spec, environment, self._begun.program, self.feed, self._say
                )
                running.until = self._until.get()
                self._running = {asked.number: running}  # the one before is over
                self._parts.starts(asked, partial(self._ranks, running))
                return await running.run(lambda: self._parts.step)
            case do.Flush():
                await self._socket.hear_out(_HEAR_SECONDS)
                await self._parts.flush()
                await self._views.flush()
            case do.ReadTrouble():
                return await self._running[asked.program].read_trouble(asked)
            case do.SendWords():
                if (program := self._running.get(asked.program)) is not None:
                    await send_last_words(asked, program.printed(), self._client, spec.join)
            case do.Publish():
                await self._parts.publish_next()
            case do.CloseRemote():
                await self._close_remote(asked)
            case do.CloseSocket():
                await self._socket.close()
                await self._resolver.close()
            case do.RemoveHosts():
                await environment.in_thread(self._hosts.remove)
        return inputs.Done(asked.number)

    async def _restore_hosts(self, asked: do.RestoreHosts) -> inputs.Input:
        file = self._environment.hosts_file
        self._resolver.begin()
        try:
            runs = await self._environment.in_thread(self._environment.restore_stale, file)
            said = [notice(Note.STALE_HOSTS_REMOVED, file=file, run=run) for run in runs]
        except ArmingFailed as exc:
            said = [notice(Note.STALE_HOSTS_KEPT, problem=exc.message)]
        return inputs.Done(asked.number, tuple(said))

    def _listen(self, asked: do.Listen) -> inputs.Input:
        if asked.again and (self._listener is not None or self._port is None):
            return inputs.Done(asked.number)
        try:
            self._listener = listen(self._spec, self._identity, self._environment, self._port)
        except OSError as exc:
            return inputs.Listening(asked.number, None, str(exc))
        self._port = self._listener.port
        return inputs.Listening(asked.number, self._port)

    async def _make_offer(self, asked: do.MakeOffer) -> inputs.Input:
        spec = self._spec
        offer = await self._environment.in_thread(
            self._environment.make_offer,
            *(spec.settings, spec.join, spec.command, _host_of(asked.base)),
            environ=self._environment.environ,
            probe_port=asked.probe_port,
        )
        self._offers_loopback = any(one.is_loopback for one in offer.candidates)
        needs_torchrun = await self._begun.needs_torchrun()
        offer = replace(offer, any_slot=spec.any_slot, needs_torchrun=needs_torchrun)
        return inputs.Offered(asked.number, offer)

    async def _arm(self, asked: do.Arm) -> inputs.Input:
        await self._open_socket()
        await self._begun.disarm(asked.restarts)
        resolved = await self._resolver.known(row.hostname for row in asked.table.rows)
        answer: inputs.Input = await self._environment.in_thread(
            arm,
            *(asked, self._spec, self._environment, self._hosts),
            socket=self._socket.path,
            resolved=resolved,
            secrets=self._secrets.values,
        )
        if isinstance(answer, inputs.Armed):
            return replace(answer, warm=await self._begun.arm(answer.contract))
        return answer

    async def _open_socket(self) -> None:
        """Let this node's program speak to its agent."""
        if self._socket.path:
            return
        try:
            await self._socket.open(self._environment.environ)
        except OSError as exc:
            self._say(notice(Note.NO_SOCKET, problem=exc.strerror))


def _waits(feed: Callable[[inputs.Input], None], request: Request) -> str:
    """Take in for what a process of the program waits: {"do": "waits", "words", "over"}."""
    words = request.get("words")
    if not isinstance(words, str):
        return "waits: 'words' is not text"
    feed(inputs.Waits(words, over=request.get("over") is True))
    return ""


def rules_of(spec: NodeSpec, environment: AgentEnvironment) -> Rules:
    """What the machine has to know of its settings."""
    settings = spec.settings
    return Rules(
        run=spec.join.run,
        slot=spec.join.slot,
        join_timeout=settings.join_timeout,
        orphan_timeout=settings.orphan_timeout,
        answer_seconds=REQUEST_SECONDS,
        hosts_file="" if settings.hosts == "off" else str(environment.hosts_file),
        hosts_seconds=environment.hosts_seconds,
        remote=spec.remote,
        early=begins_early(spec),
        notice_signal=signal_number(settings.notice_signal),
        grace=settings.grace,
        any_slot=spec.any_slot,
    )


def _host_of(base: str) -> str:
    """The host in a base URL, without brackets."""
    return base.split("//", 1)[1].rsplit(":", 1)[0].strip("[]")
