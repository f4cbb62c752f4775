"""Which logs of a run are shown for whatever is asked, and what `rdzv logs` prints, is as in
`logged.txt`.

The run's slots are not its ranks, and its nodes have 5, 3 and 2 processes; it is on a clock that
jumps. Who changes what is shown writes the file anew (`make reference`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.plan.plan import WorkerRun
from launcher.show import log_lines, log_sources, logs
from launcher.show.log_lines import file_lines
from launcher.show.log_sources import Chosen, Source, Which
from launcher.show.log_views import log_reader, view_lines
from launcher.state.last_words import RankWords
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from launcher.ui import log_pieces
from launcher.ui.log_pieces import log_pieces as pieces_of
from rendezvous.compat import timeout
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import NotFound, RdzvError, Unavailable
from rendezvous.wire.log_view import RunView, ViewCall, ViewNode, ViewPart, ViewPiece
from rendezvous.wire.run import Phase, Result
from tests.launcher.asked import Asking, driven
from tests.launcher.command import record_of
from tests.launcher.drive import slot, status
from tests.support.courses import Told, lines_in, text_of
from tests.support.virtual_time import run_virtually
from tests.support.written import Registry
from worker.program.log_file import older_part
from worker.program.wanted import Wanted

KNOWN = Path(__file__).with_name("logged.txt")
RUN = "/v1/runs/llama"
STANDS = status(
    slot(0, node=2, hostname="gpu-9", nproc_per_node=2),
    slot(1, node=0, hostname="gpu-4", nproc_per_node=5),
    slot(4, node=1, hostname="gpu-7", nproc_per_node=3),
    slot(6, hostname="spare", nproc_per_node=8),
    phase=Phase.RUNNING,
    epoch=3,
)


@dataclass
class Kept:
    """A scheduler that keeps logs, or does not."""

    name: str
    keeps_logs: bool

    async def logs(self, run: WorkerRun, handle: str, *, lines: int, follow: bool) -> Any:
        """See the contract."""
        if handle == "17x":
            raise RdzvError(f"no such job {handle}", hint="try")
        for number in range(min(lines, 3)):
            yield f"line {number} of {run.name} {handle}, error {number % 2}"
            if follow:
                await asyncio.sleep(1.5)
        if follow:
            await asyncio.sleep(1e6)


class Course:
    """A run whose logs somebody reads; see `asked`."""

    def __init__(self, asker: Asking, patch: pytest.MonkeyPatch) -> None:
        self.asker, self.patch = asker, patch
        self.state = StateDir(asker.root, "llama")
        self.state.acquire()
        self.state.write_record(record_of(RegistryPlace(("127.0.0.9",), 29_633)))
        self.state.secret(lambda: bytes(range(32)))
        self.registry = Registry({})
        self.registry.put_in(patch)
        entry = lambda name: SimpleNamespace(  # noqa: E731
            make=lambda _: Kept(name, name != "none")
        )
        patch.setattr(log_sources, "scheduler_entry", entry)
        clock = SimpleNamespace(
            time=lambda: 5_000.0, monotonic=lambda: asyncio.get_running_loop().time()
        )
        for module in (log_sources, log_lines):
            patch.setattr(module, "time", clock)
        self.written = 1_000
        self.stands()

    def stands(self, **changes: Any) -> None:
        """Its launcher keeps how it stands."""
        kept = STANDS.model_copy(update=changes)
        self.state.write("status.json", kept.model_dump_json().encode())

    def logs(self, *names: str) -> None:
        """Logs of three lines each, written in this order."""
        for name in names:
            self.written += 1
            path = self.state.logs / name
            path.write_text(f"begin {name}\nWARNING: {name}\nend {name}, error\n")
            os.utime(path, (self.written, self.written))

    def at(self, number: int, starter: str, handle: str, *, former: bool = False) -> None:
        """A worker run of a slot is at a scheduler."""
        run = WorkerRun(number, 2, f"rdzv-k7f2-{number}-2", {}, "w.sh")
        entry = LedgerEntry(run, starter)
        self.state.ledger.begin(entry)
        if handle:
            self.state.ledger.note(replace(entry, handle=handle))
        if former:
            self.state.ledger.note(replace(entry, handle=handle, former=True))

    def which(self, chosen: Chosen, which: Which | None = None) -> None:
        """Tell which logs are shown for this, and what is read of each."""
        which = which or Which(self.state, {}, chosen)

        async def read(source: Source) -> list[str]:
            return [line async for line in source.read(lines=2, follow=False)]

        def ask() -> None:
            for source in which.sources():
                more = f" epoch {source.epoch}" * bool(source.epoch) + " timeless" * source.timeless
                read_ = source.read
                if isinstance(read_, partial) and read_.func is view_lines:
                    asked = {k: v for k, v in read_.args[2].items() if v not in (None, [])}
                    found = f"view {asked}{' prefix' * read_.keywords['prefix']}"
                else:
                    try:
                        found = str(run_virtually(read(source)))
                    except RdzvError as exc:
                        found = f"{type(exc).__name__} {exc.message} [{exc.hint}]"
                self.asker.tell("-", f"{source.title or source.name}{more}: {found}")
            if which.unshown:
                self.asker.tell(" ", f"  and {which.unshown} more")

        self.asker.asks(_words(chosen), ask)

    def show(self, what: str, *, lines: int | None = 1, **chosen: Any) -> None:
        """Tell what `rdzv logs` prints."""
        shown = logs.show_logs(self.state, {}, lines=lines, follow=False, **chosen)
        self.asker.asks(f"{what}, {lines} lines", shown)

    def release(self) -> None:
        """Its launcher is gone."""
        self.state.release()


def _words(chosen: Chosen) -> str:
    usual = Chosen()
    values = ((name, getattr(chosen, name)) for name in Chosen.__dataclass_fields__)
    said = [f"{name} {one}" for name, one in values if one != getattr(usual, name)]
    return ", ".join(said) or "all"


ALL = (
    Chosen(),
    *(Chosen(node=node) for node in range(4)),
    *(Chosen(rank=rank) for rank in (0, 4, 5, 7, 8, 9, 10)),
    Chosen(everyone=True),
    Chosen(everyone=True, node=1),
    Chosen(epoch=1),
    Chosen(epoch=2, node=0),
    Chosen(epoch=2, rank=5),
    Chosen(epoch=3, rank=11),
    Chosen(epoch=2, everyone=True),
    Chosen(wanted=Wanted(("end", "line 1"))),
    Chosen(wanted=Wanted(level="error"), node=1),
    Chosen(wanted=Wanted(("end",), "warning"), rank=6),
    Chosen(since=4_000.0),
    Chosen(since=900.0, node=2),
    Chosen(registry=True, node=0, wanted=Wanted(("end",))),
    Chosen(registry=True),
)


def sources_of_a_run_that_lives(made: Course) -> None:
    """Files here, logs at schedulers, and what nodes send."""
    made.which(Chosen())
    made.at(1, "queue", "21")
    made.at(4, "none", "22")
    made.at(0, "queue", "")
    made.at(6, "queue", "26", former=True)
    made.which(Chosen())
    made.which(Chosen(node=0))
    made.logs("node-2.log", "node-0.log", "node-0.e2.log", "agent-4.log", "agent-10.log")
    made.logs("agent-0.log", "registry.log", "node-x.log", "other.log", "agent-x.log")
    for chosen in ALL:
        made.which(chosen)
    made.logs("rank-9.log", "rank-5.log", "rank-5.e2.log", "rank-7.log", "rank-0.log")
    for chosen in ALL:
        if chosen.rank in (0, 5, 9, 11) or chosen.everyone:
            made.which(chosen)
    which = Which(made.state, {}, Chosen(everyone=True))
    for _ in range(2):
        made.which(Chosen(everyone=True), which)
        made.logs("node-1.log", "rank-3.log")
    crowd = [slot(20 + n, node=3 + n, nproc_per_node=1) for n in range(6)]
    made.stands(slots=[*STANDS.slots, *crowd])
    made.which(Chosen())
    made.which(Chosen(node=5))


def sources_of_a_run_that_is_over(made: Course) -> None:
    """Files here, logs at schedulers, last words; and why there is nothing."""
    made.state.release()
    made.which(Chosen())
    made.at(0, "queue", "20")
    made.at(1, "none", "21")
    made.at(4, "queue", "")
    for chosen in (ALL[1], ALL[3], ALL[7], ALL[12]):
        made.which(chosen)
    made.logs("node-1.log", "node-1.e3.log", "rank-6.log")
    for chosen in ALL:
        made.which(chosen)
    made.state.ledger.path.unlink()
    words = [
        RankWords(1, 0, 3, "first epoch"),
        RankWords(3, 0, 3, "it broke\nhere, error"),
        RankWords(3, 2, None, "of node 2"),
        RankWords(3, 0, None, "of node 0"),
    ]
    made.state.last_words.write(words)
    failed = Result(status="failed", exit_code=1, message="m", slot=1, node=0, rank=3)
    made.state.write_result(failed)
    for chosen in (Chosen(), *ALL[1:9], Chosen(rank=3), Chosen(epoch=1, rank=3), *ALL[14:18]):
        made.which(chosen)
    for path in made.state.logs.iterdir():
        path.unlink()
    for chosen in (Chosen(), *ALL[1:3], Chosen(rank=3), Chosen(epoch=1, rank=3)):
        made.which(chosen)
    made.state.write_result(failed.model_copy(update={"rank": None}))
    made.which(Chosen())
    made.stands(slots=[])
    made.which(Chosen(rank=3))
    made.which(Chosen(node=4))


def what_is_printed(made: Course) -> None:
    """Of a run that lives, and that has ended in each way."""
    made.logs("node-0.log", "node-1.log", "node-2.log")
    made.show("lives")
    made.show("none of it", lines=0)
    made.show("since", lines=None, since=4_000.0)
    made.show("since", lines=None, since=900.0)
    made.at(6, "queue", "26")
    made.show("with a scheduler's", lines=None, since=900.0)
    made.state.release()
    made.state.write_result(Result(status="ok", exit_code=0, message="m"))
    made.show("ok")
    tail = ["begin of it", " it broke "]
    where: dict[str, Any] = {"slot": 4, "node": 1, "hostname": "gpu-7", "tail": tail}
    log = str(made.state.logs / "node-1.log")
    failed = Result(status="failed", exit_code=3, message="node 1 failed", log=log, **where)
    made.state.write_result(failed)
    made.show("failed")
    made.show("failed, one node", node=2)
    made.state.write_result(failed.model_copy(update={"rank": 6}))
    made.show("failed, of a rank")
    made.state.write_result(failed.model_copy(update={"tail": ["end node-1.log, error"]}))
    made.show("failed, and shows it")
    made.state.last_words.write([RankWords(3, 1, 6, "it broke"), RankWords(3, 1, None, "last")])
    made.state.write_result(failed)
    made.show("failed, with last words")
    made.at(4, "queue", "17x")
    made.show("a scheduler that fails", node=3)
    made.show("a scheduler that fails", node=1)
    made.show("a scheduler that fails")
    for path in made.state.logs.iterdir():
        path.unlink()
    made.show("nothing but last words")
    made.show("last words of a node", node=1)
    made.logs("agent-4.log", "agent-1.log", "registry.log")
    (made.state.path / "status.json").unlink()
    made.show("before any program, and a scheduler has lines")
    made.state.ledger.path.unlink()
    made.show("before any program")
    made.show("before any program", lines=0)
    made.state.write_result(failed.model_copy(update={"slot": 3}))
    made.show("before any program, an agent that has no log")


def views(made: Course) -> None:
    """What nodes send by way of the registry."""
    view: dict[str, Any] = {"view": 5}
    first = RunView(
        **view,
        over=False,
        pieces=[
            ViewPiece(seq=3, node=2, parts=[ViewPart(rank=9, lines=["a", "b"])]),
            ViewPiece(
                seq=4,
                node=0,
                parts=[ViewPart(rank=2, lines=["c"], skipped=1), ViewPart(lines=["d"])],
            ),
        ],
    )
    left = [ViewNode(node=1, hostname="gpu-7", words="it has left"), ViewNode(node=3, words="x")]
    last = RunView(
        **view,
        over=True,
        nodes=left,
        pieces=[ViewPiece(seq=9, node=2, parts=[ViewPart(rank=9, lines=["e"], skipped=2_500)])],
    )
    made.registry.answers[f"POST {RUN}/views"] = ViewCall(**view)

    def show(what: str, answers: list[Any], **how: Any) -> None:
        told = list(answers)

        def answer() -> Any:
            found = told.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        made.registry.answers[f"GET {RUN}/views"] = answer
        connect = partial(log_reader, made.state)

        async def read() -> None:
            asked = {"rank": 9, "grep": ["x"], "node": None, "epoch": 2, "level": None}
            base: dict[str, Any] = {"lines": 7, "follow": False, "prefix": False}
            async for line in view_lines(connect, "llama", asked, **(base | how)):
                made.asker.lines.append(f"> {line}")

        made.asker.asks(what, read())
        keys = made.state.keys()
        assert keys is not None
        assert set(made.registry.credentials) == {keys.logs.text()}
        for call, sent in made.registry.asked:
            made.asker.lines.append(f"asked {call} {sent}")
        made.registry.asked.clear()

    gone = Unavailable("nobody answers")
    for follow in (False, True):
        for prefix in (False, True):
            show(f"{follow} {prefix}", [first, last], follow=follow, prefix=prefix)
        nothing = last.model_copy(update={"pieces": []})
        show(f"nothing {follow}", [nothing], follow=follow, lines=10**9)
        show(f"gone {follow}", [first, gone], follow=follow)
    for message in ("there is no POST /v1/runs/llama/views", "no run llama"):
        made.registry.answers[f"POST {RUN}/views"] = NotFound(message)
        show(message, [])


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def _in_time(steps: list[tuple[float, Callable[[], object]]]) -> None:
    for seconds, step in steps:
        await asyncio.sleep(seconds)
        step()


async def _beside(work: Coroutine[Any, Any, object], steps: list[Any]) -> None:
    task = asyncio.create_task(_in_time(steps))
    await work
    await task


def it_is_followed(made: Course) -> None:
    """`rdzv logs --follow`: logs that begin meanwhile, hosts that become known, and the end."""
    made.logs("node-0.log")
    made.stands(slots=[])
    path = made.state.logs / "node-0.log"

    def write(name: str, text: str) -> Callable[[], object]:
        return lambda: _append(made.state.logs / name, text)

    def begin_again() -> None:
        made.written = 1 << 32  # after all others
        made.logs("node-0.e2.log")

    steps: list[Any] = [
        (0.5, write("node-0.log", "one\nha")),
        (1.5, write("node-0.log", "lf\n")),
        (0.5, lambda: made.stands(slots=STANDS.slots[:2])),
        (1.1, write("node-0.log", "two\n10 %\r20 %\r")),
        (11.0, write("node-0.log", "30 %\r")),
        (0.5, write("node-0.log", "35 %\r")),
        (1.0, write("node-0.log", "done\n")),
        (0.3, lambda: made.at(1, "queue", "17x")),
        (0.3, lambda: made.at(0, "queue", "30")),
        (2.0, begin_again),
        (3.5, write("node-0.e2.log", "again\nlast")),
        (0.3, lambda: os.replace(path, older_part(path))),
        (0.3, write("node-0.log", "anew\n")),
        (2.0, lambda: made.state.release()),
        (0.5, write("node-0.e2.log", ", and more\n")),
    ]
    follows = logs.show_logs(made.state, {}, lines=2, follow=True)
    made.asker.asks("follow", _beside(follows, steps))
    made.state.acquire()
    follows = logs.show_logs(
        made.state, {}, lines=None, follow=True, since=900.0, wanted=Wanted(("an", "tw", "line"))
    )
    made.asker.asks("some lines", _beside(follows, [(3.0, lambda: made.state.release())]))
    made.asker.asks("it is over", logs.show_logs(made.state, {}, lines=1, follow=True))
    for one in made.state.logs.iterdir():
        one.unlink()
    made.state.ledger.path.unlink()
    made.asker.asks("nothing", logs.show_logs(made.state, {}, lines=1, follow=True))


def a_file_is_followed(made: Course) -> None:
    """One log: what becomes of its file while it is read."""
    path = made.state.logs / "f.log"

    def write(text: str) -> Callable[[], object]:
        return lambda: _append(path, text)

    def again(text: str) -> None:
        os.replace(path, older_part(path))
        path.write_text(text)

    def twice() -> None:
        write("lost 1\n")()
        again("lost 2\n")
        again("new\n")

    async def follow() -> None:
        async def read() -> None:
            clock = asyncio.get_running_loop().time
            async for line in file_lines(path, 3, follow=True, keep=lambda text: text != "no"):
                made.asker.lines.append(f"{clock():.1f} {line}")

        reading = asyncio.create_task(read())
        steps: list[Any] = [
            (0.1, write("a\nno\nb")),
            (1.0, write("c\n")),
            (1.0, lambda: again("d\n")),
            (1.0, write("e\nbeg")),
            (1.0, lambda: again("un\nf\n")),
            (1.0, twice),
            (1.0, write("1 %\r2 %\rno\r")),
            (5.0, write("3 %\r")),
            (6.0, write("4 %\r")),
            (0.5, write("5 %\r \r")),
            (0.5, write("\n")),
            (1.0, lambda: path.unlink()),
            (1.0, lambda: path.write_text("back\n")),
            (1.0, lambda: None),
        ]
        await _in_time(steps)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    path.write_text("0\nno\n1\n2\nno\nhalf")
    made.asker.asks("follow", follow())

    async def read(lines: int, **how: Any) -> None:
        found = [line async for line in file_lines(path, lines, follow=False, **how)]
        made.asker.lines.append(f"{lines} of {sorted(how)}: {found}")

    path.write_text("k\nl\n9 %\r10 %\rm")
    older_part(path).write_text("h\nno\ni\nj")
    for lines in (0, 1, 3, 4, 9):
        made.asker.asks("newest", read(lines, keep=lambda text: text != "no"))
    path.unlink()
    made.asker.asks("only its older part", read(9))
    older_part(path).unlink()
    with pytest.raises(FileNotFoundError):
        made.asker.asks("nothing", read(9))


def pieces_of_the_page(made: Course) -> None:
    """The same logs in pieces, for the page: at once, followed, and of what cannot be had."""
    made.logs("node-0.log", "node-2.log", "rank-9.log")
    viewed = SimpleNamespace(
        state_dir=made.state,
        keys=SimpleNamespace(logs=None),
        registry=lambda credential: None,
        told=SimpleNamespace(has_stopped=lambda node: False, head={"over": False}),
        followers=set(),
    )

    async def read(chosen: Chosen, lines: int, *, follow: bool) -> None:
        clock = asyncio.get_running_loop().time
        found: AsyncIterator[Any] = pieces_of(viewed, chosen, lines, follow=follow)  # type: ignore[arg-type]
        async with timeout(100):
            async for piece in found:
                made.asker.tell(">", f"{clock():.2f} {dict(piece)}")

    made.stands(slots=STANDS.slots[:2])
    made.patch.setattr(log_pieces, "_MOST_LINES", 2)
    for chosen in (Chosen(), Chosen(node=2), Chosen(rank=9), Chosen(rank=99)):
        made.asker.asks(_words(chosen), read(chosen, 3, follow=False))

    def write(name: str, text: str) -> Callable[[], object]:
        return lambda: _append(made.state.logs / name, text)

    steps: list[Any] = [
        (1.0, write("node-0.log", "1\n2\n3\n")),
        (0.02, write("node-0.log", "4\n")),
        (1.0, write("node-1.log", "begun\n\x1b[31mred\x1b[0m\n")),
        (15.0, lambda: made.at(6, "queue", "17x")),
        (1.0, write("node-2.log", "5\n")),
        (0.1, lambda: made.state.release()),
        (0.3, write("node-2.log", "6\n")),
    ]
    made.asker.asks("follow", _beside(read(Chosen(), 1, follow=True), steps))
    made.asker.asks("follow what is over", read(Chosen(), 1, follow=True))
    for one in made.state.logs.iterdir():
        one.unlink()
    made.asker.asks("nothing", read(Chosen(node=2), 1, follow=True))


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: driven(Course, one)
    for one in (
        *(sources_of_a_run_that_lives, sources_of_a_run_that_is_over, what_is_printed, views),
        *(it_is_followed, a_file_is_followed, pieces_of_the_page),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_shown_of_logs(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
