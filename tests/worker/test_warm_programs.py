"""What forks ranks, what they become, and their store: without torch, in a process or by value."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from worker.contracts.framework import PROGRAMS
from worker.programs.warm import rank, starter, store, zygote

ROOT = Path(PROGRAMS).parents[1]
STATE = """
import json, os, signal, sys
main = sys.modules["__main__"]
masks = dict(l.split(":\\t") for l in open("/proc/self/status").read().splitlines() if ":\\t" in l)
print(json.dumps({
    "argv": sys.argv, "orig": sys.orig_argv[1:], "path": sys.path[0], "name": __name__,
    "file": globals().get("__file__"), "main": main.__dict__ is globals(),
    "ours": [name for name in sys.modules if name.partition(".")[0] == "worker"],
    "found": sys.path.count(os.environ["ROOT"]),
    "environ": {n: os.environ.get(n) for n in ("NEW", "OLD", "RANK", "LC_CTYPE")},
    "usr1": signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN,
    "usr2": signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL,
    "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "pipe": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
    "blocked": masks["SigBlk"].strip("0"),
    "ps": open("/proc/self/cmdline").read().split("\\0")[1:4],
    "seen": [e for e in open("/proc/self/environ").read().split("\\0") if e][:2],
    "let_go": os.environ.get("LET_GO"),
    "left": "order" in globals(),  # of who has forked it
}))
sys.stdout.flush()
if sys.argv[-1] == "raises":
    def deeper():
        raise ValueError("of the program")
    deeper()
"""
DRIVER = """
import os, signal, sys
sys.path.insert(0, os.environ["ROOT"])
from worker.programs.warm import rank
if os.environ.get("TWICE"):
    sys.path.append(os.environ["ROOT"])
rank.forget_ours()
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
environ = {"NEW": "1", "B": "2", "RANK": "6", "ROOT": os.environ["ROOT"]}
order = []
try:
    rank.become(sys.argv[1:], environ, {signal.SIGUSR1: signal.SIG_IGN},
                lambda: os.environ.update(LET_GO=",".join(order) or "before"))
except rank.Become as found:
    program = found.program
