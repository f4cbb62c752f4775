"""A node whose parts fail is as in `parts_courses.txt`.

A start without each of what it can do without, and a shell with a notice file and without: on a
virtual clock. See `make reference`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.errors import Fenced, RunError
from rendezvous.wire.question import Question
from rendezvous.wire.watch import DepartureNotice
from tests.support.courses import lines_in, one_line, text_of
from tests.support.virtual_time import forever, now
from tests.worker.agent.drive import OFFER, virtually
from tests.worker.agent.test_doors_courses import word
from tests.worker.agent.test_running import NCCL_FILE, USES_IB, Bench, Program
from tests.worker.agent.test_shell import Outer
from tests.worker.skewed import SLOT
from tests.worker.test_table import join, table
from tests.worker.told import Told
from worker.agent import actions as do
from worker.agent import inputs, node, shell
from worker.agent.arming import NodeSpec
from worker.agent.notices import text_of as words_of
from worker.agent.shell import NodeShell
from worker.agent.state import Node, Rules
from worker.contracts import Contract
from worker.program.rank_words import RankWords
from worker.settings import WorkerSettings

KNOWN = Path(__file__).with_name("parts_courses.txt")

LOOK, NOTICE = "/run/look-5", "/run/node-1/notice.json"
VARIABLES = {
    "RDZV_LOOK_FOLDER": LOOK,
    "RDZV_NOTICE_FILE": NOTICE,
    "NCCL_DEBUG_FILE": NCCL_FILE,
    "RDZV_MAX_RESTARTS": "2",
}
WHOLE = Contract(["/opt/torchrun", "train"], VARIABLES, nccl_log=NCCL_FILE)
NO_SPACE = OSError(28, "No space left on device")
ODD = ValueError("not this way")
HANGS = "hangs"


class World:
    """The outer world of one start, which tells what it is asked for."""

    def __init__(self, told: Told, wrong: dict[str, Any]) -> None:
        self.told, self.wrong = told, wrong

    def tell(self, what: object) -> None:
        self.told.lines.append(one_line(f"@ {now():.3f} {what}"))

    def door(self, name: str, found: Any) -> Callable[..., Any]:
        """One part, which may be wrong."""

        def call(*given: Any, **named: Any) -> Any:
            values = [word(each) for each in given]
            values += [f"{key}={word(each)}" for key, each in named.items()]
            self.tell(f"{name}({', '.join(values)})")
            wrong = self.wrong.get(name)
            if isinstance(wrong, Exception):
                raise wrong
            return found(*given, **named) if callable(found) else found

        call.__name__ = name
        return call

    async def in_thread(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Each takes a moment, or never comes back."""
        name = getattr(work, "__name__", "")
        await asyncio.sleep(0.125)
        if self.wrong.get(name) == HANGS:
            self.tell(f"{name} hangs")
            await forever()
        return work(*given, **named)

    def closes(self, name: str, **more: Any) -> Any:
        """What is told when it is closed."""
        return SimpleNamespace(close=lambda: self.tell(f"{name} closed"), **more)


