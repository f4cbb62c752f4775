"""The keeper alone, run as the agent runs it: what it starts, passes on, reaps and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import until
from worker.program import keeper

pytestmark = pytest.mark.real_time

KEEPER = [sys.executable, "-I", "-S", "-X", "utf8", keeper.__file__]
PYTHON = [sys.executable, "-I", "-S", "-c"]
IGNORES_TERM = "trap '' TERM; while :; do sleep 60; done"


class Kept:
    """A keeper with its program, and our end of the lifeline."""

    def __init__(
        self,
        command: list[str],
        *,
        grace: float = 10.0,
        env: dict[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> None:
        self.lifeline, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*within, *KEEPER, str(theirs.fileno()), str(grace), "--", *command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def result(self) -> tuple[int, str, str]:
        """Exit code, standard output and standard error, once everything is over."""
        out, err = self.process.communicate(timeout=50)
        return self.process.returncode, os.fsdecode(out), os.fsdecode(err)

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return bytes(self.process.stdout.readline()).decode().strip()

    def close(self) -> None:
        self.lifeline.close()
        for process in keeper.descendants(self.process.pid):
            keeper.send(process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def keep() -> Iterator[Callable[..., Kept]]:
    started: list[Kept] = []

    def start(*command: str, **options: Any) -> Kept:
        started.append(Kept(list(command), **options))
        return started[-1]

    yield start
    for kept in started:
        kept.close()


def is_gone(pid: int) -> bool:
    return keeper.read_process(pid) is None


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def pids_below(kept: Kept) -> list[int]:
    return [process.pid for process in keeper.descendants(kept.process.pid)]


@pytest.mark.parametrize("code", [0, 1, 3, 75, 255])
def test_exits_with_the_code_of_the_program(keep: Callable[..., Kept], code: int) -> None:
    assert keep("sh", "-c", f"exit {code}").result() == (code, "", "")


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("KILL", 137), ("SEGV", 139)])
def test_a_program_ended_by_a_signal_exits_with_128_and_its_number(
    keep: Callable[..., Kept], name: str, code: int
) -> None:
    assert keep("sh", "-c", f"kill -{name} $$").result() == (code, "", "")


def test_tells_the_agent_the_pid_and_the_end_of_the_program(keep: Callable[..., Kept]) -> None:
    kept = keep("sh", "-c", "echo $$; kill -KILL $$")
    _, out, _ = kept.result()
    assert kept.lifeline.recv(100).decode() == f"started {int(out)}\nended -9\n"


LEAVES_SEVEN = """
import os, subprocess, time
for n in range(7):
    print(subprocess.Popen(["sleep", "60"]).pid)
