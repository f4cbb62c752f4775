"""A program under an agent: how it ends, whatever ends first, and which of its children failed."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rendezvous.compat import timeout
from rendezvous.wire.errors import RunError, UsageError
from tests.support.waiting import soon
from worker.program import failure, family, keeper
from worker.program import output as output_module
from worker.program import process as process_module
from worker.program.ending import Ending, LeftBehind
from worker.program.family import Child, Family, Ranks, certain_failure, failed_rank
from worker.program.output import Output, OutputSink, Stream
from worker.program.process import Program, end_descendants, reap_orphans

pytestmark = pytest.mark.real_time

PYTHON = [sys.executable, "-I", "-S", "-c"]
FROM_ELSEWHERE = "the SIGKILL came from elsewhere"
AGENT = Path(__file__).with_name("programs") / "agent.py"
TWO_THAT_IGNORE_TERM = """
import subprocess, sys
child = "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN);"
child += "print('pid', os.getpid(), flush=True); time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", child]) for _ in range(2)]
for child in children:
    child.wait()
"""


ONE_THAT_STARTS_ANOTHER_ON_TERM = """
import os, signal, subprocess, time
def told(*_):
    os.write(1, b"pid %d\\n" % subprocess.Popen(["sleep", "300"]).pid)
    os._exit(0)
signal.signal(signal.SIGTERM, told)
os.write(1, b"ready\\n")  # the signal may come before a print returns, which is not entered twice
time.sleep(300)
"""


class Recording:
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, bytes]] = []

    def write(self, stream: Stream, data: bytes) -> None:
        self.pieces.append((stream, data))

    def idle(self) -> None:
        pass

    def of(self, stream: Stream) -> bytes:
        return b"".join(data for name, data in self.pieces if name == stream)

    def pids(self) -> list[int]:
        lines = self.of("stdout").split(b"\n")[:-1]
        return [int(line.split()[1]) for line in lines if line.startswith(b"pid ")]


def is_dead(pid: int) -> bool:
    """Gone, or a zombie that its new parent, which is not ours, has still to reap."""
    found = keeper.read_process(pid)
    return found is None or found.state == "Z"


def is_stopped(pid: int) -> bool:
    found = keeper.read_process(pid)
    return found is not None and found.state == "T"


def is_gone(pid: int) -> bool:
    return keeper.read_process(pid) is None


def until_there(path: Path, then: str) -> str:
    """A line for a shell, which does nothing until there is such a file."""
    return f"until [ -e {path} ]; do sleep 0.02; done; {then}"


Start = Callable[..., Awaitable[Program]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts programs, and ends what a failed test leaves of them."""
    programs: list[Program] = []

    async def run(
        *argv: str, grace: float = 5.0, output: Output | None = None, **environment: str
    ) -> Program:
        env = {**os.environ, **environment}
        output = output or Recording()
        programs.append(await Program.start(argv, env, grace_seconds=grace, output=output))
        return programs[-1]

    yield run
    for program in programs:
        program.kill_now()
        await program.wait()


def outcome(ending: Ending) -> tuple[int, str]:
    return ending.exit_code, ending.reason


@pytest.mark.parametrize("code", [0, 7])
async def test_an_ending_tells_the_exit_code_of_the_program(start: Start, code: int) -> None:
    program = await start("sh", "-c", f"exit {code}")
    assert outcome(await program.wait()) == (code, f"the program ended with exit code {code}")


async def test_a_crash_is_128_and_the_signal(start: Start) -> None:
    program = await start("sh", "-c", "kill -SEGV $$")
    assert outcome(await program.wait()) == (139, "the program ended with exit code 139 (SIGSEGV)")


async def test_a_kill_from_elsewhere_may_be_the_kernel(start: Start) -> None:
    program = await start("sh", "-c", "kill -KILL $$")
    assert outcome(await program.wait()) == (
        137,
        "the program ended with exit code 137 (SIGKILL); " + FROM_ELSEWHERE,
    )