rank.run(program, (__file__, rank.__file__))
"""


class Over(BaseException):
    """The process ends here."""


def become(folder: Path, *words: str, **environ: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the state that the script has seen, and standard error."""
    (folder / "driver").write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, "-S", "-u", f"{folder / 'driver'}", *words],
        env={"PATH": os.environ["PATH"], "ROOT": f"{ROOT}", "OLD": "1", "X": "." * 4000, **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_what_is_forked_becomes_what_python_would_be_started_as(tmp_path: Path) -> None:
    script = tmp_path / "deep" / "train.py"
    script.parent.mkdir()
    script.write_text(STATE)
    code, state, err = become(tmp_path, f"{script}", "--fast", "raises", TWICE="1")
    words = [f"{script}", "--fast", "raises"]
    assert state == {
        "argv": words,
        "orig": ["-u", *words],
        "path": f"{script.parent}",
        "name": "__main__",
        "file": f"{script}",
        "main": True,
        "ours": [],
        "found": 1,  # the user's own
        "environ": {"NEW": "1", "OLD": None, "RANK": "6", "LC_CTYPE": "C.UTF-8"},
        "usr1": True,
        "usr2": True,
        "int": True,
        "pipe": True,
        "blocked": "",
        "ps": ["-u", f"{script}", "--fast"],
        "seen": ["RANK=6", state["seen"][1]],
        "let_go": "before",
        "left": False,
    }
    assert code == 1
    first, *frames, last = err.splitlines()
    assert (first, last) == (
        "Traceback (most recent call last):",
        "ValueError: of the program",
    )
    assert [line for line in frames if "File " in line] == [
        line for line in frames if f'"{script}"' in line
    ]


def test_a_module_is_found_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(STATE)
    code, state, err = become(tmp_path, "-m", "package", "x")
    assert (code, err) == (0, "")
    assert (state["path"], state["name"], state["found"]) == (f"{tmp_path}", "__main__", 0)
    assert (state["main"], state["left"]) == (True, False)
    assert state["argv"] == [f"{tmp_path}/package/__main__.py", "x"]
    assert state["orig"] == ["-u", "-m", "package", "x"]
    code, state, err = become(tmp_path, "none.py")
    assert (code, state) == (2, {})
    assert err.endswith(
        f"can't open file '{tmp_path}/none.py': [Errno 2] No such file or directory\n"
    )


def test_each_rank_draws_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    generator = SimpleNamespace(seed=lambda: drawn.append("torch"))
    torch: Any = SimpleNamespace(default_generator=generator)
    numpy: Any = SimpleNamespace(seed=lambda: drawn.append("numpy"))
    for name, known in (("torch", torch), ("numpy.random", numpy)):
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.delitem(sys.modules, "numpy.random", raising=False)
        monkeypatch.setitem(sys.modules, name, known)
        rank.seed()
    assert drawn == ["torch", "numpy"]


def test_what_is_shown_fills_its_room_with_what_is_read_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms: dict[int, bytes] = {}
    put = rooms.__setitem__
    monkeypatch.setattr(rank.ctypes, "memmove", lambda at, data, size: put(at, data[:size]))  # type: ignore[attr-defined]
    rank._fill(100, 110, [b"abc", b"too long a word", b"de", b"fgh"])
    rank._fill(0, 10, [b"abc"])
    assert rooms == {100: b"abc\0de\0\0\0\0"}
    filled: list[Any] = []
    monkeypatch.setattr(rank, "_fill", lambda start, end, items: filled.append([*items]))
    rank.show(["python", "-u"], {"A": "1", "LOCAL_RANK": "3", "RANK": "5"})
    assert filled == [[b"python", b"-u"], [b"RANK=5", b"LOCAL_RANK=3", b"A=1"]]


def test_signals_are_known_as_python_handles_them() -> None:
    found = rank.handlers_now()
    assert not {signal.SIGKILL, signal.SIGSTOP} & {*found}
    assert found[signal.SIGCHLD] == signal.getsignal(signal.SIGCHLD)


# --- the store ------------------------------------------------------------------------------------


class TcpStore:
    """torch's, of which other nodes count on as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *counts: int) -> None:
        self.asked: list[Any] = []
        self.now = 0.0
        self.error: Exception | None = None
        self._counts = list(counts)
        self._pause = 10.0 if len(counts) == 1 else 0.0
        torch: Any = ModuleType("torch.distributed")
        torch.TCPStore = self._made
        monkeypatch.setitem(sys.modules, "torch.distributed", torch)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(store, "time", clock)

    def _made(self, host: str, port: int, **how: Any) -> TcpStore:
        if self.error is not None:
            raise self.error
        self.asked.append((host, port, how["is_master"], how["wait_for_workers"]))
        assert how["timeout"].total_seconds() == 10.0
        return self

    def add(self, name: str, count: int) -> int:
        self.asked.append((name, count))
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]

    def _sleep(self, seconds: float) -> None:
        self.now += max(seconds, self._pause)


ADDED, LOOKED = ("rdzv/ended", 1), ("rdzv/ended", 0)
HERE, THERE = ("127.0.0.1", 29_501, False, False), ("10.0.0.4", 29_501, False, False)


@pytest.mark.parametrize(
    ("counts", "serves", "told_after", "asked", "until"),
    [
        ((1, 2, 2, 3), True, 99, [HERE, ADDED, *[LOOKED] * 3], 0.06),
        ((3,), True, 99, [HERE, ADDED], 0.0),
        ((1, 2), False, 99, [THERE, ADDED], 0.0),
        ((1,), True, 2, [HERE, ADDED, *[LOOKED] * 2], 20.0),
        ((1,), True, 99, [HERE, ADDED, *[LOOKED] * 30], 300.0),
    ],
)
def test_the_node_of_the_store_waits_until_all_have_ended(
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int, ...],
    serves: bool,
    told_after: int,
    asked: list[Any],
    until: float,
) -> None:
    one = TcpStore(monkeypatch, *counts)
    goes_on: Callable[[], bool] = lambda: one.asked.count(LOOKED) < told_after  # noqa: E731
    store.await_all_ended("10.0.0.4", 29_501, 3, serves=serves, goes_on=goes_on)
    assert one.asked == asked
    assert one.now == pytest.approx(until)


def test_a_store_that_is_gone_is_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    one = TcpStore(monkeypatch, 1)
    one.error = RuntimeError("nobody listens")
    store.await_all_ended("10.0.0.4", 29_501, 3, serves=False, goes_on=lambda: True)
    assert one.asked == []
    one.error = RuntimeError("in\nuse " + "x" * 2_000)
    with pytest.raises(store.CannotListen) as found:
        store.serve_here(29_501)
    assert str(found.value) == ("in use " + "x" * 2_000)[:1_000]
    one.error = None
    assert store.serve_here(29_501) is one
    assert one.asked == [("127.0.0.1", 29_501, True, False)]


# --- what forks them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "bad", "threads", "child", "why"),
    [
        (False, None, 1, False, ""),
        (True, None, 1, False, "the imports have initialised CUDA"),
        (False, True, 1, False, "the imports have initialised CUDA"),
        (False, False, 3, False, "the imports have left 2 threads running"),
        (False, False, 1, True, "the imports have left a process running"),
    ],
)
def test_nothing_is_forked_of_what_has_a_gpu_a_thread_or_a_child(
    monkeypatch: pytest.MonkeyPatch,
    begun: bool,
    bad: bool | None,
    threads: int,
    child: bool,
    why: str,
) -> None:
    """Threads that a library ends itself at a fork are none: one is tried, and waited for."""
    done: list[Any] = []
    cuda = SimpleNamespace(is_initialized=lambda: begun)
    if bad is not None:
        cuda._is_in_bad_fork = lambda: bad
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    def waitid(*asked: int) -> None:
        assert asked == (os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if not child:
            raise ChildProcessError

    def tasks(folder: str) -> list[str]:
        done.append(folder)
        return ["1"] * threads

    fake = {**vars(os), "fork": lambda: 77, "waitid": waitid, "listdir": tasks}
    fake["waitpid"] = lambda *given: done.append(given)
    monkeypatch.setattr(zygote, "os", SimpleNamespace(**fake))
    assert zygote.what_is_in_the_way() == why
    assert done == ([] if "CUDA" in why else [(77, 0), "/proc/self/task"])


def test_the_store_is_asked_to_listen_before_the_node_is_armed_and_no_order_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    class Store:
        """In place of MASTER_PORT's."""

        def __init__(self, port: int) -> None:
            if port == 7:
                raise store.CannotListen("it is taken")

        def close(self) -> None:
            ran.append("closed")

    def run(*given: Any) -> int:
        ran.append(given)
        return 3

    monkeypatch.setattr(starter, "Store", Store)
    monkeypatch.setattr(starter, "_run", run)
    monkeypatch.setenv("RDZV_SOCKET", f"{tmp_path}/agent")
    monkeypatch.setenv("OLD", "1")
    order = {"words": ["t.py"], "set": {"NEW": "\xc3\xa9"}, "unset": ["OLD"], "ranks": []}
    for port, said, told, code in (
        (7, b"", {"cannot": "MASTER_PORT's store: it is taken"}, 1),
        (29_501, b"", {"armed": True}, 0),
        (29_501, json.dumps(order).encode(), {"armed": True}, 3),
        (None, json.dumps(order).encode(), {"armed": True}, 3),
    ):
        ours, theirs = socket.socketpair()
        printed, writer = os.pipe()
        os.close(writer)
        with ours:
            ours.send(said)
            ours.shutdown(socket.SHUT_WR)
            assert starter.start_node(theirs, port, printed, {1: 2}) == code
            assert json.loads(ours.recv(200)) == told
        theirs.close()
        if said == b"":
            os.close(printed)
    (first, environ, held, folder, handlers), closed, (*_, other, _, _) = ran
    assert (first, handlers, closed, other) == (order, {1: 2}, "closed", None)
    assert isinstance(held, Store)
    assert (environ["NEW"], "OLD" in environ) == ("é", False)
    assert Path(folder).parent == tmp_path
    assert [*tmp_path.iterdir()] == []


def test_what_is_forked_begins_when_all_are_there_without_the_files_of_who_forked_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its signals are held until it has handlers; for who forked it see `test_processes_course`."""
    done: list[Any] = []
    environs = [{"RANK": "14"}, {"RANK": "15"}]
    kept: Any = SimpleNamespace(let_go=lambda: done.append("store"))
    forked = starter.ForkedProcesses(["t.py"], environs, {1: 2}, kept)
    waits, holds, *wake = *forked._all_forked, *forked._wake

    def becomes(*given: Any) -> None:
        done.append(given[:3])
        given[3]()
        raise Over

    fake = {**vars(os), "fork": lambda: 0, "setsid": lambda: done.append("leads")}
    fake |= {"close": lambda fd: done.append(("close", fd)), "read": lambda fd, n: done.append(fd)}
    monkeypatch.setattr(starter, "os", SimpleNamespace(**fake))
    monkeypatch.setattr(starter, "become", becomes)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, mask: done.append((how, len(mask))))
    with pytest.raises(Over):
        forked._start(1)
    held = (signal.SIG_BLOCK, len(signal.valid_signals()))
    closed = [("close", fd) for fd in (waits, *wake)]
    own = (["t.py"], environs[1], {1: 2})
    assert done == [held, "leads", own, ("close", holds), waits, *closed, "store"]
    for fd in (waits, holds, *wake):
        os.close(fd)


@pytest.mark.parametrize(
    ("parent", "error", "said", "code"),
    [
        (33, None, [b"1", "waits"], 0),
        (34, None, [b"1"], 0),  # its node has just been killed
        (33, ValueError("in  use\n" + "x" * 2_000), [("in use " + "x" * 993).encode()], 1),
    ],
)
def test_a_store_of_its_own_serves_until_its_node_lets_go(
    monkeypatch: pytest.MonkeyPatch,
    parent: int,
    error: Exception | None,
    said: list[Any],
    code: int,
) -> None:
    """What ends a node's processes does not end it: they may need it until then."""
    done, ignored = list[Any](), set[int]()
    fake = {"getppid": lambda: 33, "_exit": lambda code: done.append(("exit", code))}
    monkeypatch.setattr(store, "os", SimpleNamespace(**fake))
    monkeypatch.setattr(store, "prctl", lambda *given: done.append(given))
    monkeypatch.setattr(
        signal, "signal", lambda number, how: ignored.add(number) if how == signal.SIG_IGN else 1
    )

    def made(*given: Any, **how: Any) -> str:
        done.append((given, how))
        if error is not None:
            raise error
        return "a store"

    monkeypatch.setattr(store, "_tcp_store", made)
    line: Any = SimpleNamespace(send=done.append, recv=lambda count: done.append("waits"))
    store._serve(29_501, line, parent)
    here = (("127.0.0.1", 29_501), {"is_master": True})
    assert done == [(1, signal.SIGKILL), here, *said, ("exit", code)]
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1} < ignored


