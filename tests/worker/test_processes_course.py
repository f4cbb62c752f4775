"""The processes of one node on a virtual clock: what is started, sent and said, in order."""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from worker.programs import processes as module
from worker.programs.processes import Output, Processes
from worker.programs.warm import spawner, starter
from worker.programs.warm.spawner import SpawnedProcesses
from worker.programs.warm.starter import ForkedProcesses, OwnRanks
from worker.programs.warm.store import CannotListen

BEGAN = 1_000.0
TERM, KILL = -int(signal.SIGTERM), -int(signal.SIGKILL)
SECONDS_TO_END = 0.5


class Child:
    """A process; it ends at a time, with a code, or after a signal that it heeds."""

    def __init__(
        self,
        ends: float | None = None,
        code: int = 0,
        *,
        heeds: bool = True,
        leads: bool = True,
        says: tuple[tuple[float, int, bytes], ...] = (),
        holds: float = 0.0,
    ) -> None:
        self.ends, self.code, self.heeds, self.leads = ends, code, heeds, leads
        self.says, self.holds = says, holds
        self.pid = 0
        self.known = False


class Kernel:
    """What the starter finds around it, and all that it has done, with the time of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *children: Child | OSError) -> None:
        self.now = 0.0
        self.done: list[Any] = []
        self.events: list[tuple[float, Callable[[], object]]] = []
        self.handlers: dict[int, Any] = {}
        self.children: dict[int, Child] = {}
        self.options: list[dict[str, Any]] = []
        self.printed: list[tuple[float, int, bytes]] = []
        self._coming = iter(children)
        self._woken = False
        self._wake = -1
        self._fds: dict[int, int] = {}
        put = monkeypatch.setattr
        clock = SimpleNamespace(monotonic=lambda: BEGAN + self.now, sleep=self._sleep)
        put(module, "time", clock)
        put(module, "_exit_code", self._exit_code)
        put(module, "_say", lambda words: self.did("says", words))
        put(subprocess, "Popen", self.start)
        put(select, "poll", lambda: self)
        put(signal, "signal", self._handle)
        put(signal, "set_wakeup_fd", lambda fd, **_: self.did("wakes", fd > 2))
        put(os, "kill", lambda pid, number: self._kill(pid, number, "kill"))
        put(os, "killpg", lambda pid, number: self._kill(pid, number, "killpg"))
        self._dup = os.dup

    def did(self, *what: Any) -> None:
        self.done.append((round(self.now, 3), *what))
        assert len(self.done) < 200, "it does so for ever"

    def at(self, when: float, what: Callable[[], object]) -> None:
        self.events.append((when, what))
        self.events.sort(key=lambda event: event[0])

    def signal(self, when: float, number: int) -> None:
        """This is sent to the starter."""

        def comes() -> None:
            self._woken = True
            self.handlers[number](number, None)

        self.at(when, comes)

    # --- what it is asked -------------------------------------------------------------------------

    def start(self, argv: Any, **options: Any) -> Any:
        child = next(self._coming)
        if isinstance(child, OSError):
            raise child
        child.pid = 101 + len(self.children)
        self.children[child.pid] = child
        rank = options["env"].get("LOCAL_RANK")
        self.did("starts", *argv, rank)
        self.options.append(options)
        streams: list[Any] = []
        for number in (1, 2):
            if options.get("stdout") is None:
                streams.append(None)
                continue
            reader, writer = os.pipe()
            streams.append(os.fdopen(reader, "rb", 0))
            self._says(child, number, writer)
        if child.ends is not None:
            self.at(child.ends, lambda: self._end(child, child.code))
        return SimpleNamespace(
            pid=child.pid,
            stdout=streams[0],
            stderr=streams[1],
            wait=lambda: self.did("waits", child.pid),
        )

    def _says(self, child: Child, number: int, writer: int) -> None:
        for when, stream, data in child.says:
            if stream == number:
                self.at(when, lambda data=data: os.write(writer, data))  # type: ignore[misc]
        last = max([child.holds, *(when for when, _, _ in child.says)])
        self.at(max(last, child.ends or last), lambda: os.close(writer))

    def _end(self, child: Child, code: int) -> None:
        if not child.known:
            child.known, child.code = True, code
            self._woken = True
            if (heard := self.handlers.get(signal.SIGCHLD)) is not None:
                heard(signal.SIGCHLD, None)

    def _exit_code(self, pid: int) -> int | None:
        return self.children[pid].code if self.children[pid].known else None

    def _kill(self, pid: int, number: int, how: str) -> None:
        child = self.children[pid]
        self.did(how, pid, signal.Signals(number).name)
        if child.known or (how == "killpg" and not child.leads):
            raise ProcessLookupError
        if number == signal.SIGKILL:
            self.at(self.now, lambda: self._end(child, KILL))
        elif number == signal.SIGTERM and child.heeds:
            self.at(self.now + SECONDS_TO_END, lambda: self._end(child, TERM))

    def _handle(self, number: int, handler: Any) -> Any:
        before, self.handlers[number] = self.handlers.get(number, "default"), handler
        return before

    def _sleep(self, seconds: float) -> None:
        self.did("sleeps", seconds)
        self.now += seconds

    # --- as select.poll ---------------------------------------------------------------------------

    def register(self, fd: int, events: int) -> None:
        if self._wake < 0:
            self._wake = fd
        self._fds[fd] = events

    def unregister(self, fd: int) -> None:
        del self._fds[fd]

    def poll(self, limit: float | None) -> list[tuple[int, int]]:
        until = None if limit is None else self.now + limit / 1000
        while not (ready := self._ready()):
            if not self.events or (until is not None and self.events[0][0] > until):
                assert until is not None, "it would wait for ever"
                self.now = until
                return []
            when, what = self.events.pop(0)
            self.now = max(self.now, when)
            what()
        return ready

    def _ready(self) -> list[tuple[int, int]]:
        ready = [(self._wake, select.POLLIN)] if self._woken else []
        for fd in self._fds:
            if fd != self._wake and select.select([fd], [], [], 0)[0]:
                ready.append((fd, select.POLLIN))
        return ready

    def read(self, fd: int) -> None:
        self._woken = False


class Shown(Output):
    """One of our own streams, which notes when what was written."""

    def __init__(self, fd: int, kernel: Kernel) -> None:
        super().__init__(fd)
        self._kernel, self._number = kernel, fd

    def write(self, source: object, data: bytes) -> None:
        reader, self._fd = os.pipe()
        super().write(source, data)
        os.close(self._fd)
        with open(reader, "rb") as file:
            self._kernel.printed.append((round(self._kernel.now, 3), self._number, file.read()))


def run(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, made: Callable[[], Processes] | None = None
) -> int:
    """See them through."""
    options = argparse.Namespace(rank=4, processes=3, world=9, node=2, grace=7.0, set=[])
    options.command = ["train", "$RANK"]
    made = made or (lambda: Processes(options))
    one = made()
    one._outputs = Shown(1, kernel), Shown(2, kernel)
    read = os.read

    def reads(fd: int, most: int) -> bytes:
        if fd == one._wake[0]:
            kernel.read(fd)
            return b"\0"
        return read(fd, most)

    monkeypatch.setattr(os, "read", reads)
    try:
        return one.run()
    finally:
        monkeypatch.setattr(os, "read", read)
        for fd in {*one._wake, *one._pipes}:
            os.close(fd)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    monkeypatch.delenv("RDZV_LOOK_FOLDER", raising=False)
    return lambda *children: Kernel(monkeypatch, *children)


BEGUN = [(0.0, "wakes", True), *((0.0, "starts", "train", f"{4 + n}", f"{n}") for n in range(3))]
FIRST = "process 5 (local rank 1) failed first, with "
OTHERS = "; ending the others of this node"


def test_of_several_that_have_failed_the_lowest_is_named_and_all_are_reaped_at_the_end(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernel(Child(1.0), Child(2.0, -9), Child(2.0, 4))
    one.at(2.0, lambda: None)
    assert run(one, monkeypatch) == 137
    assert one.done == [
        *BEGUN,
        (2.0, "kill", 103, "SIGTERM"),
        (2.0, "says", f"{FIRST}signal 9{OTHERS}"),
        (2.0, "sleeps", 0.2),
        *((2.2, "waits", pid) for pid in (101, 102, 103)),
    ]


def test_the_last_one_that_fails_ends_nobody(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernel(Child(1.0), Child(5.0, 1), Child(2.0))
    assert run(one, monkeypatch) == 1
    assert one.done[4:] == [
        (5.0, "says", f"{FIRST}exit code 1"),
        (5.0, "sleeps", 0.2),
        *((5.2, "waits", pid) for pid in (101, 103, 102)),
    ]


def test_who_is_told_to_end_sends_no_word_of_its_own_before_the_kill(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernel(Child(1.5, TERM), Child(heeds=False), Child(2.0, 0))
    one.signal(0.5, signal.SIGUSR2)
    one.signal(0.75, signal.SIGUSR1)
    one.signal(0.875, signal.SIGCONT)
    one.signal(1.0, signal.SIGTERM)
    one.signal(3.0, signal.SIGTERM)  # the grace is not longer for that
    assert run(one, monkeypatch) == 143
    passed = [
        (at, "kill", 101 + n, f"SIG{name}")
        for at, name in ((0.5, "USR2"), (0.75, "USR1"), (0.875, "CONT"))
        for n in range(3)
    ]
    assert one.done[4:] == [
        *passed,
        (8.0, "kill", 102, "SIGKILL"),
        *((8.0, "waits", pid) for pid in (101, 103, 102)),
    ]


def test_each_is_killed_once_however_much_happens_before_the_last_is_gone(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the kernel cannot end yet, as it waits for a disk, may go on for long."""
    one = kernel(Child(2.0, 3), Child(heeds=False), Child(20.0, 0, heeds=False))
    kill = one._kill

    def kills(pid: int, number: int, how: str) -> None:
        held = pid == 103 and number == signal.SIGKILL
        one.did("kill", pid, "held") if held else kill(pid, number, how)

    monkeypatch.setattr(os, "kill", lambda pid, number: kills(pid, number, "kill"))
    for when in (10.0, 11.0):
        one.signal(when, signal.SIGUSR1)
    assert run(one, monkeypatch) == 3
    assert [what for what in one.done if what[0] > 2.0] == [
        (9.0, "kill", 102, "SIGKILL"),
        (9.0, "kill", 103, "held"),
        (10.0, "kill", 103, "SIGUSR1"),
        (11.0, "kill", 103, "SIGUSR1"),
        (20.0, "sleeps", 0.2),
        *((20.2, "waits", pid) for pid in (101, 102, 103)),
    ]


