"""What a forked rank becomes, and the store of its run: without torch, in a process or by value."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from worker.contracts.framework import PROGRAMS
from worker.programs.warm import rank, store

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