@pytest.mark.parametrize(
    ("heard", "why"), [(b"1", None), (b"in use", "in use"), (b"", "its process has ended")]
)
def test_a_store_that_cannot_listen_is_waited_for_and_says_why(
    monkeypatch: pytest.MonkeyPatch, heard: bytes, why: str | None
) -> None:
    waited: list[Any] = []
    ours, theirs = socket.socketpair()
    theirs.send(heard)
    monkeypatch.setattr(store, "socket", SimpleNamespace(socketpair=lambda: (ours, theirs)))
    fake = {
        "getpid": lambda: 44,
        "fork": lambda: 77,
        "waitpid": lambda *given: waited.append(given),
    }
    monkeypatch.setattr(store, "os", SimpleNamespace(**fake))
    if why is None:
        store.Store(29_501).close()
    else:
        with pytest.raises(store.CannotListen, match=f"^{why}$"):
            store.Store(29_501)
    assert (ours.fileno(), theirs.fileno(), waited) == (-1, -1, [(77, 0)])


def test_the_process_of_a_store_has_one_end_of_its_line_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or it would not see that its node is gone."""
    ours, theirs = socket.socketpair()

    def serve(*given: Any) -> None:
        assert given == (29_501, theirs, 44)
        raise Over

    monkeypatch.setattr(store, "_serve", serve)
    monkeypatch.setattr(store, "socket", SimpleNamespace(socketpair=lambda: (ours, theirs)))
    monkeypatch.setattr(store, "os", SimpleNamespace(getpid=lambda: 44, fork=lambda: 0))
    with pytest.raises(Over):
        store.Store(29_501)
    assert ours.fileno() == -1
    theirs.close()
