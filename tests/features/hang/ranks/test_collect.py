"""Looks at real processes that run the hook; none of them has a torch but one of a few lines."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from features.hang.ranks.collect import collect, sample, work
from features.hang.ranks.fitting import Seen
from features.hang.ranks.rank_process import Known, find
from features.hang.wire import Frame, ProcessLook, RankLook, Stack
from tests.support.nightly import at_night
from tests.worker.look.ranks import (
    BUSY,
    HOLDS_THE_GIL,
    SLEEPS,
    TORCH,
    environment,
    folder_in,
    started,
    until,
)
from worker.look.asking import Asked, ask

SIGNAL = signal.SIGRTMIN + 7


@pytest.fixture
def folder(short_path: Path) -> Path:
    return folder_in(short_path)


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers does so in time, also on a busy machine; to meet one that does not, take this
    back."""

    def patiently(folder: Path, ranks: Iterable[int], what: bytes, _: float) -> Asked:
        return ask(folder, ranks, what, 20.0)

    monkeypatch.setattr("features.hang.ranks.collect.ask", patiently)


def by_signal(folder: Path, pid: int) -> tuple[RankLook, Stack]:
    """What a look sees as soon as it is safe to send the signal, which on a busy machine takes it
    several looks."""

    def look() -> tuple[RankLook, Stack] | None:
        rank, stack = alone(collect(folder, {0: pid}, 0))
        return (rank, stack) if stack else None

    found: tuple[RankLook, Stack] = until(look, 30)
    return found


def alone(seen: Seen) -> tuple[RankLook, Stack | None]:
    [rank] = seen.ranks
    return rank, None if rank.stack is None else seen.stacks[rank.stack]


def names(stack: Stack | None) -> list[str]:
    return [frame.function for frame in stack.frames] if stack else []


def is_there(folder: Path, name: str) -> bool:
    return os.path.lexists(folder / name)


def test_a_rank_is_the_process_that_says_so_if_it_is_the_known_one_or_below_it(
    folder: Path,
) -> None:
    proc = Path("/proc")
    with started(folder, SLEEPS) as process:
        pid = process.pid
        found = find(folder, 0, pid, proc)
        assert found.pid == pid
        assert found.signal > 0
        assert find(folder, 0, None, proc) == find(folder, 0, os.getpid(), proc) == found
        assert find(folder, 0, 1 << 22, proc) == Known(1 << 22)
        assert find(folder, 1, pid, proc) == Known(pid)
        assert find(folder, 1, None, proc) == Known(0)
    assert find(folder, 0, pid, proc) == Known(pid)
    assert find(folder, 0, None, proc) == Known(pid)  # it has ended, and was not left out


def test_a_rank_that_sleeps_without_torch_tells_its_stack(folder: Path) -> None:
    with started(folder, SLEEPS) as process:
        assert len(os.listdir(f"/proc/{process.pid}/task")) == 1  # no thread of ours
        rank, stack = by_signal(folder, process.pid)
        assert (rank.rank, rank.pid, rank.state) == (0, process.pid, "S")
        assert (rank.stage, rank.recorder) == ("starting", "none")
        assert stack.frames == [
            Frame("load_batch", "<string>", 5),
            Frame("<module>", "<string>", 6),
        ]
        again, _ = alone(collect(folder, {0: None}, 8))
        assert (again.rank, again.pid) == (8, process.pid)
        assert process.poll() is None


def test_a_rank_with_torch_answers_by_its_thread(folder: Path) -> None:
    with started(folder, TORCH + SLEEPS) as process:
        rank, stack = alone(collect(folder, {0: process.pid}, 0))
        assert (rank.stage, rank.recorder) == ("groups", "read")
        assert names(stack)[0] == "load_batch"
        assert rank.threads == []
        told = [(g.name, g.words, g.members, g.called, g.ended) for g in rank.groups]
        assert told == [("0", "default_pg", "0-3", 5, 5), ("1", "", "0,2-3", 0, 0)]
        [call] = rank.groups[0].calls
        assert (call.number, call.operation, call.what) == (5, "all_reduce", "float32[1024]")
        assert call.age < 60
        assert rank.called == 1  # each question counts one