async def test_a_program_that_does_not_exist_ends_with_127_and_says_why(start: Start) -> None:
    output = Recording()
    program = await start("torchrum", output=output)
    assert outcome(await program.wait()) == (127, "the program ended with exit code 127")
    assert (
        output.of("stderr") == b"rdzv: cannot start 'torchrum': not found in any folder of PATH\n"
    )


async def test_a_working_directory_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    with pytest.raises(UsageError) as caught:
        await Program.start(["true"], {}, cwd=folder, grace_seconds=1, output=Recording())
    assert caught.value.message == f"'true' cannot start in '{folder}': there is no such folder"


async def test_arguments_that_are_too_long_are_an_error_with_a_hint(start: Start) -> None:
    with pytest.raises(RunError) as caught:
        await start("true", "x" * 3_000_000)
    assert caught.value.message == "'true' cannot be started: Argument list too long"
    assert caught.value.hint.startswith("Its arguments and environment are too long")


async def test_the_program_runs_in_its_folder_with_its_environment(tmp_path: Path) -> None:
    output = Recording()
    environment = {"PATH": os.environ["PATH"], "NAME": "a value"}
    program = await Program.start(
        ["sh", "-c", "pwd; env"], environment, cwd=tmp_path, grace_seconds=1, output=output
    )
    await program.wait()
    assert set(output.of("stdout").decode().splitlines()) == {
        str(tmp_path),
        f"PWD={tmp_path}",
        f"PATH={os.environ['PATH']}",
        "NAME=a value",
    }


async def test_output_arrives_unchanged_while_the_program_runs(start: Start) -> None:
    output = Recording()
    program = await start(
        "sh", "-c", r"printf 'a\000\377\r'; printf x >&2; exec sleep 60", output=output
    )
    await soon(lambda: len(output.pieces) == 2)
    assert (output.of("stdout"), output.of("stderr")) == (b"a\x00\xff\r", b"x")
    await program.stop()


async def test_the_input_of_the_program_is_empty(start: Start) -> None:
    output = Recording()
    program = await start("cat", output=output)
    assert (await program.wait()).exit_code == 0
    assert output.pieces == []


async def test_much_output_arrives_whole(start: Start) -> None:
    output = Recording()
    program = await start("sh", "-c", "seq 200000; seq 100000 >&2", output=output)
    await program.wait()
    assert output.of("stdout") == b"".join(b"%d\n" % n for n in range(1, 200_001))
    assert output.of("stderr") == b"".join(b"%d\n" % n for n in range(1, 100_001))


async def test_an_unfinished_last_line_is_passed_on_behind_its_prefix(
    start: Start, tmp_path: Path
) -> None:
    with (tmp_path / "stdout").open("wb") as ours:
        output = OutputSink(prefix="[3] ", stdout=ours.fileno())
        await (await start("printf", "one\\ntwo", output=output)).wait()
    assert (tmp_path / "stdout").read_bytes() == b"[3] one\n[3] two"