def _start(told: Told, wrong: dict[str, Any], contract: Contract, *, again: bool) -> None:
    """One start: it runs 40 s, is shown a notice, and told to stop."""
    world = World(told, wrong)
    program = Program()
    said = RankWords()

    async def start(argv: Any, environ: dict[str, str], **options: Any) -> Program:
        await asyncio.sleep(0.5)
        world.door("start", None)(argv, environ["PATH"], **options)
        return program

    async def verdicts() -> Any:
        yield USES_IB
        world.door("verdicts", None)()

    def sink(file: Path | None, **how: Any) -> Any:
        if file is not None and "file" in wrong:
            raise wrong["file"]
        return world.closes(
            f"sink {file}",
            tail=["step 7", "step 8"],
            words=said,
            printed=4_096,
            fold_launcher=lambda fold: world.tell(f"folds {fold._launcher} {fold._command}"),
            stop=lambda: world.tell("folds no more"),
        )

    nccl = SimpleNamespace(verdicts=verdicts, trouble=world.door("trouble", "no RDMA"))
    doors: dict[str, Any] = {
        "make_private": None,
        "sink": sink,
        "rank_streams": lambda folder, count: world.closes("streams"),
        "nccl_log": lambda *_, **__: nccl,
        "read_progress": lambda path: 41,
        "write_files": None,
        "inform": lambda number, known: known | {(9, 1)},
        "worlds": (),
        "look_before": "before",
        "look_after": lambda before, asked: [],
        "terminal": None,
    }
    doors = {name: world.door(name, found) for name, found in doors.items()}
    bench = Bench(
        contract,
        sealed=table(epoch=3) if again else None,
        progress_file=Path("/out/step"),
        **doors,
        in_thread=world.in_thread,
        start=start,
    )
    running: Any = bench.running
    running._feed = lambda one: world.tell(f"fed {_fed(one)}")
    running._say = lambda one: world.tell(f"says {one.note.level}: {words_of(one)}")

    async def work() -> None:
        task = asyncio.create_task(running.run(lambda: 44))
        await asyncio.sleep(10.0)
        departure = DepartureNotice(slot=SLOT, node=1, seconds=9.0, words="drained")
        await running.show_departure(departure, 10)
        await asyncio.sleep(30.0 - now())
        world.tell(f"ranks {running.ranks()}")
        program.changed()
        running.look()
        running.stop(ends_itself=False)
        try:
            world.tell(f"gone {_fed(await task)}")
        except RunError as exc:
            world.tell(f"! {exc.message}")
        trouble = await running.read_trouble(do.ReadTrouble(9, 7, 1.0))
        world.tell(f"trouble {trouble.trouble!r}")
        world.tell(f"program {program.told}")
        await asyncio.sleep(0.0)
        left = (getattr(one.get_coro(), "__qualname__", "") for one in asyncio.all_tasks())
        world.tell(f"goes on {sorted(one for one in left if one.startswith('Running.'))}")

    virtually(work())


def _fed(one: inputs.Input) -> str:
    match one:
        case inputs.ProgramSeen() | inputs.ProgramGone():
            of = one.words
            kept = (of.tail, of.log, of.progress, len(of.worlds)) if of is not None else None
            return f"{type(one).__name__} {one.number} {kept}"
    return repr(one)


def how_a_start_goes() -> Told:
    """As it should, and without each of its parts: one that fails, and one that hangs."""
    told = Told()
    users = replace(WHOLE, variables={}, withheld={"RDZV_NOTICE_FILE": NOTICE})
    cases: tuple[tuple[str, dict[str, Any], Contract, bool], ...] = (
        ("all is well", {}, WHOLE, False),
        ("again", {}, WHOLE, True),
        ("the user's own", {}, users, True),
        ("nothing to keep", {}, Contract(["train"], {}), False),
        *((f"{name} fails", {name: NO_SPACE}, WHOLE, True) for name in (
            "make_private", "file", "rank_streams", "read_progress", "write_files",
        )),
        *((f"{name} is odd", {name: ODD}, WHOLE, True) for name in (
            "nccl_log", "verdicts", "read_progress", "look_before",
        )),
        *((f"{name} hangs", {name: HANGS}, WHOLE, True) for name in (
            "_open_nccl_log", "open_in_folder", "rank_streams", "read_progress", "write_files",
            "worlds",
        )),
        ("it cannot be started", {"start": RunError("no such file")}, WHOLE, True),
    )  # fmt: skip
    usual: list[str] = []
    for what, wrong, contract, again in cases:
        one = Told()
        _start(one, wrong, contract, again=again)
        told.lines.append(f"* {what}")
        if again and usual:  # what is not as it is where all is well
            told.lines += [f"less: {line[2:]}" for line in usual if line not in one.lines]
            told.lines += [line for line in one.lines if line not in usual]
        else:
            told.lines += one.lines
        usual = one.lines if what == "again" else usual
    return told


