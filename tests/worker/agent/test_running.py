"""One program below an agent, on a virtual clock: what the machine is told of it, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rendezvous.wire.errors import RunError
from tests.support.virtual_time import forever, run_virtually
from tests.worker.agent.test_visiting import at_once
from tests.worker.test_table import join, table
from worker.agent import AgentEnvironment
from worker.agent.actions import ReadTrouble, Start
from worker.agent.arming import NodeSpec
from worker.agent.inputs import (
    Failed,
    Input,
    MainEnd,
    NetworkSaid,
    OwnWords,
    PartBroken,
    ProgramGone,
    ProgramSeen,
    Started,
    TroubleRead,
)
from worker.agent.notices import Note, Notice
from worker.agent.running import Running
from worker.contracts import Contract
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending
from worker.program.family import Child, Family
from worker.settings import WorkerSettings

ENDING = Ending(0, 30.0)


class Program:
    """A program that ends 3 s after it is told to, or at 30 s."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.family = Family()
        self.main_ended: tuple[int, float] | None = None
        self.signals: list[int] = []
        self.stops = 0
        self.killed = False
        self._over = asyncio.Event()

    def signal(self, number: int) -> None:
        """See `worker.program.process.Program`."""
        self.signals.append(number)

    async def wait(self) -> Ending:
        """See `worker.program.process.Program`."""
        await self._over.wait()
        return ENDING

    async def stop(self) -> Ending:
        """See `worker.program.process.Program`."""
        self.stops += 1
        await asyncio.sleep(3.0)
        self._over.set()
        return ENDING

    def kill_now(self) -> None:
        """See `worker.program.process.Program`."""
        self.killed = True
        self._over.set()


class Sink:
    """The last lines of a program."""

    tail = ("step 1", "step 2")

    def close(self) -> None:
        """See `worker.program.output.OutputSink`."""


class Bench:
    """One `Start`, and what the machine and the log are told of it."""

    def __init__(self, contract: Contract, folder: Path, **changes: Any) -> None:
        self.fed: list[Input] = []
        self.said: list[Notice] = []
        self.program = Program()

        async def start(*args: Any, **options: Any) -> Program:
            await asyncio.sleep(0.5)
            return self.program

        values: dict[str, Any] = {
            "environ": {"PATH": "/bin"},
            "in_thread": at_once,
            "make_private": lambda folder: None,
            "sink": lambda *args, **options: Sink(),
            "start": start,
        }
        environment = AgentEnvironment(**(values | changes))
        spec = NodeSpec(
            WorkerSettings(framework="command", log_dir=folder), join(), ["train"], False
        )
        asked = Start(7, table(), contract)
        self.running = Running(asked, spec, environment, self.fed.append, self.said.append)


PROGRAM = Contract(["train"], {})
LOG = "/logs/node-1.log"
WORDS = OwnWords(("step 1", "step 2"), None, LOG)


def lives(bench: Bench, steps: Callable[[], Any] | None = None) -> Input:
    """What the `Start` is answered with; `steps` happen meanwhile."""
    found: list[Input] = []

    async def work() -> None:
        task = asyncio.create_task(bench.running.run())
        await asyncio.sleep(1.0)
        if steps is not None:
            await asyncio.sleep(0)
            steps()
        found.append(await task)

    run_virtually(work())
    return found[0]


def test_it_runs_is_seen_at_once_and_is_gone_with_its_last_words() -> None:
    bench = Bench(PROGRAM, Path("/logs"))
    assert lives(bench, bench.running.stop) == ProgramGone(7, ENDING, WORDS)
    assert bench.fed == [Started(7), ProgramSeen(7, Family())]


def test_what_changes_below_it_is_told_and_its_words_where_they_are_asked_for() -> None:
    bench = Bench(PROGRAM, Path("/logs"))
    family = Family(None, (Child(101, 0.0, 0.0),))

    def steps() -> None:
        bench.program.family, bench.program.main_ended = family, (3, 0.9)
        bench.program.changed()
        bench.running.look()
        bench.running.pass_signal(10)
        bench.running.kill()

    lives(bench, steps)
    main = MainEnd(3, 0.9)
    assert bench.fed[2:] == [
        ProgramSeen(7, family, main),
        ProgramSeen(7, family, main, WORDS),
    ]
    assert (bench.program.signals, bench.program.killed) == ([10], True)


