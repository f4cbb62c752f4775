"""What a rank answers where it is: every part of it by value, and a second and third request."""

from __future__ import annotations

import _thread
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from worker.look import answering
from worker.look.answering import MOST_FRAMES, MOST_RECORDER, ranges, stacks

MAIN = threading.main_thread().ident or 0
GENERAL, NCCL = answering.DUMPS


class Torch:
    """A torch, as far as a rank's answer goes; `dumps` has what it was asked for, in order."""

    def __init__(self, put: Callable[[str, Any], None]) -> None:
        self.dumps: list[tuple[str, bool, bool]] = []
        self.large = ""
        self.spec = SimpleNamespace(_initializing=False)
        self.world = SimpleNamespace(
            default_pg=None,
            pg_names={"group": "default", "other": "tp"},
            pg_group_ranks={"group": {2: 0, 0: 1, 1: 2, 5: 3}, "other": {7: 0}},
        )
        self.functions = ModuleType("torch._C._distributed_c10d")
        for name in answering.DUMPS:
            setattr(self.functions, name, self._dump(name))
        put("torch", SimpleNamespace(__spec__=self.spec))
        put("torch.distributed.distributed_c10d", SimpleNamespace(_world=self.world))
        put("torch._C._distributed_c10d", self.functions)

    def _dump(self, name: str) -> Callable[[bool, bool], bytes]:
        def dump(entries: bool, traces: bool) -> bytes:
            self.dumps.append((name, entries, traces))
            if name == self.large and entries:
                return b"x" * (MOST_RECORDER + 1)
            return name.encode() + b"+" * entries

        return dump


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(lambda name, module: monkeypatch.setitem(sys.modules, name, module))


def parts_of(answer: bytes) -> tuple[str, list[bytes]]:
    """The stage, and the parts, of the lengths that the first line gives them."""
    head, rest = answer.split(b"\n", 1)
    stage, now, *sizes = head.decode().split()
    assert int(now) > 10**18
    parts = []
    for size in map(int, sizes):
        parts.append(rest[:size])
        rest = rest[size:]
    assert rest == b""
    return stage, parts


GROUPS = b"default\t0-2,5\ntp\t7\n"


@pytest.mark.parametrize(
    ("request_", "groups", "everything"), [(b"status", b"", False), (b"entries", GROUPS, True)]
)
def test_each_request_has_the_parts_that_it_asks_for(
    torch: Torch,
    monkeypatch: pytest.MonkeyPatch,
    request_: bytes,
    groups: bytes,
    everything: bool,
) -> None:
    threads(monkeypatch, {5: Frames("main")})
    stage, parts = parts_of(answering.answer(request_, MAIN))
    dumps = [name.encode() + b"+" * everything for name in (GENERAL, NCCL)]
    assert (stage, parts[0], bool(parts[1]), parts[2:]) == ("imported", groups, everything, dumps)
    assert torch.dumps == [(GENERAL, everything, False), (NCCL, everything, False)]


@pytest.mark.parametrize(("large", "other"), [(GENERAL, NCCL), (NCCL, GENERAL)])
def test_a_recorder_with_too_much_is_asked_again_without_its_entries(
    torch: Torch, large: str, other: str
) -> None:
    torch.large = large
    _, parts = parts_of(answering.answer(b"entries", MAIN))
    assert {*parts[2:]} == {large.encode(), other.encode() + b"+"}
    assert torch.dumps.count((large, False, False)) == 1


@pytest.mark.parametrize("missing", answering.DUMPS)
def test_a_torch_without_one_of_its_recorders_has_the_other(torch: Torch, missing: str) -> None:
    delattr(torch.functions, missing)
    _, parts = parts_of(answering.answer(b"entries", MAIN))
    expected = [b"" if name == missing else name.encode() + b"+" for name in answering.DUMPS]
    assert parts[2:] == expected