def test_a_line_that_waits_is_passed_on_also_within_the_grace(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernel(Child(5.0, heeds=False, says=((0.5, 1, b"saves"),)), Child(5.0), Child(5.0))
    one.signal(0.375, signal.SIGTERM)
    run(one, monkeypatch)
    assert one.printed == [(0.9, 1, b"saves")]


def test_a_line_of_no_end_is_passed_on_in_pieces_and_a_held_pipe_is_let_go(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONGEST_LINE", 10)
    says = ((0.5, 1, b"a" * 10), (0.55, 1, b"a"), (5.5, 1, b"late\n"), (9.0, 1, b"too late\n"))
    one = kernel(Child(1.0), Child(5.0, says=says, holds=60.0), Child(1.0))
    assert run(one, monkeypatch) == 0
    assert one.printed == [(0.55, 1, b"a" * 11), (5.5, 1, b"late\n")]
    assert one.now == 6.5


# --- each in a session of its own -----------------------------------------------------------------


ENVIRONS = [{"RANK": f"{6 + n}", "LOCAL_RANK": f"{n}"} for n in range(2)]
ENVIRONS[0]["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "11"


class Own(OwnRanks):
    """Started as others are."""

    def _start(self, local_rank: int) -> None:
        env = self._environs[local_rank]
        self._running[local_rank] = subprocess.Popen(list(self._words), env=env)


def test_ranks_that_lead_groups_are_sent_what_their_starter_is(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernel(Child(heeds=False), Child(2.0, 5, leads=False))
    one.signal(1.0, signal.SIGQUIT)
    for number in (signal.SIGINT, signal.SIGHUP):
        one.signal(1.5, number)
    assert run(one, monkeypatch, lambda: Own(["-m", "train"], ENVIRONS)) == 5
    sent = [
        (at, *what)
        for at, name in ((1.0, "QUIT"), (1.5, "INT"), (1.5, "HUP"))
        for what in (
            ("killpg", 101, f"SIG{name}"),
            ("killpg", 102, f"SIG{name}"),
            ("kill", 102, f"SIG{name}"),
        )
    ]
    assert one.done == [
        (0.0, "wakes", True),
        *((0.0, "starts", "-m", "train", f"{n}") for n in range(2)),
        *sent,
        (12.0, "killpg", 101, "SIGKILL"),
        *((12.0, "waits", pid) for pid in (102, 101)),
    ]


# --- where none can be forked ---------------------------------------------------------------------


class Torch:
    """What is imported once the ranks are there; it takes its time."""

    def __init__(self, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.kernel, self.seconds = kernel, seconds
        self.error: Exception | None = None
        self.port_error: Exception | None = None
        imports = SimpleNamespace(import_module=self.imports)
        monkeypatch.setattr(spawner, "importlib", imports)
        monkeypatch.setattr(spawner, "serve_here", self.serves)

    def imports(self, name: str) -> None:
        self.kernel.did("imports", name)
        until = self.kernel.now + self.seconds
        while self.kernel.events and self.kernel.events[0][0] <= until:
            when, what = self.kernel.events.pop(0)
            self.kernel.now = max(self.kernel.now, when)
            what()
        self.kernel.now = until
        if self.error is not None:
            raise self.error

    def serves(self, port: int) -> object:
        self.kernel.did("serves", port)
        if self.port_error is not None:
            raise self.port_error
        return object()


STARTS = [
    (0.0, "wakes", True),
    *((0.0, "starts", sys.executable, "-u", "train.py", f"{n}") for n in range(2)),
    (0.0, "imports", "torch.distributed"),
]


@pytest.mark.parametrize("port", [29_500, None])
def test_torch_is_imported_beside_the_ranks_and_its_store_listens_until_they_end(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch, port: int | None
) -> None:
    one = kernel(Child(2.0), Child(7.0))
    Torch(one, monkeypatch, 3.0)
    made = SpawnedProcesses(["train.py"], ENVIRONS, port)
    assert run(one, monkeypatch, lambda: made) == 0
    assert one.done == [
        *STARTS,
        *[(3.0, "serves", port)] * (port is not None),
        (7.0, "waits", 101),
        (7.0, "waits", 102),
    ]
    assert (made._store is not None) is (port is not None)
    assert [options["start_new_session"] for options in one.options] == [True, True]
    assert [options["env"] for options in one.options] == ENVIRONS


@pytest.mark.parametrize(
    ("error", "port_error", "words"),
    [
        (ImportError("no torch"), None, "the import of torch failed with ImportError: no torch"),
        (None, CannotListen("in use"), "MASTER_PORT's store: in use"),
    ],
)
def test_where_torch_or_its_store_cannot_be_had_the_ranks_end(
    kernel: Callable[..., Kernel],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception | None,
    port_error: Exception | None,
    words: str,
) -> None:
    one = kernel(Child(), Child(heeds=False))
    torch = Torch(one, monkeypatch, 3.0)
    torch.error, torch.port_error = error, port_error
    assert run(one, monkeypatch, lambda: SpawnedProcesses(["train.py"], ENVIRONS, 29_500)) == 1
    assert one.done[4:] == [
        *[(3.0, "serves", 29_500)] * (error is None),
        (3.0, "killpg", 101, "SIGTERM"),
        (3.0, "killpg", 102, "SIGTERM"),
        (14.0, "killpg", 102, "SIGKILL"),
        (14.0, "waits", 101),
        (14.0, "waits", 102),
    ]
    assert capsys.readouterr().err == f"rdzv: {words}\n"


@pytest.mark.parametrize("how", ["one fails", "one fails at once", "told"])
def test_an_import_that_nobody_needs_is_let_go(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    one = kernel(Child(), Child(None if how == "told" else 1.0, 4))
    torch = Torch(one, monkeypatch, 60.0)
    if how == "told":
        one.signal(1.0, signal.SIGTERM)
    if how == "one fails at once":
        torch.imports = lambda name: pytest.fail("nobody needs it")  # type: ignore[method-assign]
        monkeypatch.setattr(SpawnedProcesses, "_has_failed", lambda self: True)
    made = SpawnedProcesses(["train.py"], ENVIRONS, 29_500)
    code = run(one, monkeypatch, lambda: made)
    assert code == (143 if how == "told" else 4)
    assert not [what for what in one.done if what[1] == "serves"]
    assert one.now < 2.0
    assert signal.SIGCHLD in one.handlers


def test_an_import_is_let_go_once_whatever_ends_while_it_unwinds(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is being imported may take a moment to give up, and another rank end then."""
    one = kernel(Child(1.0, 4), Child(1.5))
    torch = Torch(one, monkeypatch, 60.0)
    imports = torch.imports

    def unwinds(name: str) -> None:
        try:
            imports(name)
        finally:
            torch.seconds = 1.0
            imports("in its finally clause")

    monkeypatch.setattr(spawner, "importlib", SimpleNamespace(import_module=unwinds))
    made = SpawnedProcesses(["train.py"], ENVIRONS, 29_500)
    assert run(one, monkeypatch, lambda: made) == 4
    assert one.done[4:8] == [
        (1.0, "imports", "in its finally clause"),
        (2.0, "killpg", 102, "SIGTERM"),
        (2.0, "kill", 102, "SIGTERM"),
        (2.0, "says", f"process 6 (local rank 0) failed first, with exit code 4{OTHERS}"),
    ]


def test_a_rank_that_cannot_be_started_is_said(
    kernel: Callable[..., Kernel],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = kernel(Child(), OSError(errno.EAGAIN, "Resource temporarily unavailable"))
    assert run(one, monkeypatch, lambda: SpawnedProcesses(["train.py"], ENVIRONS, 29_500)) == 1
    assert one.done[2:] == [(0.0, "killpg", 101, "SIGTERM"), (0.5, "waits", 101)]
    said = f"rdzv: {sys.executable!r} cannot be started: Resource temporarily unavailable\n"
    assert capsys.readouterr().err == said


# --- where they are forked ------------------------------------------------------------------------


def test_each_is_forked_with_signals_held_and_begins_when_all_are_there(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the parent alone is played: `os.fork` returns a number."""
    one = kernel()
    masks: list[tuple[Any, bool]] = []

    def fork() -> int:
        child = Child(2.0 + len(one.children))
        child.pid = 101 + len(one.children)
        one.children[child.pid] = child
        one.at(child.ends or 0.0, lambda: one._end(child, 0))
        one.did("forks")
        return child.pid

    def mask(how: Any, numbers: Any) -> None:
        masks.append((how, bool(list(numbers))))

    def waitpid(pid: int, flags: int) -> tuple[int, int]:
        one.did("waits", pid, flags)
        return pid, 0

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(os, "waitpid", waitpid)
    monkeypatch.setattr(signal, "pthread_sigmask", mask)
    made = ForkedProcesses(["train.py"], ENVIRONS, {}, None)
    waits, holds = made._all_forked
    assert run(one, monkeypatch, lambda: made) == 0
    assert masks == [(signal.SIG_BLOCK, True), (signal.SIG_SETMASK, False)] * 2
    assert one.done[1:] == [
        *[(0.0, "forks")] * 2,
        (3.0, "waits", 101, 0),
        (3.0, "waits", 102, 0),
    ]
    for fd in (waits, holds):
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)


# --- what an order says ---------------------------------------------------------------------------


def order(**more: Any) -> dict[str, Any]:
    ranks = [{"RANK": "6", "X": "\xc3\xa4"}, {"RANK": "7"}]
    known = {"words": ["-m", "\xc3\xa4", "x"], "set": {"NEW": "\xc3\xa4"}, "unset": ["OLD", "NONE"]}
    return {**known, "ranks": ranks, **more}


def test_an_order_says_the_program_and_what_each_of_its_processes_finds(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"X": "of the node", "TORCHELASTIC_ERROR_FILE": "/former", "Y": "y"}
    words, environs = starter.ranks_of(order(), environ, f"{tmp_path}")
    assert words == ["-m", "ä", "x"]
    files = [f"{tmp_path}/{rank}/error.json" for rank in (6, 7)]
    assert environs == [
        {"X": "ä", "Y": "y", "RANK": "6", "TORCHELASTIC_ERROR_FILE": files[0]},
        {"X": "of the node", "Y": "y", "RANK": "7", "TORCHELASTIC_ERROR_FILE": files[1]},
    ]
    assert sorted(os.listdir(tmp_path)) == ["6", "7"]
    monkeypatch.setattr(os, "environ", {"OLD": "1", "KEPT": "2", "NEW": "3"})
    assert starter._followed(order()) == {"KEPT": "2", "NEW": "ä"}


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, 30.0), ("7", 7.0), ("7.5", 30.0), ("", 30.0)]
)
def test_the_grace_is_read_as_torchrun_does(given: str | None, seconds: float) -> None:
    environ = {} if given is None else {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": given}
    assert starter.grace_of(environ) == seconds


@pytest.mark.parametrize(
    ("code", "nodes", "waits"), [(0, "3", True), (0, "1", False), (4, "3", False)]
)
def test_who_ended_well_waits_for_the_other_nodes(
    monkeypatch: pytest.MonkeyPatch, code: int, nodes: str, waits: bool
) -> None:
    asked: list[Any] = []

    def waited(*place: Any, serves: bool, goes_on: Callable[[], bool]) -> None:
        processes.is_told = False
        first = goes_on()
        processes.is_told = True
        asked.append((*place, serves, first, goes_on()))

    monkeypatch.setattr(starter, "await_all_ended", waited)
    processes: Any = SimpleNamespace()
    environ = {"NNODES": nodes, "MASTER_ADDR": "fd00::1", "MASTER_PORT": "29501"}
    starter.await_others(processes, code, environ, serves=True)
    assert asked == [("fd00::1", 29_501, 3, True, True, False)] * waits


def test_each_process_has_the_streams_that_the_agent_has_for_its_pipes(
    kernel: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    asked: list[Any] = []

    def own(*what: Any) -> int:
        asked.append(what)
        return os.dup(1) if what[2] == "1" else -1

    closed: list[int] = []
    close = os.close
    monkeypatch.setenv("RDZV_LOOK_FOLDER", f"{tmp_path}")
    monkeypatch.setattr(module, "read_streams", lambda folder: (["pipe 1", "pipe 2"], ["RANK"]))
    monkeypatch.setattr(module, "open_own", own)
    monkeypatch.setattr(os, "close", lambda fd: closed.append(fd) or close(fd))  # type: ignore[func-returns-value]
    one = kernel(Child(1.0), Child(1.0), Child(1.0))
    assert run(one, monkeypatch) == 0
    pipes = ["pipe 1", "pipe 2"]
    assert asked == [(f"{tmp_path}", pipes, f"{n}", fd) for n in range(3) for fd in (1, 2)]
    given = [options["stdout"] for options in one.options]
    assert [fd == subprocess.PIPE for fd in given] == [True, False, True]
    assert {given[1], one.options[1]["stderr"]} <= {*closed}
    monkeypatch.setattr(module, "read_streams", lambda folder: int("no"))
    assert module._look(f"{tmp_path}") is None
    assert module._look("") is None