def test_it_is_stopped_once() -> None:
    bench = Bench(PROGRAM, Path("/logs"))

    def steps() -> None:
        bench.running.stop()
        bench.running.stop()

    lives(bench, steps)
    assert bench.program.stops == 1


def test_what_is_asked_before_it_runs_is_no_matter() -> None:
    bench = Bench(PROGRAM, Path("/logs"))
    bench.running.look()
    bench.running.pass_signal(10)
    bench.running.kill()
    assert bench.fed == []
    lives(bench, bench.running.stop)
    assert (bench.program.signals, bench.program.killed) == ([], False)


def test_a_program_that_cannot_be_started_is_a_failure_of_the_start() -> None:
    error = RunError("no such file: train")

    async def start(*args: Any, **options: Any) -> Program:
        raise error

    bench = Bench(PROGRAM, Path("/logs"), start=start)
    assert lives(bench) == Failed(7, error)
    assert bench.fed == []


def test_a_node_without_a_command_serves_until_it_is_told_to_stop() -> None:
    bench = Bench(replace(PROGRAM, argv=[]), Path("/logs"))
    assert lives(bench, bench.running.stop) == ProgramGone(7)
    assert bench.fed == [Started(7)]


def test_where_no_log_file_can_be_made_that_is_said_and_the_program_runs() -> None:
    def no_right(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    bench = Bench(PROGRAM, Path("/logs"), make_private=no_right)
    gone = lives(bench, bench.running.stop)
    assert [said.note for said in bench.said] == [Note.NO_LOG_FILE]
    assert isinstance(gone, ProgramGone)
    assert gone.words.log == ""


class Log:
    """NCCL's log: one verdict, and then nothing, or a fault."""

    def __init__(self, *, breaks: bool = False) -> None:
        self._breaks = breaks

    async def verdicts(self) -> Any:
        """See `worker.nccl.log.NcclLog`."""
        if self._breaks:
            raise ValueError("not this way")
        yield NetworkVerdict("as_expected", "ok", "it uses IB")

    def trouble(self) -> str:
        """See `worker.nccl.log.NcclLog`."""
        return "a cable"


NCCL = replace(PROGRAM, nccl_log="/logs/nccl-%p.log")


def test_what_nccl_uses_is_told_while_the_program_runs_and_its_trouble_when_asked_for() -> None:
    bench = Bench(NCCL, Path("/logs"), nccl_log=lambda *args, **options: Log())
    lives(bench, bench.running.stop)
    assert NetworkSaid(7, NetworkVerdict("as_expected", "ok", "it uses IB")) in bench.fed
    assert [said.note for said in bench.said] == [Note.NCCL_LOG]
    found: list[Input] = []

    async def work() -> None:
        found.append(await bench.running.read_trouble(ReadTrouble(8, 7, 1.0)))

    run_virtually(work())
    assert found == [TroubleRead(8, "a cable")]


def test_a_fault_in_following_nccls_log_is_told_and_the_program_goes_on() -> None:
    bench = Bench(NCCL, Path("/logs"), nccl_log=lambda *args, **options: Log(breaks=True))
    assert lives(bench, bench.running.stop) == ProgramGone(7, ENDING, WORDS)
    assert [type(said) for said in bench.fed if isinstance(said, PartBroken)] == [PartBroken]


def test_a_fault_in_opening_nccls_log_is_told_and_the_program_starts() -> None:
    def broken(*args: Any, **options: Any) -> Log:
        raise ValueError("not this way")

    bench = Bench(NCCL, Path("/logs"), nccl_log=broken)
    assert lives(bench, bench.running.stop) == ProgramGone(7, ENDING, WORDS)
    assert isinstance(bench.fed[0], PartBroken)
    assert bench.fed[1:] == [Started(7), ProgramSeen(7, Family())]


def test_a_program_starts_though_the_disk_of_its_logs_hangs() -> None:
    async def hangs(work: Any, *args: Any, **options: Any) -> Any:
        await forever()

    bench = Bench(NCCL, Path("/logs"), in_thread=hangs)

    async def work() -> None:
        task = asyncio.create_task(bench.running.run())
        await asyncio.sleep(2.0 + 2.0 + 0.5 + 0.01)
        assert bench.fed == [Started(7), ProgramSeen(7, Family())]
        bench.running.stop()
        words = OwnWords(WORDS.tail, None, "")
        assert await task == ProgramGone(7, ENDING, words)

    run_virtually(work())
    assert [said.note for said in bench.said] == [Note.NO_NCCL_LOG, Note.NO_LOG_FILE]