def test_how_far_torch_is_is_said(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage() -> str:
        return parts_of(answering.answer(b"status", MAIN))[0]

    torch.spec._initializing = True
    assert stage() == "importing"
    torch.spec._initializing = False
    assert stage() == "imported"
    torch.world.default_pg = object()
    assert stage() == "groups"
    del torch.world.default_pg, torch.world.pg_names
    assert stage() == "imported"
    assert parts_of(answering.answer(b"entries", MAIN))[1][0] == b""
    monkeypatch.delitem(sys.modules, "torch")
    assert stage() == "importing"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([4, 3, 9, 1, 0], "0-1,3-4,9"),
        (range(5_000), "0-4999"),
        (range(0, 402, 2), ""),  # 201 spans, one more than could be 400 letters
        (range(1_000, 1_160, 2), ",".join(map(str, range(1_000, 1_160, 2)))),  # 399 letters
        (range(1_000, 1_162, 2), ""),
        ([*range(0, 380, 2), 400], ""),  # 191 spans, of too many letters
    ],
)
def test_ranks_are_written_as_spans_where_these_are_few(ranks: Any, text: str) -> None:
    assert ranges(dict.fromkeys(ranks, 0)) == text


# --- stacks ---------------------------------------------------------------------------------------


class Frames:
    """Frames of a call in a call, the innermost first."""

    def __init__(self, *names: str, line: int | None = 7) -> None:
        self.f_code = SimpleNamespace(co_filename="/u/train.py", co_name=names[0])
        self.f_lineno = line
        self.f_back: Frames | None = None
        inner = self
        for name in names[1:]:
            inner.f_back = Frames(name)
            inner = inner.f_back


def threads(monkeypatch: pytest.MonkeyPatch, found: dict[int, Frames]) -> None:
    monkeypatch.setattr(sys, "_current_frames", lambda: dict(found))


def test_the_main_thread_is_last_and_the_own_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    own = _thread.get_ident()
    found = {5: Frames("main", "<module>"), own: Frames("stacks"), 9: Frames("a\nb", line=None)}
    threads(monkeypatch, found)
    assert stacks(5) == (
        "Thread 0x0000000000000009 (most recent call first):\n"
        '  File "/u/train.py", line 0 in a?b\n'
        "\n"
        "Thread 0x0000000000000005 (most recent call first):\n"
        '  File "/u/train.py", line 7 in main\n'
        '  File "/u/train.py", line 7 in <module>\n'
    )


@pytest.mark.parametrize(
    ("deep", "lines", "cut"),
    [(MOST_FRAMES, MOST_FRAMES, False), (MOST_FRAMES + 1, MOST_FRAMES, True), (500, 100, True)],
)
def test_of_a_deep_stack_the_innermost_calls_are_shown(
    monkeypatch: pytest.MonkeyPatch, deep: int, lines: int, cut: bool
) -> None:
    threads(monkeypatch, {5: Frames(*(f"f{n}" for n in range(deep)))})
    text = stacks(5).splitlines()
    assert (len(text) - 1 - cut, text[-1] == "  ...") == (lines, cut)
    assert text[1].endswith(" in f0")


def test_of_many_threads_the_main_one_is_among_those_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {number: Frames(f"thread{number}") for number in range(1, 200)}
    threads(monkeypatch, found)
    heads = [line for line in stacks(3).splitlines() if line.startswith("Thread")]
    assert len(heads) == answering.MOST_THREADS
    assert heads[-1].startswith("Thread 0x0000000000000003 ")


def test_of_very_long_stacks_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, {5: Frames("main"), 6: Frames(*["f" * 900] * 90), 7: Frames("other")})
    monkeypatch.setattr(answering, "MOST_STACKS", 1_000)
    text = stacks(5)
    assert len(text) == 1_000
    assert text.endswith(" in main\n")
    assert "f" * 501 not in text


# --- the socket -----------------------------------------------------------------------------------