@contextmanager
def _told_node(told: Told) -> Iterator[None]:
    """What the node's machine begins with, takes in and has done is told."""
    begin, step = node.begin, node.step

    def of(what: str, actions: tuple[do.Action, ...]) -> None:
        told.of(what, *(_done(one) for one in actions))

    def begins(rules: Rules, at: float) -> tuple[Node, tuple[do.Action, ...]]:
        state, actions = begin(rules, at)
        of(f"begins {at:.3f} {rules}", actions)
        return state, actions

    def takes(state: Node, said: inputs.Input, at: float) -> tuple[Node, tuple[do.Action, ...]]:
        state, actions = step(state, said, at)
        of(f"takes {at:.3f} {_fed(said)[:200]}", actions)
        return state, actions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "begin", begins)
        patch.setattr(node, "step", takes)
        yield


def _done(action: do.Action) -> str:
    values = [getattr(action, name) for name in ("number", "limit") if hasattr(action, name)]
    return f"{type(action).__name__}({', '.join(map(str, values))})"


def how_a_shell_lives() -> Told:
    """From its first decision to its last, with a notice file and without."""
    told = Told()

    async def lives(what: str, notice: Any, end: do.End, **settings: Any) -> None:
        outer = Outer()
        environment = outer.environment
        told.lines.append(f"* {what}")

        async def notice_in(file: Path, in_thread: Any) -> float:
            told.lines.append(f"@ {now():.3f} watches {file} {in_thread is environment.in_thread}")
            await asyncio.sleep(3.0)
            if isinstance(notice, Exception):
                raise notice
            return float(notice)

        doors: dict[str, Any] = {"notice_in": notice_in, "hosts_file": Path("/hosts")}
        doors |= {"restore_stale": lambda path: ["gpt"], "look_ahead": lambda *_: None}
        doors["make_offer"] = lambda *_, **__: OFFER
        for name, door in doors.items():
            object.__setattr__(environment, name, door)
        own = WorkerSettings(framework="command", log_dir=Path("/logs"), hosts="auto", **settings)
        spec = NodeSpec(own, join(SLOT), ["train"], remote=True)
        client: Any = Client(told)
        one: Any = NodeShell(spec, environment, client)
        one._resolver.begin = lambda: told.lines.append("@ resolver begun")
        one._say = lambda said: told.lines.append(f"- says {words_of(said)}")
        running = asyncio.create_task(one.run())
        await asyncio.sleep(1.0)
        one.feed(inputs.DepartureNear(70.0, "it was said"))
        one._act(do.ShowWord(2))
        one._answers.answer = _raises
        one._act(do.AnswerQuestion(Question(number=5, topic="looks"), 4, 3, node=0, nodes=1))
        one._remote.serve = lambda *given: _tells(told, f"remote {given}")
        await one._serve_remote({"do": "exec"}, "caller")
        answer = await one._carry_out(do.Publish(6))
        told.lines.append(f"- {answer}")
        await asyncio.sleep(4.0)
        one._act(end)
        try:
            told.lines.append(f"* over {await running}")
        except Fenced as exc:
            told.refused(exc)
        one.feed(inputs.Tick())
        await asyncio.sleep(1.0)
        told.of("done", outer.done, sorted(one._beside))

    async def work() -> None:
        notice = Path("/n/notice")
        await lives("told", 40.0, do.End(3), notice_file=notice)
        await lives("nobody watches", ODD, do.End(0, Fenced("another one")))
        await lives("it cannot be watched", ODD, do.End(0), notice_file=notice)

    with pytest.MonkeyPatch.context() as patch, _told_node(told):
        patch.setattr(shell, "own_word", lambda command, word: f"{command} {word}")
        virtually(work())
    return told


async def _raises(*_: object) -> None:
    raise ODD


async def _tells(told: Told, what: str) -> None:
    told.lines.append(f"@ {now():.3f} {what}")


class Client:
    """A registry that answers nothing; what it is asked is told."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def pause(self) -> float:
        """Seconds until it is asked again."""
        return 0.5

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **named: Any) -> None:
            self._told.lines.append(one_line(f"@ {now():.3f} {name} {given[1:]} {named}")[:200])
            if name != "ask":
                await forever()

        return call


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one for one in (how_a_start_goes, how_a_shell_lives)
}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_node_does_without(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
