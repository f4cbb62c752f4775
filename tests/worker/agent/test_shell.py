"""A node's shell: in which order it does what is decided, and what of it lasts until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.talk.client import REQUEST_SECONDS
from rendezvous.wire.errors import ArmingFailed, Unavailable
from rendezvous.wire.log_view import ViewOrder
from rendezvous.wire.watch import DepartureNotice
from tests.support.virtual_time import forever
from tests.worker.agent.drive import OFFER, PLAN, at_once, virtually
from tests.worker.agent.test_running import Program, Sink
from tests.worker.test_table import join, table
from worker.agent import AgentEnvironment, inputs
from worker.agent import actions as do
from worker.agent.arming import NodeSpec
from worker.agent.last_words import Printed
from worker.agent.notices import Note, notice
from worker.agent.shell import NodeShell, rules_of
from worker.agent.state import ProgramState, Rules
from worker.contracts import Contract
from worker.evidence.look import Counters
from worker.settings import WorkerSettings

TABLE = table()
PROGRAM, SERVES = Contract(["train"], {}), Contract([], {})
WHY = notice(Note.WARNED, words="over")


class Outer:
    """The outer world of one node, and what it was asked for, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.programs: list[Program] = []
        note = self.done.append

        async def close(what: str) -> None:
            note(f"{what} closed")

        async def known(names: Any) -> dict[str, frozenset[str]]:
            note(("known", [*names]))
            return {}

        def listen(identity: Any, *, within: tuple[int, int] | None, **_: Any) -> Any:
            note(("listen", within))
            return SimpleNamespace(port=7_004, close=lambda: note("listener closed"))

        async def start(argv: Any, environ: Any, **options: Any) -> Program:
            note(("start", options["until"]))
            self.programs.append(Program())
            return self.programs[-1]

        async def no_program(*_: Any, **__: Any) -> None:
            return None

        async def end() -> None:
            note("early ended")

        self.socket = SimpleNamespace(path="", close=lambda: close("socket"))
        self.socket.open = self._open
        doors: dict[str, Any] = {
            "environ": {"PATH": "/bin"},
            "in_thread": at_once,
            "hosts_block": lambda path, run: SimpleNamespace(
                install=lambda *_: note("hosts"), remove=lambda: note("hosts removed")
            ),
            "resolver": lambda: SimpleNamespace(
                ask=lambda names: note(("ask", [*names])),
                known=known,
                close=lambda: close("resolver"),
            ),
            "local_socket": lambda **_: self.socket,
            "features": lambda: (),
            "early": lambda *_: SimpleNamespace(start=no_program, end=end),
            "listen": listen,
            "terminal": lambda *_: None,
            "make_private": lambda folder: None,
            "sink": lambda *_, **__: Sink(),
            "start": start,
            "look_before": lambda pid: Counters(),
            "look_after": lambda before, asked: [],
            **{name: lambda *_: "" for name in ("why_unusable", "missing_of")},
            "is_free": lambda port: True,
            "read_conf": lambda environ: {},
            "write_files": lambda folder, files: None,
        }
        self.environment = AgentEnvironment(**doors)

    async def _open(self, environ: Any) -> str:
        self.done.append("socket opened")
        self.socket.path = "/s"
        return "/s"


class Registry:
    """One that passes nothing on."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: forever()


class Bench:
    """A shell, and what its machine is fed."""

    def __init__(self) -> None:
        self.outer = Outer()
        self.done = self.outer.done
        settings = WorkerSettings(framework="command", log_dir=Path("/logs"), hosts="auto")
        spec = NodeSpec(settings, join(), ["train"], remote=True)
        registry: Any = Registry()
        shell: Any = NodeShell(spec, self.outer.environment, registry)
        self.shell = shell
        self.fed: list[inputs.Input] = []
        self.shell.feed = self.shell._parts.feed = self.fed.append

    async def carry_out(self, asked: do.Effect) -> inputs.Input:
        answer: inputs.Input = await self.shell._carry_out(asked)
        return answer

    async def start(self, number: int, contract: Contract = PROGRAM) -> asyncio.Task[inputs.Input]:
        """A program that runs."""
        task = asyncio.create_task(self.carry_out(do.Start(number, TABLE, contract)))
        await asyncio.sleep(1.0)
        return task


def shells(work: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test with a shell of its own, on a virtual clock."""

    def test() -> None:
        async def go() -> None:
            await work(Bench())

        virtually(go())

    test.__name__, test.__doc__ = work.__name__, work.__doc__
    return test


