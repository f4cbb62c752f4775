"""What a node sees of its ranks, in several looks, is as in `look_courses.txt`.

They are the ranks of a tree of /proc, which go on by a clock of the test's own; whom a signal is
sent is written down. No number is another one. See `make reference`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from features.hang.ranks import collect, signalling
from features.hang.ranks.families import Families, family_of, use_of
from features.hang.ranks.fitting import Beside, Part, fitted
from features.hang.ranks.signalling import Suspect, stacks_by_signal, stacks_by_turns
from features.hang.wire import Frame, ProcessLook, RankLook, Stack
from tests.support.courses import lines_in, text_of
from tests.worker.look.tree import SIGNAL, Clock, One, Tree
from tests.worker.told import Told
from worker.look import proc
from worker.look import ranks as core_ranks
from worker.look.asking import Asked
from worker.look.parsing.answer import Answer, answer_in
from worker.look.proc import Process
from worker.look.site import sitecustomize
from worker.look.site.sitecustomize import STREAMS_FILE

KNOWN = Path(__file__).with_name("look_courses.txt")
HIGH = 1000


class Node:
    """Processes, what is sent to them, and the folder of their hook."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.told = Told()
        self.root = root
        self.tree = Tree(root)
        self.folder = root / "look"
        self.folder.mkdir()
        self.clock = Clock()
        self.answers: dict[int, Callable[[], None]] = {}
        """What a process does that is sent the signal."""
        for module in (signalling, collect):
            patch.setattr(module, "time", self.clock)
        patch.setattr(os, "kill", self._kill)
        patch.setattr(signal, "SIGRTMIN", SIGNAL - sitecustomize.SIGNAL)
        patch.setattr(proc, "_TICKS", 100)
        patch.setattr(proc, "_PAGE_BYTES", 4096)
        self.patch = patch

    def _kill(self, pid: int, number: int) -> None:
        self.tells(f"{pid} is sent {number}")
        if pid not in self.answers:
            raise ProcessLookupError
        self.answers[pid]()

    def tells(self, what: str) -> None:
        """What happens, and when."""
        self.told.lines.append(f"@ {self.clock.now - 100:.3f} {what}")

    def later(self, seconds: float, step: Callable[[], None]) -> None:
        """So much later this happens."""
        self.clock.due = sorted(
            [*self.clock.due, (self.clock.now + seconds, step)], key=lambda o: o[0]
        )

    def file(self, name: str, text: str = "") -> Path:
        """A file in the folder of the hook."""
        path = self.folder / name
        path.write_text(text)
        return path

    def signalled(self, pid: int, file: str, *, writes: str = "", after: float = 0.004) -> None:
        """Let it write this into its file, that much after it was sent the signal."""
        path = self.file(file, "something older\n")
        self.tree.has(pid, fds={HIGH: str(path)})

        def handle() -> None:
            self.tree.has(pid, pending=False, blocked=(pid,))
            self.later(after, done)

        def done() -> None:
            path.write_text(writes)
            self.tree.has(pid, blocked=())

        def sent() -> None:
            self.tree.has(pid, pending=True)
            self.later(after / 2, handle)

        self.answers[pid] = sent


@contextmanager
def node() -> Iterator[Node]:
    """One of which nothing is left afterwards."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=memory) as root, pytest.MonkeyPatch.context() as patch:
        yield Node(Path(root), patch)


def text(*functions: str, file: str = "/opt/lib/python3.12/site-packages/pkg/mod.py") -> str:
    """A main thread's stack, as faulthandler writes it."""
    calls = "".join(f'  File "{file}", line {7 + n} in {f}\n' for n, f in enumerate(functions))
    return f"Current thread 0x00007f00 (most recent call first):\n{calls}"


def asleep(pid: int, *, ticks: int = 5) -> Mapping[int, tuple[str, int, int, str]]:
    """Threads that sleep."""
    return {pid: ("S", 11, ticks, "py"), pid + 1: ("S", 12, 3, "pt_main"), pid + 2: _LOOP}


_LOOP = ("R", 1, 9, "gloo_tcp_loop")


# --- by signals -----------------------------------------------------------------------------------