"""


def test_names_the_first_few_that_a_program_leaves_running(keep: Callable[..., Kept]) -> None:
    kept = keep(*PYTHON, LEAVES_SEVEN)
    code, out, _ = kept.result()
    told = kept.lifeline.recv(4096).decode().splitlines()
    pids = {int(line) for line in out.split()}
    assert (code, told[1:3]) == (0, ["ended 0", "left 7"])
    named = [line.split(" ", 3) for line in told[3:]]
    assert [(word, command) for word, _, _, command in named] == [("child", "sleep")] * 5
    assert {int(pid) for _, pid, _, _ in named} < pids
    assert all(0 <= int(age) < 60 for _, _, age, _ in named)
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(
    "script", ["sleep 0.1 & exit 0", "sleep 60 & exit 3"], ids=["ends by itself", "failed"]
)
def test_names_nothing_that_ends_by_itself_or_with_a_failure(
    keep: Callable[..., Kept], script: str
) -> None:
    kept = keep("sh", "-c", script)
    kept.result()
    assert "left" not in kept.lifeline.recv(4096).decode()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            ["/usr/bin/python3.11", "-u", "/job/train.py", "--api-key", "s3cret"],
            "python3.11 train.py",
        ),
        (["python", "-m", "my.job", "--token=s3cret"], "python -m my.job"),
        (["python", "-c", "import os; os.system('a.py')"], "python"),
        (["bash", "/job/run.sh", "s3cret"], "bash run.sh"),
        (["curl", "https://user:s3cret@host/a.py"], "curl"),
        (["ray::IDLE --key s3cret"], "ray::IDLE"),
        (["x\n\x1b[1m"], "x"),
        (["/job/" + "x" * 99], "x" * 60),
        ([""], "named"),
        (["env", "PASSWORD=s3cret.py"], "env"),
    ],
)
def test_a_command_is_shown_without_the_arguments_that_may_hold_a_secret(
    words: list[str], shown: str
) -> None:
    assert keeper.short_command([*words, ""], "named") == shown


def test_a_program_that_is_not_on_the_path_exits_with_127(keep: Callable[..., Kept]) -> None:
    assert keep("no-such-program").result() == (
        127,
        "",
        "rdzv: cannot start 'no-such-program': not found in any folder of PATH\n",
    )


def test_a_path_to_nothing_exits_with_127(keep: Callable[..., Kept]) -> None:
    assert keep("/no/such program").result() == (
        127,
        "",
        "rdzv: cannot start '/no/such program': there is no such file\n",
    )


@pytest.mark.parametrize(
    ("text", "mode", "code", "reason"),
    [
        ("#!/bin/sh\n", 0o644, 126, "it is not an executable file (chmod +x?)"),
        ("echo hello\n", 0o755, 126, "it has no #! line and is no program for this machine"),
        (
            "#!/no/such/python\n",
            0o755,
            127,
            "the interpreter that its first line names does not exist",
        ),
    ],
)
def test_a_file_that_cannot_be_executed_is_explained(
    keep: Callable[..., Kept], tmp_path: Path, text: str, mode: int, code: int, reason: str
) -> None:
    file = tmp_path / "train.sh"
    file.write_text(text)
    file.chmod(mode)
    assert keep(str(file)).result() == (code, "", f"rdzv: cannot start '{file}': {reason}\n")


def test_arguments_arrive_unchanged(keep: Callable[..., Kept]) -> None:
    odd = ["", "two words", "'\"", "line\nbreak", "$HOME `id` \\", "-X", "--", "umlaut-ä", "\udcff"]
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    _, out, _ = keep(*PYTHON, code, *odd).result()
    assert json.loads(out) == odd


def test_the_environment_arrives_unchanged_even_in_a_c_locale(keep: Callable[..., Kept]) -> None:
    environment = {"LANG": "C", "PATH": os.defpath, "PYTHONPATH": ".", "ODD": "a=b\n\udcff"}
    code, out, _ = keep("cat", "/proc/self/environ", env=environment).result()
    assert (code, out) == (0, "LANG=C\0PATH=/bin:/usr/bin\0PYTHONPATH=.\0ODD=a=b\n\udcff\0")


def test_no_signal_is_ignored_or_blocked_in_the_program(keep: Callable[..., Kept]) -> None:
    spoil = (
        "import os, sys; from signal import *; signal(SIGHUP, SIG_IGN); signal(SIGCHLD, SIG_IGN)"
    )
    spoil += "; pthread_sigmask(SIG_BLOCK, [SIGTERM, SIGUSR1]); os.execv(sys.argv[1], sys.argv[1:])"
    code, out, _ = keep("cat", "/proc/self/status", within=[*PYTHON, spoil]).result()
    status = dict(line.split(":\t", 1) for line in out.splitlines())
    assert (code, _signals(status["SigBlk"]), _signals(status["SigIgn"])) == (0, set(), set())


def _signals(mask: str) -> set[int]:
    """The signals in a mask, but for 32 and 33: they are the C library's, and cannot be set."""
    return {n for n in range(1, 65) if int(mask, 16) >> (n - 1) & 1} - {32, 33}


def test_the_program_inherits_no_file_but_its_three_streams(keep: Callable[..., Kept]) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    _, out, _ = keep(*PYTHON, code).result()
    assert out == "['0', '1', '2', '3']\n"  # 3 is the folder being listed


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH"])
def test_passes_a_signal_on_to_the_program(keep: Callable[..., Kept], name: str) -> None:
    script = f"trap 'echo got {name}; exit 5' {name}; echo ready; sleep 60 & wait"
    kept = keep("sh", "-c", script, grace=0.2)
    assert kept.read_line() == "ready"
    kept.process.send_signal(getattr(signal, f"SIG{name}"))
    assert kept.result() == (5, f"got {name}\n", "")


def test_a_program_that_signals_its_own_group_does_not_reach_the_keeper(
    keep: Callable[..., Kept],
) -> None:
    assert keep("sh", "-c", "kill -KILL 0").result()[0] == 137


def test_300_orphans_leave_no_zombie(keep: Callable[..., Kept]) -> None:
    kept = keep("sh", "-c", "for i in $(seq 300); do (true &); done; echo ready; exec sleep 60")
    assert kept.read_line() == "ready"
    until(lambda: len(pids_below(kept)) == 1)


def test_what_the_program_leaves_behind_is_ended_before_the_keeper_exits(
    keep: Callable[..., Kept],
) -> None:
    kept = keep("sh", "-c", "setsid sleep 60 & echo $!; exit 3", grace=30)
    left = int(kept.read_line())
    begun = time.monotonic()
    assert kept.process.wait(30) == 3
    assert is_gone(left)
    assert time.monotonic() - begun < 20  # it heeded SIGTERM: the grace of 30 s was not needed


def test_what_is_left_behind_and_ignores_sigterm_is_killed_after_the_grace(
    keep: Callable[..., Kept],
) -> None:
    kept = keep(
        "sh", "-c", f'setsid sh -c "{IGNORES_TERM}" & echo $!; sleep 0.2; exit 3', grace=0.3
    )
    left = int(kept.read_line())
    assert kept.process.wait(30) == 3
    assert is_gone(left)