@shells
async def test_a_node_listens_again_on_the_port_that_its_peers_know(bench: Bench) -> None:
    assert await bench.carry_out(do.Listen(1)) == inputs.Listening(1, 7_004)
    assert await bench.carry_out(do.Listen(2, again=True)) == inputs.Done(2)
    for number in (3, 4):
        bench.shell._act(do.StopListening())
        bench.shell._act(do.StopListening())
        asked = do.Listen(number, again=True)
        assert await bench.carry_out(asked) == inputs.Listening(number, 7_004)
    again = ["listener closed", ("listen", (7_004, 7_004))]
    assert bench.done == [("listen", None), *again, *again]


@shells
async def test_what_the_program_said_last_is_heard_before_it_is_sent_on(bench: Bench) -> None:
    async def done(what: str) -> None:
        await asyncio.sleep(0.1)
        bench.done.append(what)

    bench.outer.socket.hear_out = lambda seconds: done("heard")
    bench.shell._parts.flush = lambda: done("features")
    bench.shell._views.flush = lambda: done("views")
    assert await bench.carry_out(do.Flush(1, program=7)) == inputs.Done(1)
    assert bench.done == ["heard", "features", "views"]


@shells
async def test_until_when_it_may_run_a_program_knows_from_its_start_and_later(bench: Bench) -> None:
    bench.shell._act(do.MayRun(until=50.0))
    task = await bench.start(7)
    assert bench.done == [("start", 50.0)]
    remote: list[float] = []
    bench.shell._remote.may_run = remote.append
    bench.shell._act(do.MayRun(until=60.0))
    [program] = bench.outer.programs
    assert (program.told, remote, bench.shell._until.get()) == ([("until", 60.0)], [60.0], 60.0)
    bench.shell._act(do.Kill(7))
    await task


@shells
async def test_the_second_program_has_nothing_of_the_first_one(bench: Bench) -> None:
    """Neither its steps, nor what is still done about it."""
    first = await bench.start(7)
    bench.shell._parts.step = 41
    bench.shell._act(do.Stop(7, ends_itself=False))
    gone = await first
    assert isinstance(gone, inputs.ProgramGone)
    assert gone.words.progress == 41
    second = await bench.start(12)
    for late in (do.Stop(7, ends_itself=False), do.Kill(7), do.PassSignal(7, 10)):
        bench.shell._act(late)
    assert bench.outer.programs[1].told == []
    bench.shell._act(do.PassSignal(12, 10))
    bench.shell._act(do.Kill(12))
    gone = await second
    assert isinstance(gone, inputs.ProgramGone)
    assert (gone.number, gone.words.progress) == (12, None)
    assert bench.outer.programs[1].told == [10, "kill"]


@shells
async def test_features_see_a_program_from_its_start_to_its_end(bench: Bench) -> None:
    """Of one that is being stopped, or has told its end, they see no ranks any more."""
    seen, of = list[Any](), list[Callable[[], object]]()

    def starts(asked: do.Start, ranks: Callable[[], object]) -> None:
        seen.append(asked.number)
        of.append(ranks)

    bench.shell._parts = SimpleNamespace(starts=starts, runs=seen.append, step=None)
    task = await bench.start(7)
    program = ProgramState(7, 1, started_at=1.0)
    for changes in ({}, {"stop_at": 1.5}, {"told": True}, {"told": True, "gone": True}):
        changed = replace(program, **changes)
        bench.shell._node = replace(bench.shell._node, program=changed)
        bench.shell._step(inputs.Tick(), 2.0)
        seen.append(of[0]() is not None)
    assert seen == [7, 7, True, 7, False, 7, False, None, False]
    bench.shell._node = replace(bench.shell._node, program=None)
    assert of[0]() == bench.shell._running[7].ranks()
    bench.shell._act(do.Kill(7))
    await task


@shells
async def test_each_epoch_has_remote_commands_of_its_own(bench: Bench) -> None:
    opened = []
    for epoch in (1, 2, 3):
        bench.shell._act(do.OpenRemote(TABLE, f"digest {epoch}", SERVES))
        remote, work = bench.shell._remote, bench.shell._remote_work
        opened.append(remote)
        assert (remote._digest, remote._closed) == (f"digest {epoch}", "")
        await asyncio.sleep(0.1)
        assert not work.done()
        await bench.carry_out(do.CloseRemote(epoch, WHY))
        assert remote._closed == "over"
        await asyncio.sleep(0.1)
        assert work.done()
    assert len({*map(id, opened)}) == 3


