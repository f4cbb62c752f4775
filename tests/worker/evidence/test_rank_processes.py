"""The limits and states of ranks, and whose a port is: of texts, and of real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rendezvous.wire.evidence import Fact
from tests.support.waiting import until
from worker.evidence.parsing.processes import (
    State,
    limit_facts,
    limits_in,
    state_facts,
    state_in,
)
from worker.evidence.parsing.sockets import Holder, holders_in
from worker.evidence.processes import look_limits, look_ports, look_states

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max file size             1048576              unlimited            bytes
Max stack size            8388608              unlimited            bytes
Max processes             unlimited            96365                processes
Max open files            1024                 1048576              files
Max locked memory         65536                65536                bytes
Max address space         unlimited            unlimited            bytes
"""
ANY6 = "0" * 32
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
TCP = f"""{HEAD} inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 51 1 x
   1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 52 1 x
   2: 0100007F:1F91 0100007F:1F90 06 00000000:00000000 03:00000D2D 00000000     0        0 0 3 x
   3: 0100007F:1F92 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     7        0 53 1 x
   4: truncated
   5: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     x        0 54 1 x
"""
TCP6 = f"""{HEAD} inode
   0: {ANY6}:1F91 {ANY6}:0000 0A 00000000:00000000 00:00000000 00000000     0        0 61 1 x
"""


def told(kind: str, **fields: object) -> Fact:
    return Fact.model_validate({"kind": kind, **fields})


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has said that it is ready."""
    argv = [sys.executable, "-I", "-S", "-c", f"{code}; print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child
        finally:
            child.kill()


# ---- limits -------------------------------------------------------------------------------------


def test_the_limits_that_limit_something_are_read() -> None:
    assert limits_in(LIMITS) == {"fsize": 1 << 20, "nofile": 1024, "memlock": 65536}
    assert limits_in("Max open files 9223372036854775807 \nrubbish") == {}
    assert limits_in("Max open files            9223372036854775807  1  files") == {}


def test_a_limit_of_all_ranks_is_told_once_and_others_with_their_rank() -> None:
    assert limit_facts({0: {"nofile": 64, "as": 9}, 1: {"nofile": 64}, 2: {"nofile": 64}}) == [
        told("rlimit", path="nofile", limit=64.0),
        told("rlimit", path="as", limit=9.0, rank=0),
    ]
    assert limit_facts({}) == []


@pytest.mark.parametrize("ended", [False, True])
def test_the_limits_of_a_real_process_are_told_also_when_it_has_ended(ended: bool) -> None:
    with process("import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1 << 20, 1 << 20))") as child:
        if ended:
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        facts = look_limits({5: child.pid})
    assert told("rlimit", path="fsize", limit=float(1 << 20)) in facts


def test_of_ranks_that_are_gone_the_agents_own_limits_are_told(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/limits").write_text(LIMITS)
    facts = look_limits({5: 4_000_000}, tmp_path)
    assert [fact.path for fact in facts] == ["nofile", "fsize", "memlock"]
    assert look_limits({}, tmp_path / "nothing") == []


def test_the_limit_of_processes_is_told_with_how_many_the_user_has(tmp_path: Path) -> None:
    """It counts the user's threads on the whole machine; and root has none."""
    text = f"{'Max processes':26}{20:<21}{20:<21}processes\n"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/uid_map").write_text("0 1000 1\n")
    for pid, user, threads in ((10, os.getuid(), 4), (11, os.getuid(), 3), (12, 77, 50)):
        (tmp_path / f"proc/{pid}").mkdir()
        (tmp_path / f"proc/{pid}/status").write_text(f"Uid:\t{user}\t0\nThreads:\t{threads}\n")
        (tmp_path / f"proc/{pid}/limits").write_text(text + LIMITS.splitlines()[-3] + "\n")
    files = told("rlimit", path="nofile", limit=1024.0)
    tasks = told("rlimit", path="nproc", limit=20.0, value=7.0)
    assert look_limits({0: 10, 1: 11}, tmp_path) == [files, tasks]
    (tmp_path / "proc/self/uid_map").write_text("0 0 4294967295\n")
    (tmp_path / "proc/self/status").write_text("CapEff:\t0000000001000000\n")
    assert look_limits({0: 10}, tmp_path) == [files]