def start_two_that_ignore_term(keep: Callable[..., Kept], grace: float) -> tuple[Kept, list[int]]:
    """Like torchrun's workers: each in a session of its own, below a parent that heeds SIGTERM."""
    child = "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN);"
    child += "print(os.getpid(), flush=True); time.sleep(60)"
    code = "import subprocess, sys; c = [sys.executable, '-I', '-S', '-c', sys.argv[1]];"
    code += "p = [subprocess.Popen(c) for _ in range(2)]; [x.wait() for x in p]"
    kept = keep(*PYTHON, code, child, grace=grace)
    return kept, [int(kept.read_line()), int(kept.read_line())]


def test_told_to_stop_it_kills_workers_that_ignore_sigterm_after_the_grace(
    keep: Callable[..., Kept],
) -> None:
    kept, workers = start_two_that_ignore_term(keep, grace=0.5)
    begun = time.monotonic()
    kept.lifeline.send(b"T")
    assert kept.process.wait(30) == 143
    assert 0.5 <= time.monotonic() - begun < 20
    assert [is_gone(pid) for pid in workers] == [True, True]


def test_an_agent_that_is_gone_is_an_order_to_stop(keep: Callable[..., Kept]) -> None:
    kept, workers = start_two_that_ignore_term(keep, grace=0.1)
    kept.lifeline.close()  # with a line unread: the keeper gets a reset, not an end of file
    assert kept.process.wait(30) == 143
    assert [is_gone(pid) for pid in workers] == [True, True]


def test_told_to_kill_it_gives_no_grace(keep: Callable[..., Kept]) -> None:
    kept, workers = start_two_that_ignore_term(keep, grace=30)
    kept.lifeline.send(b"K")
    assert kept.process.wait(30) == 137
    assert [is_gone(pid) for pid in workers] == [True, True]


def test_told_to_kill_during_the_grace_it_cuts_it_short(keep: Callable[..., Kept]) -> None:
    kept, workers = start_two_that_ignore_term(keep, grace=30)
    kept.lifeline.send(b"T")
    until(lambda: sorted(pids_below(kept)) == sorted(workers))
    kept.lifeline.send(b"K")
    assert kept.process.wait(30) == 143
    assert [is_gone(pid) for pid in workers] == [True, True]


def test_a_stopped_process_is_woken_to_heed_sigterm(keep: Callable[..., Kept]) -> None:
    kept = keep("sh", "-c", "trap 'echo bye; exit 7' TERM; echo $$; kill -STOP $$; sleep 60")
    pid = int(kept.read_line())
    until(lambda: (found := keeper.read_process(pid)) is not None and found.state == "T")
    kept.lifeline.send(b"T")
    assert kept.result() == (7, "bye\n", "")


def test_a_process_that_keeps_forking_does_not_survive_the_kill(keep: Callable[..., Kept]) -> None:
    """Each of its parents ends by itself: what was listed a moment ago is gone already."""
    code = "import os, signal, sys, time\nif os.fork(): time.sleep(60)\n"
    code += "os.setsid(); signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\n"
    code += "while True:\n  time.sleep(0.001)\n  if os.fork(): os._exit(0)\n"
    name = f"a-name-to-find-{os.getpid()}"
    kept = keep(*PYTHON, code, name, grace=0.1)
    assert kept.read_line() == "ready"
    kept.lifeline.send(b"T")
    assert kept.process.wait(40) == 143
    assert not [p for p in keeper.processes() if name.encode() in command_line(p.pid)]


def test_a_killed_keeper_takes_the_program_with_it(keep: Callable[..., Kept]) -> None:
    kept = keep("sh", "-c", "echo $$; exec sleep 60")
    pid = int(kept.read_line())
    kept.process.kill()
    until(lambda: (found := keeper.read_process(pid)) is None or found.state == "Z")


def test_a_process_is_read_whatever_its_name_looks_like() -> None:
    code = "import time; open('/proc/self/comm', 'w').write(') Z 1 ('); print(1); time.sleep(60)"
    with subprocess.Popen([*PYTHON, code], stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == ") Z 1 (\n")
        found = keeper.read_process(process.pid)
        process.kill()
    assert found is not None
    assert (found.pid, found.parent) == (process.pid, os.getpid())
    assert found.state in "RSD"


def test_descendants_are_listed_parents_first_without_what_is_spared() -> None:
    script = "sleep 60 & sh -c 'sleep 60 & wait' & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        until(lambda: len(keeper.descendants(process.pid)) == 3)
        everyone = [p.pid for p in keeper.descendants(process.pid)]
        spared = [p.pid for p in keeper.descendants(process.pid, frozenset({inner}))]
        for pid in (process.pid, *everyone):
            keeper.send(pid, signal.SIGKILL)
    assert len(everyone) == 3
    assert everyone.index(inner) < 2
    assert spared == [pid for pid in everyone[:2] if pid != inner]