async def test_a_process_elsewhere_that_holds_the_output_open_does_not_hold_us_up(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    output = Recording()
    program = await start("sh", "-c", "echo hello; exec sleep 60", output=output)
    await soon(lambda: output.of("stdout") == b"hello\n")
    with open(f"/proc/{program.main_pid}/fd/1", "wb"):
        begun = time.monotonic()
        await program.stop()
    assert 1.0 <= time.monotonic() - begun < 20.0
    assert caplog.records == []  # it is not for our own output that it waited


async def test_an_output_that_raises_does_not_stop_the_program(
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Recording):
        def write(self, stream: Stream, data: bytes) -> None:
            raise ValueError("broken")

    program = await start("seq", "100000", output=Broken())
    assert (await program.wait()).exit_code == 0
    assert {record.message for record in caplog.records} == {
        "a piece of the program's output was lost"
    }


async def test_a_signal_reaches_the_program_even_before_it_runs(start: Start) -> None:
    program = await start("sleep", "60")
    assert program.main_pid is None
    program.signal(signal.SIGUSR1)
    assert (await program.wait()).exit_code == 128 + signal.SIGUSR1


async def test_a_signal_that_would_hit_the_keeper_is_refused(start: Start) -> None:
    program = await start("sleep", "60")
    with pytest.raises(ValueError, match="signal 9 is not one that is passed on"):
        program.signal(signal.SIGKILL)
    assert outcome(await program.stop()) == (143, "the program ended with exit code 143 (SIGTERM)")


async def test_a_ctrl_c_at_our_terminal_is_ours_alone_to_pass_on(start: Start) -> None:
    """Agent, keeper and program have a session each."""
    program = await start("sleep", "60")
    await soon(lambda: program.main_pid is not None)
    pids = (0, program.pid, program.main_pid or 0)
    await soon(lambda: len({os.getsid(pid) for pid in pids}) == 3)


async def test_stop_ends_workers_in_sessions_of_their_own_that_ignore_sigterm(start: Start) -> None:
    output = Recording()
    program = await start(*PYTHON, TWO_THAT_IGNORE_TERM, grace=0.5, output=output)
    await soon(lambda: len(output.pids()) == 2)
    begun = time.monotonic()
    ending = await program.stop()
    assert 0.5 <= time.monotonic() - begun < 20
    assert (ending.exit_code, ending.first_failure) == (143, None)
    assert [is_gone(pid) for pid in output.pids()] == [True, True]


async def test_a_child_born_while_its_parent_is_told_to_stop_is_told_so_too(start: Start) -> None:
    output = Recording()
    program = await start(*PYTHON, ONE_THAT_STARTS_ANOTHER_ON_TERM, grace=50, output=output)
    await soon(lambda: b"ready" in output.of("stdout"))
    await asyncio.wait_for(program.stop(), 20)
    assert [is_gone(pid) for pid in output.pids()] == [True]


async def test_kill_now_cuts_the_grace_of_a_stop_short(start: Start) -> None:
    output = Recording()
    program = await start(*PYTHON, TWO_THAT_IGNORE_TERM, grace=30, output=output)
    await soon(lambda: len(output.pids()) == 2)
    stopping = asyncio.create_task(program.stop())
    await soon(lambda: is_gone(program.main_pid or 0))
    program.kill_now()
    ending = await asyncio.wait_for(stopping, 20)
    assert ending.exit_code == 143
    assert [is_gone(pid) for pid in output.pids()] == [True, True]


async def test_a_keeper_that_somebody_stopped_still_stops_its_program(start: Start) -> None:
    program = await start("sleep", "60")
    await soon(lambda: program.main_pid is not None)
    os.kill(program.pid, signal.SIGSTOP)
    await soon(lambda: is_stopped(program.pid))
    ending = await asyncio.wait_for(program.stop(), 30)
    assert (ending.exit_code, is_gone(program.main_pid or 0)) == (143, True)


async def test_a_keeper_that_does_not_answer_is_done_without(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_STUCK_SECONDS", 0.1)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True);"
    output = Recording()
    program = await start(*PYTHON, code + "time.sleep(60)", grace=0.3, output=output)
    await soon(lambda: output.of("stdout") == b"ready\n")
    with monkeypatch.context() as patch:
        # Stopped as soon as it is told: its grace is short.
        patch.setattr(keeper, "read_process", lambda _: os.kill(program.pid, signal.SIGSTOP))
        stopping = asyncio.create_task(program.stop())
        await asyncio.sleep(0)
    assert outcome(await asyncio.wait_for(stopping, 30)) == (
        137,
        "the program's keeper was killed by SIGKILL and what was left of the program was ended",
    )
    await soon(lambda: is_dead(program.main_pid or 0))


async def test_our_own_output_being_stuck_holds_up_the_program_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(output_module, "STUCK_SECONDS", 0.1)
    reader, writer = os.pipe()
    output = OutputSink(stdout=writer)
    program = await start("yes", output=output)
    await soon(lambda: not select.select([], [writer], [], 0)[1])  # our pipe is full
    ending = await asyncio.wait_for(program.stop(), 30)
    os.close(reader)
    assert ending.exit_code == 143
    assert [record.message for record in caplog.records] == [
        "our own output is stuck; the program's last lines may be missing"
    ]
    await soon(lambda: "output" not in {thread.name for thread in threading.enumerate()})
    os.close(writer)


async def test_what_came_while_our_own_output_was_slow_is_not_lost(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(output_module, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(output_module, "STUCK_SECONDS", 30.0)
    begun, fast = threading.Event(), threading.Event()

    class Slow(Recording):
        def write(self, stream: Stream, data: bytes) -> None:
            begun.set()
            fast.wait(30)
            super().write(stream, data)

    output = Slow()
    rest = "seq 2000; seq 3000 >&2; printf last"
    program = await start("sh", "-c", f"echo; {until_there(tmp_path / 'go', rest)}", output=output)
    await soon(begun.is_set)
    (tmp_path / "go").touch()
    await soon(lambda: program._process.returncode is not None)
    ending = asyncio.create_task(program.wait())
    await soon(lambda: program._pump is not None and program._pump._deadline < time.monotonic())
    fast.set()
    assert (await ending).exit_code == 0
    assert output.of("stdout") == b"\n" + b"".join(b"%d\n" % n for n in range(1, 2001)) + b"last"
    assert output.of("stderr") == b"".join(b"%d\n" % n for n in range(1, 3001))


async def test_a_cancelled_wait_leaves_the_program_running(start: Start, tmp_path: Path) -> None:
    program = await start("sh", "-c", until_there(tmp_path / "end", "exit 4"))
    with pytest.raises(TimeoutError):
        async with timeout(0.05):
            await program.wait()
    (tmp_path / "end").touch()
    assert (await program.wait()).exit_code == 4


async def test_no_file_or_thread_is_left_after_a_program(start: Start) -> None:
    await (await start("true")).wait()
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await (await start("sh", "-c", "sleep 0.15 & wait; exit 3")).wait()
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_what_a_program_left_running_is_in_its_ending(start: Start) -> None:
    ending = await (await start("sh", "-c", "sleep 60 & exit 0")).wait()
    assert ending.exit_code == 0
    assert ending.left is not None
    ((pid, age, command),) = ending.left.named
    assert (ending.left.count, command, is_gone(pid)) == (1, "sleep", True)
    assert 0 <= age < 60


@pytest.mark.parametrize("script", ["sleep 60 & exit 3", "exit 0", "sleep 0.1 & exit 0"])
async def test_a_program_that_failed_or_left_nothing_has_no_such_news(
    start: Start, script: str
) -> None:
    assert (await (await start("sh", "-c", script)).wait()).left is None


async def test_a_program_that_is_stopped_has_left_nothing(start: Start) -> None:
    program = await start("sh", "-c", "trap 'exit 0' TERM; sleep 60 & wait")
    await soon(lambda: len(keeper.descendants(program.pid)) == 2)
    assert (await program.stop()).left is None


def test_what_was_left_is_told_in_one_sentence() -> None:
    first = LeftBehind(3, ((71, 12, "python train.py"), (72, 0, "sleep")))
    assert first.words() == (
        "the program ended with exit code 0 and left 3 of its processes running, which are now "
        "ended: pid 71 (python train.py, 12 s old), pid 72 (sleep, 0 s old), and 1 more"
    )


# Which of the children failed first


FOR_EVER = "exec sleep 60"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Files by which programs and their workers are told to end."""
    return Files(tmp_path)


class Files:
    """Names of files that are not there yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def end(self) -> Path:
        """Of the program itself."""
        return self._folder / "end"

    def worker(self, number: int, then: str) -> str:
        """A worker that does so once it is told."""
        return until_there(self._folder / str(number), then)

    def tell(self, number: int) -> None:
        """The worker of this number."""
        (self._folder / str(number)).touch()


def torchrun_like(
    *workers: str,
    end: Path = Path("/dev/null/never"),
    code: int = 1,
    names: str = "RANK LOCAL_RANK",
    first: str = "",
    reaps: int = 0,
) -> list[str]:
    """A parent that starts workers, each with a RANK, reaps them late, and fails when told to."""
    script = f"import os, subprocess, sys, time\nkept = [{first}]\n"  # Popen reaps the forgotten
    script += "for n, w in enumerate(sys.argv[1:]):\n"
    script += "  ranks = {'RANK': str(4 + n), 'LOCAL_RANK': str(n)}\n"
    script += "  ranks['LOCAL_WORLD_SIZE'] = str(len(sys.argv) - 1)\n"
    script += f"  env = {{**os.environ, **{{k: ranks[k] for k in '{names}'.split()}}}}\n"
    script += "  kept += [subprocess.Popen(['sh', '-c', w], env=env, start_new_session=True)]\n"
    script += f"for _ in range({reaps}):\n  os.wait()\n"
    script += f"while not os.path.exists({str(end)!r}):\n  time.sleep(0.01)\n"
    script += f"os._exit({code})\n"
    return [*PYTHON, script, *workers]


def watched(program: Program) -> list[Child]:
    """The children that are watched and live."""
    return [child for child in program.family.children if child.ended_at is None]


async def known(program: Program, workers: int) -> None:
    """Wait until the ranks of so many are known: of a dead one they cannot be read."""
    await soon(lambda: sum(child.ranks is not None for child in watched(program)) == workers)


async def failed(program: Program, children: int) -> None:
    """Wait until so many have been seen to fail."""
    await soon(lambda: sum(bool(c.exit_code) for c in program.family.children) == children)


async def test_the_first_failure_names_the_rank_and_its_age(start: Start, files: Files) -> None:
    workers = (FOR_EVER, files.worker(1, "exit 7"))
    program = await start(*torchrun_like(*workers, end=files.end), RANK="9")
    await known(program, 2)
    begun = time.monotonic()
    files.tell(1)
    await soon(lambda: failed_rank(program.family) is not None)
    seen = time.monotonic()
    await asyncio.sleep(0.3)
    files.end.touch()
    ending = await program.wait()
    first = ending.first_failure
    assert first is not None
    cause = f"process {first.pid} (rank 5) ended first with exit code 7"
    assert (first.exit_code, first.worker_rank, first.local_rank) == (7, 5, 1)
    assert begun <= first.ended_at <= seen
    ages = (time.monotonic() - first.ended_at, time.monotonic() - ending.began_to_fail_at)
    assert 0.3 < ages[0] <= ages[1]
    assert outcome(ending) == (
        1,
        f"{cause}, then the program ended with exit code 1",
    )


async def test_failures_are_told_while_the_program_waits_for_its_other_workers(
    start: Start, files: Files
) -> None:
    workers = (FOR_EVER, files.worker(1, "kill -KILL $$"), files.worker(2, "exit 1"))
    program = await start(*torchrun_like(*workers))
    seen: list[Family] = []
    program.changed = lambda: seen.append(program.family)
    certain = partial(certain_failure, ends_all=True)
    await known(program, 3)
    files.tell(1)
    await soon(lambda: bool(seen))
    failed = failed_rank(seen[0])
    assert failed is not None
    assert (certain(seen[0]), failed.exit_code, failed.worker_rank) == (None, 137, 5)
    files.tell(2)
    await soon(lambda: certain(seen[-1]) is not None)
    assert certain(seen[-1]) == failed
    assert program.main_ended is None
    await program.stop()


async def test_the_end_of_the_main_process_is_told_before_what_it_started_has_ended(
    start: Start,
) -> None:
    program = await start("sh", "-c", "(trap '' TERM; sleep 60) & exit 3", grace=3.0)
    told = asyncio.Event()
    program.changed = told.set
    await asyncio.wait_for(told.wait(), 30)
    assert program.main_ended is not None
    assert program.main_ended[0] == 3
    ending = asyncio.ensure_future(program.wait())
    await asyncio.sleep(0)
    assert not ending.done()
    program.kill_now()
    assert (await ending).exit_code == 3


@pytest.mark.parametrize(("size", "rank"), [(" LOCAL_WORLD_SIZE", 5), ("", None)])
async def test_a_worker_that_failed_before_its_ranks_were_read_is_named_after_the_end(
    start: Start, files: Files, monkeypatch: pytest.MonkeyPatch, size: str, rank: int | None
) -> None:
    """By whom its siblings lack; where they do not tell how many they are, it has no rank."""
    read = failure._ranks

    def too_late_for_one(pid: int) -> Ranks | None:
        found = read(pid)
        return None if found is None or found.rank == 5 else found

    monkeypatch.setattr(failure, "_ranks", too_late_for_one)
    monkeypatch.setattr(family, "_TOGETHER_SECONDS", 20.0)  # a busy machine starts them slowly
    workers = (FOR_EVER, files.worker(1, "exit 3"), FOR_EVER)
    names = f"RANK LOCAL_RANK{size}"
    program = await start(*torchrun_like(*workers, names=names, end=files.end))
    await known(program, 2)
    files.tell(1)
    await failed(program, 1)
    assert failed_rank(program.family) is None
    files.end.touch()
    first = (await program.wait()).first_failure
    assert first is not None
    assert (first.exit_code, first.worker_rank) == (3, rank)


async def test_a_program_that_is_stopped_blames_no_child_without_ranks(
    start: Start, files: Files
) -> None:
    program = await start(*torchrun_like("exit 6", names="RANK"))
    await failed(program, 1)
    assert failed_rank(program.family) is None
    assert (await program.stop()).first_failure is None


async def test_a_helper_that_failed_long_before_does_not_make_a_failure_older(
    start: Start, files: Files
) -> None:
    program = await start(*torchrun_like("exit 6", names="RANK", end=files.end))
    await failed(program, 1)
    await asyncio.sleep(0.3)
    begun = time.monotonic()
    files.end.touch()
    ending = await program.wait()
    assert (ending.failed_rank, ending.exit_code) == (None, 1)
    assert time.monotonic() - ending.began_to_fail_at <= time.monotonic() - begun


NOISY_LAUNCHER = """
import os, pathlib, subprocess, sys, time
def start(words, own):
    return subprocess.Popen(["sh", "-c", words], env={**os.environ, **own})
ranks, helpers = [], []
for n, words in enumerate(sys.argv[2:]):
    own = {"RANK": str(4 + n), "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": str(len(sys.argv) - 2)}
    ranks.append(start(words, own))
    helpers.append(start("sleep 0.1 & echo mismatch; sleep 0.1; exit 18", {}))
for words, own in [
    ("exit 1", {}),
    ("kill -KILL $$", {}),
    ("(sleep 0.2; exit 4) & exit 0", {}),
    ("sleep 0.1; exit 2", {"LOCAL_RANK": "1"}),
    ("sleep 0.1; exit 3", {"RANK": "4"}),
]:
    helpers.append(start(words, own))
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.2)
    os._exit(5)
try:
    subprocess.run(["no-such-helper"])
except FileNotFoundError:
    pass
while not os.path.exists(sys.argv[1]):  # until then nobody reaps the helpers
    time.sleep(0.02)
for helper in helpers:
    helper.wait()
sys.exit(max(rank.wait() for rank in ranks))
"""


async def test_helpers_that_fail_are_never_taken_for_ranks(
    start: Start, files: Files, tmp_path: Path
) -> None:
    """Beside real ranks, below a launcher that was itself given ranks."""
    workers = (files.worker(0, "exit 0"), files.worker(1, "exit 0"))
    argv = [*PYTHON, NOISY_LAUNCHER, str(tmp_path / "reap"), *workers]
    program = await start(*argv, RANK="9", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")

    def codes() -> set[int]:
        return {child.exit_code for child in program.family.children if child.exit_code}

    await soon(lambda: {1, 2, 3, 5, 18, 137} <= codes())
    seen = program.family
    assert certain_failure(seen, ends_all=True) is None
    # Two of them may have been seen with ranks that they gave themselves: a warning, and no end.
    warned = failed_rank(seen)
    assert warned is None or warned.exit_code in (2, 3)
    for number in range(2):
        files.tell(number)
    (tmp_path / "reap").touch()
    ending = await program.wait()
    assert certain_failure(program.family, ends_all=True) is None
    assert ending.exit_code == 0


async def test_a_worker_killed_from_elsewhere_is_the_first_failure(
    start: Start, files: Files
) -> None:
    workers = (files.worker(0, "kill -KILL $$"), files.worker(1, "exit 3"))
    program = await start(*torchrun_like(*workers, end=files.end))
    await known(program, 2)
    for number in range(2):
        files.tell(number)
        await failed(program, number + 1)
    files.end.touch()
    first = (await program.wait()).first_failure
    assert first is not None
    assert (first.exit_code, first.worker_rank) == (137, 4)


async def test_a_child_without_ranks_is_a_failure_without_a_rank(
    start: Start, files: Files
) -> None:
    program = await start(*torchrun_like("exit 6", end=files.end, names="RANK"))
    await failed(program, 1)
    files.end.touch()
    first = (await program.wait()).first_failure
    assert first is not None
    assert (first.exit_code, first.worker_rank, first.local_rank) == (6, None, None)


async def test_a_failed_worker_is_the_cause_though_a_helper_had_failed_before(
    start: Start, files: Files
) -> None:
    helper = "subprocess.Popen(['sh', '-c', 'exit 9'])"
    program = await start(*torchrun_like(files.worker(0, "exit 7"), end=files.end, first=helper))
    await failed(program, 1)
    await known(program, 1)
    files.tell(0)
    await failed(program, 2)
    files.end.touch()
    first = (await program.wait()).first_failure
    assert first is not None
    assert (first.exit_code, first.worker_rank) == (7, 4)


async def test_nobody_is_blamed_when_a_worker_had_ended_unseen_before(
    start: Start, files: Files
) -> None:
    workers = (files.worker(0, "exit 7"), files.worker(1, "exit 3"))
    program = await start(*torchrun_like(*workers, end=files.end, reaps=1))
    await known(program, 2)
    (gone,) = (child for child in watched(program) if child.ranks and child.ranks.rank == 4)
    files.tell(0)
    while not is_gone(gone.pid):  # this process is held up, and torchrun reaps the worker meanwhile
        time.sleep(0.01)
    await soon(lambda: gone not in watched(program))
    files.tell(1)
    await failed(program, 1)
    files.end.touch()
    assert (await program.wait()).first_failure is None


async def test_children_that_end_with_0_are_no_failure(start: Start, files: Files) -> None:
    workers = (files.worker(0, "exit 0"), files.worker(1, "exit 0"))
    program = await start(*torchrun_like(*workers, end=files.end, code=8))
    await known(program, 2)
    for number in range(2):
        files.tell(number)
    await soon(lambda: not watched(program))
    begun = time.monotonic()
    files.end.touch()
    ending = await program.wait()
    assert (ending.exit_code, ending.first_failure) == (8, None)
    assert time.monotonic() - ending.began_to_fail_at <= time.monotonic() - begun


async def test_what_fails_because_it_was_told_to_stop_is_no_failure(start: Start) -> None:
    program = await start(*torchrun_like(FOR_EVER))
    await soon(lambda: len(keeper.descendants(program.pid)) == 2)
    assert (await program.stop()).first_failure is None


async def test_without_pidfds_a_failure_is_seen_by_looking(
    start: Start, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = await start(*torchrun_like(files.worker(0, "exit 7"), end=files.end))
    assert program.main_pid is None
    monkeypatch.delattr(os, "pidfd_open")  # an old kernel, a strict sandbox
    await known(program, 1)
    files.tell(0)
    await failed(program, 1)
    files.end.touch()
    first = (await program.wait()).first_failure
    assert first is not None
    assert (first.exit_code, first.worker_rank) == (7, 4)


# Whatever ends first


@pytest.fixture
def agent() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(
        *command: str, grace: float = 0.3, within: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*within, sys.executable, str(AGENT), str(grace), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        everyone = keeper.descendants(process.pid)
        process.kill()
        process.communicate()
        keeper.kill([found for found in everyone if not is_gone(found.pid)])


def told(process: subprocess.Popen[str]) -> dict[str, int | str]:
    assert process.stdout is not None
    facts: dict[str, int | str] = json.loads(process.stdout.readline())
    return facts


def worker_pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stderr is not None
    return [int(process.stderr.readline().split()[1]) for _ in range(2)]


async def test_an_agent_killed_by_sigkill_takes_everything_with_it(
    agent: Callable[..., subprocess.Popen[str]],
) -> None:
    process = agent(*PYTHON, TWO_THAT_IGNORE_TERM)
    kept = int(told(process)["keeper"])
    everyone = [kept, *worker_pids(process)]
    process.kill()
    await soon(lambda: all(is_dead(pid) for pid in everyone))


async def test_a_keeper_killed_by_sigkill_is_reported_and_nothing_is_left(
    agent: Callable[..., subprocess.Popen[str]],
) -> None:
    process = agent(*PYTHON, TWO_THAT_IGNORE_TERM)
    kept = int(told(process)["keeper"])
    workers = worker_pids(process)
    os.kill(kept, signal.SIGKILL)
    assert told(process) == {
        "exit_code": 137,
        "reason": "the program's keeper was killed by SIGKILL and what was left of the program was"
        " ended; " + FROM_ELSEWHERE,
    }
    assert process.wait(30) == 137
    assert [is_gone(pid) for pid in workers] == [True, True]


@pytest.mark.netns
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a process namespace")
async def test_as_pid_1_orphans_are_reaped_and_sigterm_ends_all(
    agent: Callable[..., subprocess.Popen[str]],
) -> None:
    process = agent(
        *PYTHON, TWO_THAT_IGNORE_TERM, within=("unshare", "-pf", "--kill-child", "--mount-proc")
    )
    assert told(process)["agent"] == 1
    worker_pids(process)

    def inside() -> list[keeper.Process]:
        return keeper.descendants(process.pid)

    # The agent, its keeper, the program and its two workers; the agent's two orphans are reaped.
    await soon(lambda: len(inside()) == 5)
    os.kill(inside()[0].pid, signal.SIGTERM)
    assert told(process) == {
        "exit_code": 143,
        "reason": "the program ended with exit code 143 (SIGTERM)",
    }
    assert process.wait(30) == 143
    assert inside() == []


async def test_reaping_orphans_leaves_the_exit_codes_of_our_own_children_alone() -> None:
    reaping = asyncio.create_task(reap_orphans(0.3))
    orphan = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 1"], os.environ)
    children = [await asyncio.create_subprocess_exec("sh", "-c", "exit 5") for _ in range(5)]
    assert [await child.wait() for child in children] == [5] * 5
    await soon(lambda: is_gone(orphan))
    reaping.cancel()


async def test_end_descendants_leaves_what_it_is_told_to_spare() -> None:
    spared = await asyncio.create_subprocess_exec("sleep", "60")
    ended = await asyncio.create_subprocess_exec("sh", "-c", "trap '' TERM; sleep 60; sleep 60")
    await end_descendants(0.2, spare={spared.pid})
    assert (is_gone(ended.pid), is_gone(spared.pid)) == (True, False)
    spared.kill()
    for each in (spared, ended):
        await each.wait()


DIES_WITH_PARENT = """
import os, signal, sys, time
from worker.program.process import die_with_parent
die_with_parent(signal.SIGTERM, int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""


async def test_a_process_dies_with_its_parent() -> None:
    command = ["sh", "-c", '"$0" -c "$1" $$ & wait', sys.executable, DIES_WITH_PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    await soon(lambda: is_dead(child))


def test_a_process_whose_parent_is_gone_already_is_signalled_at_once() -> None:
    command = [sys.executable, "-c", DIES_WITH_PARENT, "1"]
    assert subprocess.run(command, capture_output=True, timeout=50).returncode == -signal.SIGTERM


LOSES_PARENT = """
import os, signal, sys
from worker.program.process import die_with_parent, parent_lives
parent = os.getppid()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
die_with_parent(signal.SIGTERM, parent)
print(parent_lives(parent), flush=True)
signal.sigwait([signal.SIGTERM])
print(os.getppid() == parent, parent_lives(parent), flush=True)
"""
LIVES_ON_IN_A_THREAD = """
import ctypes, subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
def tell():
    for line in child.stdout:
        print(line, end="", flush=True)
        told.set()
told = threading.Event()
threading.Thread(target=tell).start()
told.wait()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_parent_lives_no_longer_although_a_thread_of_it_has_not_ended_yet() -> None:
    command = [sys.executable, "-c", LIVES_ON_IN_A_THREAD, LOSES_PARENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == ["True", "True False"], done.stderr