def test_the_thread_is_none_that_the_program_knows(folder: Path) -> None:
    code = f"""{TORCH}
import threading, sys
print(threading.active_count(), "worker" in sys.modules, "socket" in sys.modules)
{SLEEPS}"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(folder, 0), stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1 False False\n"
        assert process.stdout.readline() == "ready\n"
        process.kill()


def test_other_threads_are_told(folder: Path) -> None:
    code = f"""{TORCH}
import threading
def wait_for_batch(): threading.Event().wait()
threading.Thread(target=wait_for_batch, daemon=True).start()
{SLEEPS}"""
    with started(folder, code) as process:
        seen = collect(folder, {0: process.pid}, 0)
        rank, stack = alone(seen)
        assert names(stack)[0] == "load_batch"
        assert ["wait_for_batch" in names(seen.stacks[index]) for index in rank.threads] == [True]


def test_who_holds_the_gil_is_silent_and_tells_its_stack_by_the_signal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with started(folder, TORCH + HOLDS_THE_GIL) as process:
        rank, stack = by_signal(folder, process.pid)
        assert (rank.recorder, rank.stage, rank.state) == ("silent", "unknown", "R")
        assert "parse" in names(stack)
        assert rank.cpu > 0
        assert process.poll() is None


def test_who_runs_python_code_is_never_sent_the_signal(folder: Path) -> None:
    """faulthandler would crash it, sooner or later: here within a hundred signals."""
    with ExitStack() as stack:
        plain = stack.enter_context(started(folder, BUSY))
        asked = stack.enter_context(started(folder, TORCH + BUSY, rank=1))
        for _ in range(3):
            one, other = collect(folder, {0: plain.pid, 1: asked.pid}, 0).ranks
            assert (one.stack, one.state) == (None, "R")
            assert (other.recorder, other.stack) == ("read", 0)
        until(lambda: collect(folder, {0: plain.pid}, 0).ranks[0].cpu > 0.01)  # once it has a core
        assert (folder / "0.stacks").read_bytes() == b""
        assert (folder / "1.stacks").read_bytes() == b""


@pytest.mark.parametrize("code", [SLEEPS, TORCH + SLEEPS])
def test_a_stopped_rank_is_left_alone_and_costs_no_time(code: str, folder: Path) -> None:
    with started(folder, code) as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: collect(folder, {0: process.pid}, 0).ranks[0].state == "T")
        began = time.monotonic()
        rank, stack = alone(collect(folder, {0: process.pid}, 0))
        assert time.monotonic() - began < 1
        assert (rank.state, rank.recorder, stack) == ("T", "silent", None)
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: collect(folder, {0: process.pid}, 0).ranks[0].stack is not None)
        assert process.poll() is None


def test_an_unprepared_process_is_never_sent_the_signal(folder: Path) -> None:
    """It would die of it: named by the family, and by a file of its own making."""
    with subprocess.Popen(["sleep", "100"]) as canary:
        assert alone(collect(folder, {0: canary.pid}, 0))[0].recorder == "absent"
        born = Path(f"/proc/{canary.pid}/stat").read_text().split()[21]
        (folder / "0.here").symlink_to(f"{canary.pid} {born} {int(SIGNAL)}")
        rank, _ = alone(collect(folder, {0: canary.pid}, 0))
        assert (rank.recorder, rank.stack, rank.state) == ("none", None, "S")
        assert canary.poll() is None
        canary.kill()


def test_who_has_another_file_under_the_number_is_not_sent_it(folder: Path) -> None:
    """A program that closes all files may have its data where the stacks would be written."""
    code = f"""
