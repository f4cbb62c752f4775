"""The whole look: on trees of machines, and on this one, with real kills and limits."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import MAX_FACTS, Evidence, Fact
from worker.evidence import kernel, look
from worker.evidence.control_groups import MEMORY, PIDS, Controller
from worker.evidence.look import Asked, Counters, look_after, look_before
from worker.evidence.parsing.telling import fact as made

MOUNTS = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
KILLED = "Memory cgroup out of memory: Killed process 70 (python3)"
NOTHING = Asked()
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=71, name=python3, GPU has fallen off the bus."


def told(kind: str, **fields: object) -> Fact:
    return Fact.model_validate({"kind": kind, **fields})


class Machine:
    """A tree of /proc and /sys, of version 2, and a kernel's log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = "<6>[    1.000000] begin\n"
        self.write("proc/self/mountinfo", MOUNTS)
        self.write("proc/self/cgroup", "0::/pod/agent\n")
        self.write("proc/meminfo", "MemTotal:        1000 kB\n")
        self.write("proc/vmstat", "nr_free 1\noom_kill 4\n")
        for group in ("pod", "pod/agent"):
            self.group(group)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def group(self, name: str, kills: int = 0, threads: int = 0, limit: str = "max") -> None:
        folder = f"sys/fs/cgroup/{name}"
        self.write(f"{folder}/memory.events", f"max 9\noom 1\noom_kill {kills}\n")
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.peak", "90\n")
        self.write(f"{folder}/pids.events", f"max {threads}\n")
        self.write(f"{folder}/pids.max", f"{limit}\n")

    def before(self, pid: int | None = None) -> Counters:
        return look_before(pid, root=self.root, read_log=lambda _: self.log)

    def after(self, before: Counters, asked: Asked = NOTHING) -> list[Fact]:
        found = look_after(before, asked, root=self.root, read_log=lambda _: self.log)
        return [fact for fact in found if fact.kind != "shared_memory"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ---- on trees -----------------------------------------------------------------------------------


def test_where_nothing_has_happened_nothing_is_told(machine: Machine) -> None:
    assert machine.after(machine.before()) == []


def test_a_kill_of_the_group_hides_the_machines(machine: Machine) -> None:
    before = machine.before()
    machine.group("pod", kills=1, limit="200")
    machine.group("pod/agent", kills=1)
    machine.write("proc/vmstat", "oom_kill 5\n")
    machine.log += f"<3>[    2.000000] {KILLED}\n"
    group = "/sys/fs/cgroup/pod/agent"
    assert machine.after(before, Asked(ranks={3: 70})) == [
        told("oom_kill", path=group, value=1.0, limit=200.0, words=KILLED, rank=3)
    ]


def test_a_kill_of_no_group_of_ours_is_the_machines(machine: Machine) -> None:
    before = machine.before()
    machine.write("proc/vmstat", "oom_kill 5\n")
    assert machine.after(before) == [told("oom_machine", value=1.0, limit=1_024_000.0)]


def test_a_group_of_the_programs_own_that_is_gone_speaks_through_the_one_above(
    machine: Machine,
) -> None:
    machine.group("pod/agent/job")
    machine.write("proc/70/cgroup", "0::/pod/agent/job\n")
    before = machine.before(70)
    for file in (machine.root / "sys/fs/cgroup/pod/agent/job").iterdir():
        file.unlink()
    machine.group("pod/agent", kills=1, limit="60")
    [fact] = machine.after(before)
    assert (fact.kind, fact.path, fact.limit) == ("oom_kill", "/sys/fs/cgroup/pod/agent", 60.0)


def test_a_limit_of_processes_and_a_gpus_error_are_told(machine: Machine) -> None:
    before = machine.before()
    machine.group("pod/agent", threads=7, limit="100")
    machine.log += f"<3>[    2.000000] {XID}\n"
    assert machine.after(before, Asked(ranks={1: 71})) == [
        told("kernel", words=XID, rank=1),
        told("pids", path="/sys/fs/cgroup/pod/agent", value=7.0, limit=100.0),
    ]


def test_a_machine_that_shows_nothing_tells_nothing_and_raises_nothing(tmp_path: Path) -> None:
    def refuse(_: int) -> str:
        raise PermissionError

    before = look_before(root=tmp_path / "nothing", read_log=refuse)
    assert before == Counters()
    found = look_after(before, Asked({0: 1}, ports=(80,)), root=tmp_path, read_log=refuse)
    assert {fact.kind for fact in found} <= {"shared_memory"}


def test_a_look_that_hangs_holds_nobody(machine: Machine) -> None:
    before, go_on = machine.before(), threading.Event()
    machine.group("pod/agent", threads=1)

    def hang(_: int) -> str:
        go_on.wait()
        return ""

    began = time.monotonic()
    found = look_after(before, Asked(), root=machine.root, read_log=hang, limit_seconds=1.0)
    assert time.monotonic() - began < 10.0
    go_on.set()
    assert "pids" in {fact.kind for fact in found}


def test_without_threads_the_look_is_made_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine.before()
    machine.group("pod/agent", threads=1, limit="5")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(look, "look_places", lambda *_: [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    [fact] = machine.after(before)
    assert (fact.kind, fact.limit) == ("pids", 5.0)


def test_no_kind_of_fact_hides_the_others_and_a_message_takes_them_all() -> None:
    many = [made(kind, path=str(i)) for kind in FactKind for i in range(20)]
    kept = look.chosen(many)
    firsts = [(kind.value, str(i)) for kind in FactKind for i in range(8)]
    assert [(fact.kind, fact.path) for fact in kept] == firsts[:MAX_FACTS]
    Evidence.model_validate_json(Evidence(facts=kept).model_dump_json())


# ---- on this machine ----------------------------------------------------------------------------

JOIN = "import os, sys; open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid())); "
READY = "print(flush=True); sys.stdin.read(1); "
EAT = "b = bytearray(200 << 20)"
SPAWN = """
import threading
stop = threading.Event()
try:
    while True: threading.Thread(target=stop.wait).start()
except RuntimeError: os._exit(1)
"""


@contextlib.contextmanager
def control_group(controller: Controller, limit: int) -> Iterator[Path]:
    """A group of this machine, of whichever version has the controller."""
    top = Path("/sys/fs/cgroup")
    first = top / controller.name
    folder = (first if first.is_dir() else top) / f"rdzvtest-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        files = [folder / name for name in controller.limit if (folder / name).exists()]
        if not files:
            pytest.skip(f"control groups here do not limit {controller.name}")
        files[0].write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


@contextlib.contextmanager
def ended_in(folder: Path, code: str) -> Iterator[tuple[Counters, int]]:
    """A process that joined the group and ended there, as nobody has reaped it yet."""
    argv = [sys.executable, "-I", "-S", "-c", JOIN + READY + code, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.read(1)
        before = look_before(child.pid)
        child.stdin.write(b"x")
        child.stdin.flush()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        yield before, child.pid


def test_a_process_that_the_kernel_has_killed_for_memory_is_told_with_its_limit() -> None:
    with (
        control_group(MEMORY, 50 << 20) as folder,
        ended_in(folder, EAT) as (before, pid),
    ):
        facts = look_after(before, Asked({3: pid}))
    [fact] = [fact for fact in facts if fact.kind.startswith("oom")]
    assert (fact.kind, fact.path, fact.value, fact.limit) == (
        *("oom_kill", str(folder), 1.0),
        float(50 << 20),
    )
    if before.last_line is not None:  # else this machine's log may not be read
        assert f"Killed process {pid} (" in fact.words
        assert fact.rank == 3


def test_a_process_that_met_its_limit_of_threads_is_told_with_it() -> None:
    with (
        control_group(PIDS, 5) as folder,
        ended_in(folder, SPAWN) as (before, pid),
    ):
        facts = look_after(before, Asked({3: pid}))
    found = [fact for fact in facts if fact.kind == "pids"]
    assert found == [told("pids", path=str(folder), value=1.0, limit=5.0)]


def test_the_kernels_log_is_read_from_its_end() -> None:
    whole = kernel.read_log(kernel.LONG_BYTES)
    if not whole:
        pytest.skip("the kernel's log may not be read here")
    short = kernel.read_log(kernel.SHORT_BYTES)
    assert len(short.encode()) <= kernel.SHORT_BYTES
    assert short.splitlines()[-1] in whole


def used() -> float:
    """Seconds of a processor that this process and what it has started have used so far."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


def best(work: Callable[[], object]) -> float:
    """Seconds of a processor, of the cheapest of a few: what others run meanwhile adds nothing."""
    costs = []
    for _ in range(5):
        before = used()
        work()
        costs.append(used() - before)
    return min(costs)


def test_a_look_costs_little() -> None:
    """1 ms before the start, 25 ms at a failure, where there is no GPU; ten times that is a bug."""
    before = look_before()
    asked = Asked({0: os.getpid()}, ("/tmp",), ("/etc/hosts",))
    assert best(look_before) < 0.01
    assert best(lambda: look_after(before, asked)) < 0.25