@shells
async def test_what_a_process_here_asks_for_is_served_by_those_of_the_epoch(bench: Bench) -> None:
    asked: list[Any] = []

    async def serve(request: Any, caller: Any) -> None:
        asked.append((request, caller))

    caller: Any = object()
    bench.shell._remote.serve = serve
    await bench.shell._serve_remote({"host": "gpu-9"}, caller)
    assert asked == [({"host": "gpu-9"}, caller)]


@shells
async def test_who_is_killed_is_killed_with_what_runs_here_for_others(bench: Bench) -> None:
    task = await bench.start(7)
    bench.shell._remote.kill_now = lambda: bench.done.append("remote killed")
    bench.shell._act(do.Kill(7))
    await task
    assert bench.done[-1] == "remote killed"
    assert bench.outer.programs[0].told == ["kill"]


@shells
async def test_a_fault_of_what_goes_on_beside_the_run_is_told(bench: Bench) -> None:
    error = ValueError("not this way")

    async def fails() -> None:
        raise error

    bench.shell._begin_beside("sending metrics", fails())
    await asyncio.sleep(0.1)
    assert bench.fed == [inputs.PartBroken("sending metrics", error)]
    assert bench.shell._beside == set()


@shells
async def test_what_goes_on_beside_the_run_has_ended_with_it(bench: Bench) -> None:
    async def goes_on() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0.5)
            bench.done.append("ended")

    bench.shell._begin_beside("sending metrics", goes_on())
    bench.shell._begin_beside("answering a look", goes_on())
    await asyncio.sleep(0.1)
    await bench.shell._close()
    assert bench.done == ["ended", "ended", "early ended"]
    assert bench.fed == []


@shells
async def test_it_is_armed_with_a_socket_and_all_names_known(bench: Bench) -> None:
    """The socket stays; names may lead elsewhere by now."""
    names = [row.hostname for row in TABLE.rows]
    offered = frozenset(row.mac for row in TABLE.rows if row.slot == 1)

    async def disarm(restarts: object) -> None:
        bench.done.append("disarmed")

    bench.shell._begun.disarm = disarm
    for number in (1, 2):
        asked = do.Arm(number, TABLE, TABLE.digest(), None, offered)
        answer = await bench.carry_out(asked)
        assert isinstance(answer, inputs.Armed)
        assert answer.contract.variables["RDZV_SOCKET"] == "/s"
    each = ["disarmed", ("known", names), "hosts"]
    assert bench.done == ["socket opened", *each, *each]


@shells
async def test_a_table_that_is_refused_makes_nothing_ready(bench: Bench) -> None:
    async def arm(contract: Contract) -> bool:
        raise AssertionError

    bench.shell._begun.arm = arm
    answer = await bench.carry_out(do.Arm(1, TABLE, TABLE.digest(), None, frozenset(["x"])))
    assert isinstance(answer, inputs.NotArmed)
    assert answer.refusal.code == "bad_table"


@shells
async def test_names_are_looked_up_while_the_peers_are_visited(bench: Bench) -> None:
    async def probe(*_: Any) -> list[Any]:
        bench.done.append("visited")
        return []

    object.__setattr__(bench.outer.environment, "probe", probe)
    await bench.carry_out(do.Visit(1, 1, PLAN))
    assert bench.done == [("ask", [peer.hostname for peer in PLAN.peers]), "visited"]


DEPARTURE = DepartureNotice(slot=2, node=1, seconds=40.0)
VIEW = do.ServeView(ViewOrder(view=5), node=1, ranks=(2,), siblings=(2, 3), epoch=3, delay=0.0)


class Noted:
    """A part of a shell that notes in order what it is asked for, and does nothing of it."""

    def __init__(self, part: str, done: list[Any]) -> None:
        self._part, self._done = part, done

    def __getattr__(self, name: str) -> Any:
        async def nothing() -> None: ...

        def call(*args: Any, **options: Any) -> Any:
            self._done.append((f"{self._part}.{name}", *args, *options.items()))
            return nothing() if name in ("begin", "send", "serve", "show_departure") else None

        return call