import os
os.closerange(3, 2000)
os.dup2(os.open({str(folder / "data")!r}, os.O_RDWR | os.O_CREAT), 1000)
{SLEEPS}"""
    with started(folder, code) as process:
        rank, _ = alone(collect(folder, {0: process.pid}, 0))
        assert rank.stack is None
        assert process.poll() is None
    assert (folder / "data").read_bytes() == b""


def test_a_handler_of_the_program_wins(folder: Path) -> None:
    """One that was there before, and one that comes after the thread has begun to answer."""
    code = f"""
import signal
import socket
signal.signal({int(SIGNAL)}, lambda *_: print("theirs", flush=True))
{TORCH}{SLEEPS}"""
    with started(folder, code) as process:
        rank, stack = alone(collect(folder, {0: process.pid}, 0))
        assert (rank.recorder, names(stack)[0]) == ("read", "load_batch")
        os.kill(process.pid, SIGNAL)
        assert process.stdout is not None
        assert process.stdout.readline() == "theirs\n"


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_what_a_rank_starts_is_not_the_rank(way: str, folder: Path) -> None:
    (folder.parent / "site-packages" / "loader.py").write_text(
        "import time\ndef load():\n    print('loads', flush=True)\n    time.sleep(100)\n"
    )
    code = f"""{TORCH}
import loader, multiprocessing
if __name__ == "__main__":
    child = multiprocessing.get_context({way!r}).Process(target=loader.load, daemon=True)
    child.start()
    {SLEEPS.strip().replace(chr(10), chr(10) + "    ")}
"""
    path = folder.parent / "train.py"
    path.write_text(code)
    with started(folder, f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')") as it:
        before = os.readlink(folder / "0.here")
        until(lambda: len(below(it.pid)) >= 1)
        time.sleep(0.3)
        for _ in range(2):
            rank, stack = alone(collect(folder, {0: None}, 0))
            assert (rank.pid, rank.recorder) == (it.pid, "read")
            assert names(stack)[0] == "load_batch"
        assert os.readlink(folder / "0.here") == before


@pytest.mark.parametrize(
    ("way", "torch"),
    [("fork", ""), ("spawn", TORCH), at_night("fork", TORCH), at_night("subprocess", "")],
)
def test_what_a_rank_has_started_is_told_with_its_stack(way: str, torch: str, folder: Path) -> None:
    (folder.parent / "site-packages" / "loader.py").write_text(
        "import time\ndef load():\n    print('loads', flush=True)\n    time.sleep(100)\n"
    )
    start = {
        "subprocess": "subprocess.run([sys.executable, '-c', 'import loader; loader.load()'])"
    }.get(way, f"multiprocessing.get_context({way!r}).Process(target=loader.load).start()")
    path = folder.parent / "train.py"
    path.write_text(f"""{torch}
import loader, multiprocessing, subprocess, sys
if __name__ == "__main__":
    {start}
""")
    env = environment(folder, 0)
    with ExitStack() as stack:
        it = subprocess.Popen([sys.executable, str(path)], env=env, stdout=subprocess.PIPE)
        stack.enter_context(it)
        stack.callback(it.kill)
        assert it.stdout is not None
        assert it.stdout.readline() == b"loads\n"
        for pid in below(it.pid):
            stack.callback(os.kill, pid, signal.SIGKILL)

        def child() -> tuple[Seen, ProcessLook] | None:
            seen = collect(folder, {0: it.pid}, 0)
            found = [one for one in seen.ranks[0].children if one.stack is not None]
            return (seen, found[0]) if found else None

        seen, one = until(child, 30)
        assert names(seen.stacks[one.stack])[0] == "load"
        assert (one.state, one.pid in below(it.pid)) == ("S", True)
        assert [other.pid for other in seen.ranks[0].children] == [one.pid]  # and no helper
        assert seen.ranks[0].children_bytes_total > 0
        assert process_state(one.pid) == "S"


def test_two_children_write_into_one_file_by_turns(folder: Path) -> None:
    code = f"""