def whom_a_signal_is_sent() -> Told:
    """Nine processes that do not answer, each for another reason."""
    with node() as here:
        tree, clock = here.tree, here.clock
        for pid in (310, 320, 330, 340, 350, 360, 370, 380, 390):
            tree.has(pid, One(parent=200, threads=asleep(pid)))
            here.signalled(pid, f"{pid}.stacks", writes=text(f"waits_{pid}", "main"))
        works = {320: ("R", 5, 5, "py"), 321: ("S", 12, 3, "pt_main")}
        tree.has(320, threads=works)  # with the GIL, in C
        here.later(0.13, lambda: tree.has(320, threads=works | {320: ("R", 5, 90, "py")}))
        wants = {330: ("R", 5, 5, "py"), 331: ("S", 12, 3, "pt_main")}
        tree.has(330, threads=wants)  # wants the CPU, and never gets it
        tree.has(340, fds={HIGH: "/dev/null"})  # writes elsewhere
        tree.has(350, caught=False)
        tree.has(360, pending=True)
        del here.answers[370]  # is gone
        here.answers[380] = lambda: tree.has(380, pending=True)  # never handles it
        here.answers[390] = lambda: tree.has(390, state="T")  # is stopped meanwhile
        tree.has(395, One(threads={395 + n: ("S", n, 0, "x") for n in range(4)}))
        here.patch.setattr(signalling, "MOST_THREADS", 3)
        suspects = {
            pid: Suspect(
                pid, SIGNAL, here.folder / f"{pid}.stacks", silent=pid in (320, 330), proc=tree.proc
            )
            for pid in tree.now
        }
        for wake in ({310: ("S", 11, 5, "py")}, {}):
            clock.sleep(0.07)
            here.tells("looked at again")
            for each in suspects.values():
                each.may_signal()
            tree.has(310, threads=dict(tree.now[310].threads) | wake)
        found = stacks_by_signal(suspects, tree.proc)
        here.tells("over")
        here.told.of("found", *(f"{pid} {one.main} {one.others}" for pid, one in found.items()))
        here.told.of(
            "files", *(f"{p.name}: {p.read_text()}" for p in sorted(here.folder.iterdir()))
        )
        again = {310: suspects[310], 320: suspects[320]}
        here.signalled(310, "310.stacks", writes=text("later"))
        found = stacks_by_signal(again, tree.proc)
        here.tells("over again")
        return here.told.of("found", *(f"{pid} {one.main}" for pid, one in found.items()))


def those_that_share_a_file_take_turns() -> Told:
    """Five in two files, of whom the last turn comes too late."""
    with node() as here:
        for pid, file in ((410, "a"), (420, "b"), (430, "a"), (440, "b"), (450, "a")):
            here.tree.has(pid, One(threads=asleep(pid)))
            here.signalled(pid, file, writes=text(f"of_{pid}"), after=0.03)
        suspects = [
            Suspect(pid, SIGNAL, here.folder / file, proc=here.tree.proc)
            for pid, file in ((410, "a"), (420, "b"), (430, "a"), (440, "b"), (450, "a"))
        ]
        here.clock.sleep(0.2)
        found = stacks_by_turns(suspects, here.tree.proc, 0.07)
        here.tells("over")
        return here.told.of("found", *(f"{pid} {one.main}" for pid, one in found.items()))


# --- of /proc -------------------------------------------------------------------------------------


def job(here: Node) -> None:
    """A launcher with a helper, two ranks that are known, and what they started."""
    tree = here.tree
    tree.has(
        200,
        One(
            1,
            cpu=(31, 2),
            started=900,
            read=11,
            children=(300, 305, 210),
            words=("/opt/torchrun", "t.py"),
        ),
    )
    tree.has(
        210,
        One(200, cpu=(7, 1), reaped=(3, 1), read=13, words=("sh", "-c", "x"), waits_in="do_wait"),
    )
    tree.has(
        300, One(200, "R", (410, 30), (50, 6), 3, 1_200, 7_000, 500, children=(322, 310, 330, 340))
    )
    tree.has(
        310, One(300, "D", (17, 4), (9, 5), 2, 1_300, 90, 4, words=("loader", "a"), children=(315,))
    )
    tree.has(
        315, One(310, "S", (5, 2), started=1_310, read=33, words=("zip",), waits_in="pipe_read")
    )
    tree.has(322, One(300, "Z", (99, 9)))
    tree.has(330, One(300, words=("python3", "-c", "from multiprocessing.resource_tracker")))
    tree.has(340, One(300, cpu=(1, 1), written=77, words=("writer",)))
    tree.has(305, One(200, "S", (210, 20), (4, 3), 1, 1_250, 300, 20, waits_in="futex_wait"))


def moves(here: Node) -> None:
    """All have used something, each another amount; one is gone, and one is new."""
    tree = here.tree
    tree.has(200, cpu=(32, 2), read=12)
    tree.has(210, cpu=(9, 1), read=19)
    tree.has(300, cpu=(455, 33), reaped=(52, 7), read=7_900, written=650, children=(310, 340, 350))
    tree.has(310, cpu=(29, 6), faults=4, read=190)
    tree.has(315, state="R", cpu=(9, 3), read=50)
    tree.has(340, state="X")
    tree.has(350, One(300, cpu=(6, 2), written=5, words=("/bin/late",)))
    tree.has(305, cpu=(216, 21), read=340)