def ask(path: Path, request: bytes = b"status\n") -> bytes:
    """The whole answer; short paths are asked for, as the folder's name may be long."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(5.0)
            sock.connect(f"/proc/self/fd/{folder}/{path.name}")
            sock.sendall(request)
            found = b""
            while more := sock.recv(1 << 16):
                found += more
            return found
    finally:
        os.close(folder)


def open_files() -> set[int]:
    """Of this process, without the one by which they are listed."""
    return {
        int(name) for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd", name).exists()
    }


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Listeners of the ranks that a test starts; what still serves is ended."""
    listeners: list[int] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    yield listeners
    for listener in listeners:
        os.close(listener)


@pytest.mark.parametrize("deep", [False, True])
def test_a_rank_answers_again_and_again_until_its_file_is_another(
    tmp_path: Path, serving: list[int], torch: Torch, deep: bool
) -> None:
    folder = tmp_path / ("d" * 120 if deep else "d")
    folder.mkdir()
    (folder / "3.socket").write_text("of a process before it")
    before = open_files()
    listener = answering._listen(str(folder), "3.socket")
    serving.append(listener)
    assert open_files() - before == {listener}
    own = os.fstat(listener).st_ino
    thread = threading.Thread(target=answering._serve, args=(listener, own, MAIN))
    thread.start()
    for request in (b"status\n", b"entries\n", b"status\n"):
        stage, parts = parts_of(ask(folder / "3.socket", request))
        assert (stage, bool(parts[1])) == ("imported", request == b"entries\n")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, listener)
    os.close(null)
    assert not answering._is_ours(listener, own)
    # It still waits with the socket that it had: who asks now is not answered, and ends it.
    with pytest.raises(OSError, match=r"Errno"):
        ask(folder / "3.socket")
    thread.join(5.0)
    assert not thread.is_alive()
    answering._close(listener, own)
    os.fstat(listener)  # what has its number now stays open


def test_a_child_closes_the_socket_that_it_has_from_its_parent(tmp_path: Path) -> None:
    listener = answering._listen(str(tmp_path), "0.socket")
    own = os.fstat(listener).st_ino
    answering._close(listener, own)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(listener)
    answering._close(listener, own)


def test_it_starts_with_no_signal_of_the_program_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread has them blocked; who starts it has its own again, also if none can be started."""
    masks: list[tuple[int, set[int]]] = []
    started: list[Any] = []
    closing: list[Callable[[], None]] = []

    def mask(how: int, signals: set[int]) -> set[int]:
        masks.append((how, {*signals}))
        return {40}

    fake = SimpleNamespace(
        SIG_BLOCK=0,
        SIG_SETMASK=2,
        valid_signals=lambda: {1, 7, 8, 11, 15},
        pthread_sigmask=mask,
        SIGSEGV=11,
        SIGBUS=7,
        SIGFPE=8,
        SIGILL=4,
        SIGABRT=6,
    )
    monkeypatch.setattr(answering, "_signal", fake)
    monkeypatch.setattr(
        os, "register_at_fork", lambda after_in_child: closing.append(after_in_child)
    )
    monkeypatch.setattr(
        _thread, "start_new_thread", lambda work, args: started.append((work, *args))
    )
    placed: list[int] = []

    def put_high(file: int, kind: int) -> int:
        placed.append(kind)
        return file

    answering.start(str(tmp_path), "2", 77, put_high)
    [(work, listener, own, main)] = started
    assert (work, main, placed) == (answering._serve, 77, [1])
    assert os.fstat(listener).st_ino == own
    assert masks == [(0, {1, 15}), (2, {40})]
    [close] = closing
    close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(listener)

    def fails(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", fails)
    with pytest.raises(RuntimeError, match="new thread"):
        answering.start(str(tmp_path), "2", 77, put_high)
    assert masks[2:] == [(0, {1, 15}), (2, {40})]
    closing[1]()