import os, time
def first(): time.sleep(100)
def second(): time.sleep(100)
for work in (first, second):
    if os.fork() == 0:
        work()
{SLEEPS}"""
    with started(folder, code) as process:

        def both() -> list[str] | None:
            seen = collect(folder, {0: process.pid}, 0)
            told = [one.stack for one in seen.ranks[0].children if one.stack is not None]
            return [names(seen.stacks[index])[0] for index in told] if len(told) == 2 else None

        assert until(both, 30) == ["first", "second"]
        for pid in below(process.pid):
            os.kill(pid, signal.SIGKILL)


def test_a_launcher_without_ranks_tells_where_it_is(folder: Path) -> None:
    with started(folder, SLEEPS, rank=None) as process:

        def found() -> Seen | None:
            seen = collect(folder, {0: None, 1: None}, 4, process.pid)
            assert seen.launcher is not None
            return seen if seen.launcher.stack is not None else None

        seen = until(found, 30)
        assert seen.unstarted == [4, 5]
        assert names(seen.stacks[seen.launcher.stack])[0] == "load_batch"
        assert (seen.launcher.pid, seen.launcher.bytes_total > 0) == (process.pid, True)
        assert len(work(folder, {0: None, 1: None}, process.pid)) == 3


def test_a_launcher_is_not_taken_for_its_only_rank(folder: Path) -> None:
    """A torchrun that waits for another one has no child yet, and is no rank itself."""
    with started(folder, SLEEPS, rank=None) as process:
        seen = collect(folder, {0: process.pid}, 3, process.pid)
        assert (alone(seen)[0].pid, seen.unstarted) == (0, [3])
    with started(folder, SLEEPS) as process:
        seen = collect(folder, {0: process.pid}, 3, process.pid)
        assert (alone(seen)[0].pid, seen.unstarted) == (process.pid, [])


def test_a_launcher_matters_only_where_a_rank_is_not_known(folder: Path) -> None:
    with ExitStack() as stack:
        rank = stack.enter_context(started(folder, SLEEPS))
        other = stack.enter_context(started(folder, SLEEPS, rank=None))
        seen = collect(folder, {0: rank.pid}, 0, other.pid)
        assert (seen.launcher, seen.unstarted) == (None, [])
        assert work(folder, {0: rank.pid}, other.pid)[-1] == (0.0, 0)


def test_what_may_be_a_rank_is_not_said_to_be_missing(folder: Path) -> None:
    """A program that is not Python's, which a launcher has started with a rank's number."""
    command = ["sh", "-c", "LOCAL_RANK=0 sleep 100; true"]
    with subprocess.Popen(command, env=environment(folder, None)) as shell:
        until(lambda: below(shell.pid))
        seen = collect(folder, {0: None}, 0, shell.pid)
        assert (seen.launcher is not None, seen.unstarted) == (True, [])
        os.kill(below(shell.pid)[0], signal.SIGKILL)


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def below(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_a_rank_below_a_shell_is_found(folder: Path) -> None:
    (folder.parent / "rank.py").write_text(TORCH + SLEEPS)
    command = f"{sys.executable} {folder.parent / 'rank.py'}; true"
    with subprocess.Popen(
        ["sh", "-c", command], env=environment(folder, 0), stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        rank, stack = alone(collect(folder, {0: shell.pid}, 0))
        assert (rank.pid, names(stack)[0]) == (below(shell.pid)[0], "load_batch")
        with subprocess.Popen(["sleep", "9"]) as other:
            assert alone(collect(folder, {0: other.pid}, 0))[0].recorder == "absent"
            other.kill()
        os.kill(rank.pid, signal.SIGKILL)


@pytest.mark.parametrize("code", [SLEEPS, TORCH + SLEEPS])
def test_a_rank_that_is_started_again_takes_its_place(code: str, folder: Path) -> None:
    with started(folder, code) as first:
        pass
    with started(folder, code) as second:
        assert first.pid != second.pid
        rank, stack = by_signal(folder, second.pid)
        assert (rank.pid, names(stack)[0]) == (second.pid, "load_batch")
        with started(folder, code) as third:  # a helper: the second one lives
            assert alone(collect(folder, {0: None}, 0))[0].pid == second.pid
            assert alone(collect(folder, {0: third.pid}, 0))[0].recorder == "absent"


def test_a_rank_that_becomes_another_program_still_is_it(folder: Path) -> None:
    (folder.parent / "rank.py").write_text(TORCH + SLEEPS)
    path = str(folder.parent / "rank.py")
    code = f"{TORCH}import os, sys; os.execv(sys.executable, [sys.executable, {path!r}])"
    with started(folder, code) as process:
        rank, stack = alone(collect(folder, {0: process.pid}, 0))
        assert (rank.recorder, names(stack)[0]) == ("read", "load_batch")


def test_a_rank_that_was_forked_from_a_warm_process_answers(folder: Path) -> None:
    """The process has torch already, and is no rank itself."""
    code = f"""