RANKS = {0: 300, 1: 305, 2: 0}


def what_families_have_used() -> Told:
    """At two moments, of ranks, their children and the launcher, and what is told of each."""
    with node() as here:
        job(here)
        tree, told = here.tree, here.told
        here.file(STREAMS_FILE, "1:2 3:4\nLOCAL_RANK SLURM_LOCALID\n")
        for pid in (200, 210, 310, 315):
            file = "launcher.stacks" if pid < 300 else "0.stacks"
            tree.has(pid, threads=asleep(pid) if pid != 310 else {310: ("D", 1, 2, "x")})
            here.signalled(pid, file, writes=text(f"in_{pid}"))
        del here.answers[200]
        before = {pid: proc.read_process(tree.proc, pid) for pid in (*tree.now, 999)}
        told.of("processes", *(f"{pid} {one}" for pid, one in before.items()))
        told.of("lives", *(f"{pid} {one.lives} {one.can_run}" for pid, one in before.items()))
        told.of(
            "below", *(f"{pid} {[*proc.descendants(tree.proc, pid)]}" for pid in (200, 300, 310))
        )
        told.of("but", [*proc.descendants(tree.proc, 200, (300, 210))])
        told.of("ancestors", proc.is_below(tree.proc, 315, 200), proc.is_below(tree.proc, 200, 315))
        told.of(
            "has", *(proc.has_variable(tree.proc, 300, n) for n in (["HOME"], ["HOM", "/root"]))
        )
        told.of("gone", proc.has_variable(tree.proc, 999, ["HOME"]), proc.command(tree.proc, 999))
        told.of("family", family_of(tree.proc, 300).work, family_of(tree.proc, 300, (310,)).work)
        told.of("family of none", family_of(tree.proc, None), family_of(tree.proc, 999))
        seen = Families(here.folder, RANKS, 200, tree.proc)
        idle = Families(here.folder, {0: 300, 1: 305}, 200, tree.proc)
        own = Families(here.folder, {0: 200, 2: 0}, 200, tree.proc)
        here.clock.sleep(0.2)
        moves(here)
        seen.finish()
        here.tells("over")
        for rank in RANKS:
            told.of(f"rank {rank}", seen.of[rank].cpu, seen.of[rank].bytes, *seen.children(rank))
        told.of("launcher", seen.launcher(), unstarted=seen.unstarted())
        told.of("none needed", idle.launcher(), idle.unstarted(), own.launcher(), own.unstarted())
        tree.has(210, environ=("A=1", "SLURM_LOCALID=2"))
        told.of("one may be a rank", seen.unstarted())
        after = {pid: proc.read_process(tree.proc, pid) for pid in before}
        for pid in (300, 305, 340, 999):
            told.of(f"use of {pid}", use_of(tree.proc, pid, before[pid], after[pid]))
        told.of("backwards", use_of(tree.proc, 300, after[300], before[300]))
        tree.has(200, state="Z")
        seen.finish()
        return told.of("the launcher is gone", seen.launcher(), seen.unstarted())


def answer(stage: Any, called: int, ended: int, at: int) -> Answer:
    """What a rank answers."""
    progress = {"last_enqueued_collective": called, "last_completed_collective": ended}
    entry = {
        "process_group": ["0", "world"],
        "pg_id": 0,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[3]],
        "input_dtypes": ["Float"],
        "retired": True,
    }
    entries = [
        entry | {"collective_seq_id": n, "time_created_ns": at - 10**9 * (called - n)}
        for n in (called - 1, called)
    ]
    body = json.dumps({"pg_status": {"0": progress}, "entries": entries}).encode()
    return Answer(
        stage,
        at,
        {"0": "0-2", "1": "0,2"},
        text("forward", "step"),
        (body, b""),
    )