@pytest.mark.parametrize(
    ("action", "done"),
    [
        (do.Drop(11), [("core.drop", 11)]),
        (do.StartEarly(cold=True), [("begun.begin", ("cold", True))]),
        (do.StartEarly(), [("begun.begin", ("cold", False))]),
        (VIEW, [("views.serve", VIEW)]),
        (do.Stop(7, ends_itself=True), [("seven.stop", ("ends_itself", True))]),
        (do.Stop(7), [("seven.stop", ("ends_itself", False))]),
        (do.Kill(7), [("seven.kill",), ("remote.kill_now",)]),
        (do.PassSignal(7, 12), [("seven.pass_signal", 12)]),
        (do.ShowDeparture(7, DEPARTURE, 10), [("seven.show_departure", DEPARTURE, 10)]),
        (do.LookAtProgram(7), [("seven.look",)]),
        (do.Kill(6), []),  # is over
    ],
)
def test_what_is_done_at_once_has_the_values_that_were_decided(
    action: do.Action, done: list[Any]
) -> None:
    async def work() -> None:
        bench = Bench()
        for part in ("core", "begun", "views", "remote"):
            setattr(bench.shell, f"_{part}", Noted(part, bench.done))
        bench.shell._running = {7: Noted("seven", bench.done)}
        bench.shell._act(action)
        await asyncio.sleep(0.1)
        assert (bench.done, bench.fed, bench.shell._beside) == (done, [], set())

    virtually(work())


@shells
async def test_a_shell_is_over_with_the_code_or_the_error_that_was_decided(bench: Bench) -> None:
    bench.shell._act(do.End(3))
    assert await bench.shell._over == 3
    other = Bench()
    error = ValueError("not this way")
    other.shell._act(do.End(0, error))
    with pytest.raises(ValueError, match="not this way"):
        await other.shell._over


@shells
async def test_a_socket_that_cannot_be_opened_is_told_of_and_tried_again(bench: Bench) -> None:
    async def fails(environ: Any) -> str:
        bench.done.append("tried")
        raise OSError(28, "No space left on device")

    said: list[Any] = []
    bench.outer.socket.open, bench.shell._say = fails, said.append
    for _ in range(2):
        await bench.shell._open_socket()
    assert bench.done == ["tried", "tried"]
    assert said == [notice(Note.NO_SOCKET, problem="No space left on device")] * 2


@pytest.mark.parametrize(
    ("asked", "answer", "done"),
    [
        (do.CloseSocket(4), inputs.Done(4), ["socket closed", "resolver closed"]),
        (do.RemoveHosts(4, limit=1.0), inputs.Done(4), ["hosts removed"]),
        (do.Publish(4), inputs.Done(4), []),  # nobody wants it any more
    ],
)
def test_each_last_step_does_all_of_it(
    asked: do.Effect, answer: inputs.Input, done: list[str]
) -> None:
    async def work() -> None:
        bench = Bench()
        assert await bench.carry_out(asked) == answer
        assert bench.done == done

    virtually(work())


@shells
async def test_a_question_is_answered_with_the_ranks_of_its_program_alone(bench: Bench) -> None:
    asked: list[tuple[int | None, bool]] = []

    async def answer(question: do.AnswerQuestion, ranks: object) -> None:
        asked.append((question.program, ranks is not None))

    bench.shell._answers.answer = answer
    task = await bench.start(7)
    for program in (None, 6, 7):
        question = SimpleNamespace(program=program)
        await bench.shell._answer(question)
    bench.shell._act(do.Kill(7))
    await task
    assert asked == [(None, False), (6, False), (7, True)]


# --- what it asks of its machine ------------------------------------------------------------------


def put(bench: Bench, **doors: Any) -> None:
    """These in place of the doors to the outer world."""
    for name, door in doors.items():
        object.__setattr__(bench.outer.environment, name, door)


@shells
async def test_hosts_that_an_ended_run_left_are_put_back_and_said(bench: Bench) -> None:
    file = bench.outer.environment.hosts_file
    put(bench, restore_stale=lambda path: ["llama", "gpt"] if path == file else [])
    bench.shell._resolver.begin = lambda: bench.done.append("resolver begun")
    said = [notice(Note.STALE_HOSTS_REMOVED, file=file, run=run) for run in ("llama", "gpt")]
    assert await bench.carry_out(do.RestoreHosts(4, limit=1.0)) == inputs.Done(4, tuple(said))

    def fails(path: Path) -> list[str]:
        raise ArmingFailed("no right to write")

    put(bench, restore_stale=fails)
    kept = notice(Note.STALE_HOSTS_KEPT, problem="no right to write")
    assert await bench.carry_out(do.RestoreHosts(5, limit=1.0)) == inputs.Done(5, (kept,))
    assert bench.done == ["resolver begun"] * 2