import importlib.util, os, sys
{TORCH}
path = {str(Path("worker/look/site/sitecustomize.py").resolve())!r}
spec = importlib.util.spec_from_file_location("hook", path)
hook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hook)
if os.fork() == 0:
    os.environ["LOCAL_RANK"] = "0"
    hook.install()
    {SLEEPS.strip().replace(chr(10), chr(10) + "    ")}
os.wait()
"""
    with started(folder, code, rank=None) as process:
        rank, stack = alone(collect(folder, {0: None}, 0))
        assert (rank.pid, rank.recorder) == (below(process.pid)[0], "read")
        assert names(stack)[0] == "load_batch"
        os.kill(rank.pid, signal.SIGKILL)


def test_nothing_is_left_where_it_is_off(folder: Path) -> None:
    """A process that is no rank may be a launcher, and has a file for its stack alone."""
    with started(folder, TORCH + SLEEPS, rank=None) as process:
        assert {path.name for path in folder.iterdir()} == {"streams", "launcher.stacks"}
        assert len(os.listdir(f"/proc/{process.pid}/task")) == 1


def test_who_is_gone_or_not_known_is_told_so(folder: Path) -> None:
    with started(folder, SLEEPS) as process:
        pass
    seen = collect(folder, {0: process.pid, 1: None, 2: 1 << 30}, 4)
    assert [(r.rank, r.state, r.recorder) for r in seen.ranks] == [
        (4, "", "absent"),
        (5, "", "absent"),
        (6, "", "absent"),
    ]
    nowhere = collect(folder / "nowhere", {0: os.getpid()}, 0)
    assert nowhere.ranks[0].state


def test_no_more_ranks_than_a_report_holds(tmp_path: Path) -> None:
    seen = collect(tmp_path, dict.fromkeys(range(70)), 0)
    assert (len(seen.ranks), seen.left_out) == (64, 6)


def test_a_sample_is_cheap_and_says_how_far_a_rank_is(folder: Path) -> None:
    with ExitStack() as stack:
        asked = stack.enter_context(started(folder, TORCH + SLEEPS))
        plain = stack.enter_context(started(folder, SLEEPS, rank=1))
        ranks = {0: asked.pid, 1: plain.pid, 2: None}
        until(lambda: process_state(plain.pid) == "S")
        found = sample(folder, ranks)
        assert found == {0: (5, 4), 1: (-1, -1), 2: (-1, -1)}
        assert sample(folder, ranks)[0].called == 6


def test_a_path_that_is_too_long_for_a_socket_is_no_hindrance(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 120)
    deep.mkdir()
    folder = folder_in(deep)
    with started(folder, TORCH + SLEEPS) as process:
        assert alone(collect(folder, {0: process.pid}, 0))[0].recorder == "read"


@pytest.mark.parametrize(
    "code",
    [
        f"{TORCH}print(1)",
        f"{TORCH}import os; os._exit(3)",
        f"{TORCH}raise SystemExit(4)",
        f"{TORCH}1 / 0",
        f"{TORCH}import os; print(*(os.open('/dev/null', os.O_RDONLY) for _ in range(3)))",
        f"{TORCH}import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); print(2)",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(3)'])",
        "import os, sys\nif os.fork() == 0:\n    print(5, flush=True)\nelse:\n    os.wait()",
    ],
)
def test_a_program_says_the_same_with_the_hook_and_without(code: str, folder: Path) -> None:
    flags = ["-X", "dev", "-W", "error"]
    ends = []
    for rank in (0, None):
        env = environment(folder, rank)
        done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, env=env)
        ends.append((done.returncode, done.stdout, done.stderr))
    assert ends[0] == ends[1]


def test_a_look_that_nobody_waits_for_does_no_harm(folder: Path) -> None:
    """The socket is closed before the answer; SIGPIPE would end this program."""
    code = f"import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n{TORCH}{SLEEPS}"
    with started(folder, code) as process:
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(folder / "0.socket"))
                client.send(b"entries\n")
        assert alone(collect(folder, {0: process.pid}, 0))[0].recorder == "read"


def test_a_rank_may_end_while_it_answers(folder: Path) -> None:
    code = f"{TORCH}import time\nend = time.time() + 0.1\nwhile time.time() < end: pass"
    over, answered = threading.Event(), 0

    def ask_on() -> None:
        nonlocal answered
        while not over.is_set():
            answered += len(ask(folder, [0], b"entries", 0.1).answers)

    asking = threading.Thread(target=ask_on)
    asking.start()
    try:
        for _ in range(5):
            flags, env = ["-X", "dev"], environment(folder, 0)
            done = subprocess.run(
                [sys.executable, *flags, "-c", code], capture_output=True, env=env
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    finally:
        over.set()
        asking.join()
    assert answered


def test_an_answer_that_is_none_is_no_recorder(folder: Path) -> None:
    """Of what listens there, and of a recorder that fails."""
    broken = folder.parent / "site-packages/torch/_C/_distributed_c10d.py"
    for text in ("", "_dump_fr_trace_json = 1", "def _dump_fr_trace_json(*_): return b'{'"):
        broken.write_text(text)
        with started(folder, TORCH + SLEEPS) as process:
            rank, stack = alone(collect(folder, {0: process.pid}, 0))
            assert (rank.recorder, rank.stage, rank.groups) == ("none", "groups", [])
            assert names(stack)[0] == "load_batch"
            (folder / "0.socket").unlink()
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(folder / "0.socket"))
                other.listen()
                other.settimeout(1)
                answering = threading.Thread(target=say_nonsense, args=[other])
                answering.start()
                rank, _ = alone(collect(folder, {0: process.pid}, 0))
                answering.join()
            assert (rank.recorder, rank.stage) == ("silent", "unknown")


def test_a_recorder_of_too_many_entries_still_tells_how_far_it_is(folder: Path) -> None:
    fake = folder.parent / "site-packages/torch/_C/_distributed_c10d.py"
    more = "    if entries:\n        found['entries'] *= 9_000\n    return"
    fake.write_text(fake.read_text().replace("    return", more))
    code = f"{TORCH}del torch.distributed.distributed_c10d._world.pg_names['other']\n{SLEEPS}"
    with started(folder, code) as process:
        rank, stack = alone(collect(folder, {0: process.pid}, 0))
        assert (rank.recorder, names(stack)[0]) == ("read", "load_batch")
        told = [(g.name, g.members, g.called, g.ended, g.calls) for g in rank.groups]
        assert told == [("0", "0-3", 7, 4, [])]


def say_nonsense(listener: socket.socket) -> None:
    with suppress(TimeoutError):
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(b"\xff" * 99)