def a_whole_look() -> Told:
    """Three ranks: one answers twice, one only once and then not, and one is not known."""
    with node() as here:
        job(here)
        tree, told = here.tree, here.told
        here.file(STREAMS_FILE, "1:2 3:4\nLOCAL_RANK\n")
        for rank, pid, started in ((0, 300, 1_200), (1, 305, 1_250), (2, 340, 77)):
            (here.folder / f"{rank}.here").symlink_to(f"{pid} {started} {SIGNAL}")
        told.of(
            "found",
            *(
                core_ranks.find(here.folder, rank, pid, tree.proc)
                for rank, pid in (
                    (0, None),
                    (0, 200),
                    (0, 305),
                    (1, 305),
                    (2, 340),
                    (2, None),
                    (3, None),
                    (3, 7),
                )
            ),
        )
        asked: list[tuple[dict[int, Answer | None], set[int], set[int]]] = [
            ({0: answer("imported", 5, 3, 10**9)}, {1}, set()),
            ({0: answer("groups", 8, 7, 2 * 10**9)}, set(), set()),
        ]

        def ask(folder: Path, ranks: Iterable[int], request: bytes, seconds: float) -> Asked:
            here.tells(f"{sorted(ranks)} are asked {request.decode()} for {seconds} s")
            return Asked(*asked.pop(0)) if asked else Asked({}, set(ranks), set())

        for module in (collect, core_ranks):
            here.patch.setattr(module, "ask", ask)
        here.later(0.1, lambda: moves(here))
        tree.has(305, threads={305: ("R", 5, 5, "py"), 306: ("S", 12, 3, "pt")})
        here.signalled(305, "1.stacks", writes=text("in_c", "main"))
        here.later(
            0.15, lambda: tree.has(305, threads={305: ("R", 5, 90, "py"), 306: ("S", 12, 3, "pt")})
        )
        ranks = {0: 300, 1: 305, 2: None}
        told.of("the look", *_seen(collect.collect(here.folder, ranks, 5, 200, tree.proc)))
        told.of("work", collect.work(here.folder, ranks, 200, tree.proc))
        told.of("work without", collect.work(here.folder, {0: 300, 1: 305}, 200, tree.proc))
        asked.append(({0: answer("groups", 9, -1, 3), 1: None}, set(), {1}))
        told.of("sample", collect.sample(here.folder, ranks, tree.proc))
        asked.append(({0: answer("groups", 9, 8, 9 * 10**9), 1: None}, {1}, set()))
        told.of("calls", core_ranks.calls(here.folder, ranks, 5, tree.proc))
        asked.append(({1: answer("imported", 2, 2, 7)}, set(), {0}))
        told.of(
            "the second look",
            *_seen(collect.collect(here.folder, {0: 300, 1: 305}, 5, 200, tree.proc)),
        )
        told.of(
            "a launcher that may be a rank",
            *(collect._known(here.folder, {2: pid}, 200, tree.proc) for pid in (None, 200)),
        )
        tree.has(200, environ=("LOCAL_RANK=2",))
        return told.of("one that is", collect._known(here.folder, {2: 200, 3: 200}, 200, tree.proc))


def _seen(seen: Any) -> Iterator[object]:
    yield from seen.ranks
    yield from seen.stacks
    yield f"left out {seen.left_out}, launcher {seen.launcher}, unstarted {seen.unstarted}"


def stack(*functions: str) -> Stack:
    """The stack of a thread."""
    return Stack(frames=[Frame(name, "m.py", n) for n, name in enumerate(functions)])


def what_fits_into_a_message() -> Told:
    """Cut step by step, with what is left out."""
    told = Told()
    parts = [
        Part(
            RankLook(rank=7 + n, pid=100 + n),
            stack("main", f"of_{n % 2}", *("f" * 60 for _ in range(20))),
            [stack(f"thread_{k}_{n}", *("g" * 60 for _ in range(8))) for k in range(12)],
            [Beside(ProcessLook(pid=500 + n, name="x" * 30), stack("c", f"{n}")) for _ in range(5)],
        )
        for n in range(3)
    ]
    above = Beside(ProcessLook(pid=9, name="torchrun"), stack("main", "of_0"))
    for most in (1 << 20, 30_000, 14_000, 9_000, 5_000, 3_600, 2_500, 1_500, 900, 10):
        seen = fitted(parts, above, 4, most)
        shape = [
            f"{one.rank}: {one.stack} threads {one.threads} of {[c.stack for c in one.children]}"
            for one in seen.ranks
        ]
        frames = [len(one.frames) * (-1 if one.cut else 1) for one in seen.stacks]
        told.of(f"in {most}", *shape, frames, f"{seen.left_out} {seen.launcher}")
    for data in (
        *(
            b"groups 7 3 2 0 1\n0\t1s1r",
            b"groups 7 3 2 0 1\n0\t1s1rr",
            b"groups 7 3 2 0 2\n0\t1s1r",
        ),
        *(b"other 7 0 0 0 0\n", b"imported 17 0 0 0 0\n", b"importing 1 8 0 0 0\na\tb\t1-2\n", b""),
    ):
        told.of(repr(data), answer_in(data))
    return told.of("nothing", Process().lives, Process().can_run, os.path.basename(STREAMS_FILE))


COURSES = {
    one.__name__: one
    for one in (
        *(whom_a_signal_is_sent, those_that_share_a_file_take_turns, what_families_have_used),
        *(a_whole_look, what_fits_into_a_message),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_look_sees(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