@pytest.mark.parametrize("near", [False, True])
def test_what_it_offers_is_what_this_machine_has_at_the_address_it_is_reached_at(
    near: bool,
) -> None:
    async def work() -> None:
        bench = Bench()
        address = "127.0.0.1" if near else "10.0.0.5"
        candidate = replace(OFFER.candidates[0], address=address)
        asked: list[Any] = []

        def make_offer(settings: Any, join: Any, *others: Any, **more: Any) -> Any:
            asked.append((join.slot, *others, more["probe_port"], more["environ"]))
            return replace(OFFER, candidates=[candidate])

        put(bench, make_offer=make_offer)
        answer = await bench.carry_out(do.MakeOffer(4, "https://[fd00::4]:29600", 7_004, 9.0))
        assert isinstance(answer, inputs.Offered)
        assert (answer.number, answer.offer.any_slot) == (4, False)
        assert bench.shell._offers_loopback is near
        assert asked == [(1, ["train"], "fd00::4", 7_004, {"PATH": "/bin"})]

    virtually(work())


@shells
async def test_where_no_port_can_be_had_the_reason_is_told(bench: Bench) -> None:
    def fails(identity: Any, **_: Any) -> Any:
        raise OSError(98, "Address already in use")

    put(bench, listen=fails)
    answer = await bench.carry_out(do.Listen(4))
    assert answer == inputs.Listening(4, None, "[Errno 98] Address already in use")
    assert await bench.carry_out(do.Listen(5, again=True)) == inputs.Done(5)


@shells
async def test_the_trouble_and_the_last_words_are_those_of_the_program_that_is_named(
    bench: Bench,
) -> None:
    async def read_trouble(asked: do.ReadTrouble) -> inputs.Input:
        return inputs.TroubleRead(asked.number, "no RDMA")

    posted: list[Any] = []

    class Client:
        def __getattr__(self, name: str) -> Any:
            async def call(*args: Any, **_: Any) -> Any:
                posted.append(args[-1])
                raise Unavailable("nobody listens")

            return call

    bench.shell._client = Client()
    printed = Printed(1, {2: ["one", "two"]})
    bench.shell._running = {7: SimpleNamespace(read_trouble=read_trouble, printed=lambda: printed)}
    answer = await bench.carry_out(do.ReadTrouble(4, program=7, limit=1.0))
    assert answer == inputs.TroubleRead(4, "no RDMA")
    for program, number in ((6, 0), (7, 1)):
        words = do.SendWords(5, program, 3, rank=9, wait=0.5, limit=1.0)
        assert await bench.carry_out(words) == inputs.Done(5)
        assert len(posted) == number


@shells
async def test_a_node_is_over_when_its_machine_says_so_and_leaves_nothing(bench: Bench) -> None:
    """A notice file that comes meanwhile is told; who waits for one is not waited for."""
    asked: list[Any] = []

    async def notice_in(file: Path, in_thread: Any) -> float:
        asked.append(file)
        await asyncio.sleep(3.0)
        return 40.0

    put(bench, notice_in=notice_in)
    settings = bench.shell._spec.settings.model_copy(update={"notice_file": Path("/n")})
    bench.shell._spec = replace(bench.shell._spec, settings=settings)
    running = asyncio.create_task(bench.shell.run())
    await asyncio.sleep(5.0)
    assert asked == [Path("/n")]
    assert bench.fed == [inputs.DepartureNear(40.0, "its notice file /n appeared")]
    bench.shell._act(do.End(3))
    assert await running == 3
    assert bench.done[-1] == "early ended"
    assert bench.shell._beside == set()


def test_what_the_machine_has_to_know_is_what_a_person_set() -> None:
    async def work() -> None:
        bench = Bench()
        settings = WorkerSettings(framework="command", log_dir=Path("/logs"), hosts="auto")
        changes: dict[str, Any] = {
            "join_timeout": 61.0,
            "orphan_timeout": 62.0,
        }
        changes |= {"grace": 64.0, "notice_signal": "USR1"}
        settings = settings.model_copy(update=changes)
        spec = replace(bench.shell._spec, settings=settings, remote=True, any_slot=True)
        put(bench, hosts_seconds=65.0)
        environment = bench.outer.environment
        rules = Rules(
            run="llama",
            slot=1,
            join_timeout=61.0,
            orphan_timeout=62.0,
            answer_seconds=REQUEST_SECONDS,
            hosts_file=str(environment.hosts_file),
            hosts_seconds=65.0,
            remote=True,
            early=False,
            notice_signal=10,
            grace=64.0,
            any_slot=True,
        )
        assert rules_of(spec, environment) == rules
        local = rules_of(replace(spec, remote=False), environment)
        assert local == replace(rules, remote=False)
        settings = settings.model_copy(update={"hosts": "off"})
        other = rules_of(replace(spec, settings=settings), environment)
        assert other == replace(rules, hosts_file="")

    virtually(work())