# ---- states -------------------------------------------------------------------------------------


def test_a_state_is_read_whatever_the_process_is_called() -> None:
    assert state_in("7 (a) T (b) D 1 2 3", "io_schedule\n") == State(7, "D", "io_schedule")
    assert state_in("7 (a) S 1 2 3", "0") == State(7, "S")
    assert [state_in(text, "") for text in ("", "7 (a)", "x (a) S")] == [None, None, None]


def test_the_ranks_that_are_stopped_or_wait_for_a_disk_are_told() -> None:
    states = {0: State(10, "S"), 1: State(11, "T"), 2: State(12, "t"), 3: State(13, "Z")}
    assert state_facts({**states, 4: State(14, "D", "nfs_wait"), 5: State(15, "D")}) == [
        told("state", value=11.0, words="T", rank=1),
        told("state", value=12.0, words="T", rank=2),
        told("state", value=14.0, words="D nfs_wait", rank=4),
        told("state", value=15.0, words="D", rank=5),
    ]


def test_a_stopped_process_is_told() -> None:
    with process("pass") as child:
        child.send_signal(signal.SIGSTOP)
        until(lambda: look_states({2: child.pid}))
        assert look_states({2: child.pid, 3: os.getpid(), 4: 4_000_000}) == [
            told("state", value=float(child.pid), words="T", rank=2)
        ]


def test_a_process_that_no_signal_but_sigkill_wakes_is_told_with_what_it_waits_in() -> None:
    """A parent waits so for a child of vfork, as others do for a disk."""
    code = "import ctypes, time; ctypes.PyDLL(None).vfork(); time.sleep(600)"
    argv = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(argv, start_new_session=True) as child:
        try:
            [fact] = until(lambda: look_states({2: child.pid}))
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert (fact.kind, fact.value, fact.rank) == ("state", float(child.pid), 2)
    assert fact.words.split()[0] == "D"


def test_who_waits_for_a_disk_for_a_moment_only_is_not_told(tmp_path: Path) -> None:
    for pid, wchan in ((10, "folio_wait"), (11, "nfs_wait")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/stat").write_text(f"{pid} (python) D 1 2")
        (tmp_path / f"proc/{pid}/wchan").write_text(wchan)

    def later(_: float) -> None:
        (tmp_path / "proc/10/stat").write_text("10 (python) R 1 2")

    assert look_states({0: 10, 1: 11}, tmp_path, later) == [
        told("state", value=11.0, words="D nfs_wait", rank=1)
    ]


# ---- ports --------------------------------------------------------------------------------------


def test_who_listens_comes_before_who_is_connected() -> None:
    assert holders_in([TCP, TCP6], [8080, 8081, 8082, 8083]) == [
        Holder(8080, 51, 1000, True),
        Holder(8081, 61, 0, True),
        Holder(8082, 53, 7, False),
    ]
    assert holders_in([TCP], [8081]) == [Holder(8081, 0, 0, False)]


@pytest.mark.parametrize("is_rank", [True, False])
def test_the_process_that_listens_on_a_port_is_named(is_rank: bool) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with process(f"import socket; s = socket.create_server(('127.0.0.1', {port}))") as child:
        facts = look_ports([port], {9: child.pid} if is_rank else {})
    words = f"pid {child.pid} ({os.path.basename(sys.executable)})"
    rank = 9 if is_rank else None
    assert facts == [told("port", value=float(port), words=words, rank=rank)]


def test_a_port_whose_process_may_not_be_seen_has_its_user(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(TCP)
    facts = look_ports([8080, 8081, 8082, 0, 99_999], {}, tmp_path)
    assert [fact.words for fact in facts] == [
        "a process of uid 1000",
        "a closed connection (TIME_WAIT)",
        "a process of uid 7, connected",
    ]


def test_the_search_for_a_process_ends_in_time() -> None:
    times = iter([0.0, 0.1, 99.0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        [fact] = look_ports([server.getsockname()[1]], {}, clock=lambda: next(times, 99.0))
    assert fact.words == f"a process of uid {os.geteuid()}"


def test_a_free_port_is_not_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert look_ports([port], {}) == []
    assert look_ports([], {}) == []
