"""The keeper alone, as the agent runs it and on a played clock: what it starts, reaps and ends."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.waiting import until
from tests.worker.programs.started import PROGRAMS, PYTHON, TWO_THAT_IGNORE_TERM, is_dead, is_gone
from worker.program import keeper, process_table

KEEPER = [*PYTHON, "-X", "utf8", keeper.__file__]


class Kept:
    """A keeper with its program, and our end of the lifeline."""

    def __init__(
        self,
        *command: str,
        grace: float = 10.0,
        env: dict[str, str] | None = None,
        within: Sequence[str] = (),
        said: bytes = b"",
    ) -> None:
        self.lifeline, theirs = socket.socketpair()
        self.lifeline.send(said)
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

    def told(self) -> list[str]:
        """What it has told its agent."""
        return self.lifeline.recv(4096).decode().splitlines()

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return bytes(self.process.stdout.readline()).decode().strip()

    def close(self) -> None:
        self.lifeline.close()
        for process in process_table.descendants(self.process.pid):
            process_table.send(process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


Keep = Callable[..., Kept]


def may_run(seconds: float) -> bytes:
    """What an agent says of a program that may run for so long."""
    return keeper.fence(time.monotonic() + seconds)


@pytest.fixture
def keep() -> Iterator[Keep]:
    started: list[Kept] = []

    def start(*command: str, **options: Any) -> Kept:
        started.append(Kept(*command, **options))
        return started[-1]

    yield start
    for kept in started:
        kept.close()


# --- what it starts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "told"), [("exit 3", 3, "ended 3"), ("kill -KILL 0", 137, "ended -9")]
)
def test_exits_with_the_code_of_the_program_and_tells_the_agent_its_pid_and_end(
    keep: Keep, end: str, code: int, told: str
) -> None:
    """One that signals its own group does not reach the keeper."""
    kept = keep("sh", "-c", f"echo $$; {end}")
    found, out, err = kept.result()
    assert (found, err, kept.told()) == (code, "", [f"started {int(out)}", told])


def test_arguments_and_environment_arrive_unchanged_even_in_a_c_locale(keep: Keep) -> None:
    odd = ["", "two words", "'\"", "line\nbreak", "$HOME `id` \\", "-X", "--", "umlaut-ä", "\udcff"]
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    assert json.loads(keep(*PYTHON, "-c", code, *odd).result()[1]) == odd
    environment = {"LANG": "C", "PATH": os.defpath, "PYTHONPATH": ".", "ODD": "a=b\n\udcff"}
    _, out, _ = keep("cat", "/proc/self/environ", env=environment).result()
    assert out == "".join(f"{name}={value}\0" for name, value in environment.items())


def _signals(mask: str) -> set[int]:
    """The signals in a mask, but for 32 and 33: they are the C library's, and cannot be set."""
    return {n for n in range(1, 65) if int(mask, 16) >> (n - 1) & 1} - {32, 33}


def test_no_signal_is_ignored_or_blocked_in_the_program_and_no_file_is_inherited(
    keep: Keep,
) -> None:
    spoil = "import os, sys; from signal import *; [signal(n, SIG_IGN) for n in (SIGHUP, SIGCHLD)]"
    spoil += "; pthread_sigmask(SIG_BLOCK, [SIGTERM, SIGUSR1]); os.execv(sys.argv[1], sys.argv[1:])"
    script = "ls /proc/self/fd; cat /proc/self/status"
    code, out, _ = keep("sh", "-c", script, within=[*PYTHON, "-c", spoil]).result()
    files, status = out.split("Name:", 1)
    masks = dict(line.split(":\t", 1) for line in status.splitlines()[1:])
    assert (code, _signals(masks["SigBlk"]), _signals(masks["SigIgn"])) == (0, set(), set())
    assert files.split() == ["0", "1", "2", "3"]  # 3 is the folder being listed


@pytest.mark.parametrize("name", ["INT", "WINCH"])
def test_passes_a_signal_on_to_the_program(keep: Keep, name: str) -> None:
    script = f"trap 'echo got {name}; exit 5' {name}; echo ready; sleep 60 & wait"
    kept = keep("sh", "-c", script, grace=0.1)
    assert kept.read_line() == "ready"
    kept.process.send_signal(getattr(signal, f"SIG{name}"))
    assert kept.result() == (5, f"got {name}\n", "")


# --- what is left ---------------------------------------------------------------------------------


@pytest.mark.real_time
def test_names_the_first_few_that_a_program_leaves_running_and_ends_all(keep: Keep) -> None:
    script = "for n in 1 2 3 4 5 6 7; do setsid sleep 60 & echo $!; done"
    code, out, _ = (kept := keep("sh", "-c", script, grace=3600)).result()
    _, *told = kept.told()
    pids = {int(line) for line in out.split()}
    named = [line.split(" ", 3) for line in told[2:]]
    assert (code, told[:2]) == (0, ["ended 0", "left 7"])
    assert [(word, command) for word, _, _, command in named] == [("child", "sleep")] * 5
    assert {int(pid) for _, pid, _, _ in named} < pids
    assert all(0 <= int(age) < 60 for _, _, age, _ in named)
    assert all(map(is_gone, pids))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 0.1 & exit 0", marks=pytest.mark.real_time, id="ends by itself"),
        pytest.param("sleep 60 & exit 3", id="failed"),
        pytest.param("trap 'exit 0' TERM; echo ready; sleep 60 & wait", id="was told"),
    ],
)
def test_names_nothing_that_ends_by_itself_or_of_a_program_that_failed_or_was_told_to_end(
    keep: Keep, script: str
) -> None:
    kept = keep("sh", "-c", script)
    if "TERM" in script:
        assert kept.read_line() == "ready"
        kept.lifeline.send(b"T")
    kept.result()
    assert "left" not in "".join(kept.told())


def test_300_orphans_leave_no_zombie(keep: Keep) -> None:
    kept = keep("sh", "-c", "for i in $(seq 300); do (true &); done; echo ready; exec sleep 60")
    assert kept.read_line() == "ready"
    until(lambda: len(process_table.descendants(kept.process.pid)) == 1)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("order", "grace", "code"), [("T", 0.3, 143), ("", 0.1, 143), ("K", 3600, 137)]
)
def test_workers_that_ignore_sigterm_are_killed_after_the_grace_or_at_once(
    keep: Keep, order: str, grace: float, code: int
) -> None:
    kept = keep(*TWO_THAT_IGNORE_TERM, grace=grace)
    workers = [int(kept.read_line().split()[1]) for _ in range(2)]
    begun = time.monotonic()
    if order:
        kept.lifeline.send(order.encode())
    else:
        kept.lifeline.close()  # with a line unread: the keeper gets a reset, not an end of file
    assert kept.process.wait(30) == code
    assert order == "K" or grace <= time.monotonic() - begun
    assert all(map(is_gone, workers))


def test_what_an_agent_that_stood_still_starts_too_late_is_not_started(keep: Keep) -> None:
    kept = keep("echo", "runs", said=may_run(-0.01))
    code, out, err = kept.result()
    assert (code, out, kept.told()) == (137, "", [])
    assert err == "rdzv: 'echo' is not started: another node may have this one's place\n"


LIKE_TORCHRUN = [*PYTHON, str(PROGRAMS / "torchrun_like.py")]


@pytest.mark.parametrize(
    ("how", "order", "by", "told"),
    [
        # torchrun is told, and tells its workers and what they have started.
        ("passes", "T", 0, {"worker SIGRTMIN", "child SIGRTMIN", "torchrun SIGTERM"}),
        # It is ending them already, here because of another signal: nobody is told.
        ("passes", "L", signal.SIGUSR1, {"worker SIGRTMIN", "child SIGRTMIN", "torchrun SIGUSR1"}),
        # It has ended without telling them.
        ("dies", "T", 0, {"worker SIGTERM", "child SIGTERM"}),
        ("dies", "L", signal.SIGUSR1, {"worker SIGTERM", "child SIGTERM"}),
    ],
)
def test_torchruns_workers_are_told_once_to_end(
    keep: Keep, how: str, order: str, by: int, told: set[str]
) -> None:
    kept = keep(*LIKE_TORCHRUN, how, grace=50)
    assert {kept.read_line(), kept.read_line()} == {"worker ready", "child ready"}
    kept.lifeline.send(order.encode())
    kept.process.send_signal(by)
    _, out, err = kept.result()
    assert (set(out.splitlines()), err) == (told, "")


@pytest.mark.real_time
def test_who_lost_its_launcher_below_a_living_shell_is_told_soon(keep: Keep) -> None:
    """The keeper hears nothing of that launcher's end: it was not its child."""
    kept = keep("sh", "-c", f"trap : TERM; {shlex.join(LIKE_TORCHRUN)} dies; sleep 3; echo end")
    assert {kept.read_line(), kept.read_line()} == {"worker ready", "child ready"}
    kept.lifeline.send(b"T")
    *told, last = kept.result()[1].splitlines()
    assert (set(told), last) == ({"worker SIGTERM", "child SIGTERM"}, "end")


STOPPED_RANK = """
import os, signal, subprocess, sys
if len(sys.argv) > 1:
    os.kill(os.getpid(), signal.SIGSTOP)
    os.write(1, b"goes on\\n")
    signal.pause()
own = {**os.environ, "TORCHELASTIC_RUN_ID": "r"}
rank = subprocess.Popen([sys.executable, "-IS", __file__, "rank"], env=own, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: rank.terminate())
os.waitid(os.P_PID, rank.pid, os.WSTOPPED)
os.write(1, b"stopped\\n")
os._exit(-rank.wait())
"""


def test_a_stopped_rank_is_woken_to_heed_its_launchers_sigterm(keep: Keep, tmp_path: Path) -> None:
    (tmp_path / "launcher").write_text(STOPPED_RANK)
    kept = keep(*PYTHON, str(tmp_path / "launcher"), grace=50)
    assert kept.read_line() == "stopped"
    kept.lifeline.send(b"T")
    assert kept.result()[0] == signal.SIGTERM


COUNTING = [*PYTHON, str(PROGRAMS / "counting.py")]


@pytest.mark.parametrize(
    ("how", "seconds", "grace"), [("passes", "1.2", 30), ("does not pass it on", "0", 2)]
)
def test_a_rank_of_a_rank_is_told_once_by_that_or_by_the_keeper(
    keep: Keep, how: str, seconds: str, grace: int
) -> None:
    """The first one ends before the other, whom it leaves to the keeper."""
    kept = keep(*COUNTING, "first", "0", how, "second", seconds, "", grace=grace)
    assert {kept.read_line(), kept.read_line()} == {"first", "second"}
    kept.lifeline.send(b"T")
    assert kept.result()[1].splitlines() == ["first told 1", "second told 1"]


def test_what_is_born_while_its_parent_is_told_is_told_once(keep: Keep) -> None:
    """It takes longer to end than the keeper takes to look again."""
    kept = keep(*COUNTING, "first", "0", "bears", "second", "1.2", "", grace=30)
    assert kept.read_line() == "first"
    kept.lifeline.send(b"T")
    told = {"first told 1", "second", "second told 1"}
    assert set(kept.result()[1].splitlines()) == told


def test_what_would_pass_it_on_is_stopped_first_and_told_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is sent here: all that would be is kept."""
    sent: list[tuple[int, int]] = []
    lines = (b"python -m deepspeed.launcher.launch", b"python horovodrun p", b"python p")
    known = {pid: process_table.Details(tuple(line.split())) for pid, line in enumerate(lines)}
    for module in (keeper, process_table):
        monkeypatch.setattr(module, "send", lambda pid, n: sent.append((pid, n)))
    monkeypatch.setattr(keeper, "read_details", known.__getitem__)
    keeper.tell_to_end([process_table.Process(pid, -1, 9, "S", 0, 0) for pid in known])
    first, *middle, told, woken = sent
    assert (first, told, woken) == ((1, signal.SIGSTOP), (1, signal.SIGTERM), (1, signal.SIGCONT))
    assert middle == [(0, signal.SIGKILL), (2, signal.SIGTERM)]


def test_a_stopped_process_is_woken_to_heed_sigterm(keep: Keep) -> None:
    kept = keep("sh", "-c", "trap 'echo bye; exit 7' TERM; echo $$; kill -STOP $$; sleep 60")
    pid = int(kept.read_line())
    until(lambda: (found := process_table.read_process(pid)) is not None and found.state == "T")
    kept.lifeline.send(b"T")
    assert kept.result() == (7, "bye\n", "")


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.real_time
def test_a_process_that_keeps_forking_does_not_survive_the_kill(keep: Keep) -> None:
    """Each of its parents ends by itself: what was listed a moment ago is gone already."""
    code = "import os, signal, sys, time\nif os.fork(): time.sleep(60)\n"
    code += "os.setsid(); signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\n"
    code += "for _ in range(60_000):\n  time.sleep(0.001)\n  if os.fork(): os._exit(0)\n"
    name = f"a-name-to-find-{os.getpid()}"
    kept = keep(*PYTHON, "-c", code, name, grace=0.1)
    assert kept.read_line() == "ready"
    kept.lifeline.send(b"T")
    assert kept.process.wait(40) == 143
    assert not [p for p in process_table.processes() if name.encode() in command_line(p.pid)]


def test_a_killed_keeper_takes_the_program_with_it(keep: Keep) -> None:
    kept = keep("sh", "-c", "echo $$; exec sleep 60")
    pid = int(kept.read_line())
    kept.process.kill()
    until(lambda: is_dead(pid))


# --- what it reads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "error", "code", "reason"),
    [
        ("train", errno.ENOENT, 127, "not found in any folder of PATH"),
        ("/no/train", errno.ENOENT, 127, "there is no such file"),
        (f"{__file__}/train", errno.ENOTDIR, 127, "there is no such file"),
        (__file__, errno.ENOENT, 127, "the interpreter that it needs is missing"),
        ("train", errno.EACCES, 126, "it is not an executable file (chmod +x?)"),
        ("train", errno.ENOEXEC, 126, "it has no #! line and is not a program for this machine"),
        ("train", errno.E2BIG, 126, "Argument list too long"),
    ],
)
def test_what_cannot_be_executed_is_explained(
    program: str, error: int, code: int, reason: str
) -> None:
    found = keeper.explain(program, OSError(error, os.strerror(error)))
    assert found == (code, reason)


def test_a_program_that_cannot_be_started_is_named(keep: Keep) -> None:
    words = "rdzv: cannot start 'no-such-program': not found in any folder of PATH\n"
    assert keep("no-such-program").result() == (127, "", words)


# --- on a clock of the test's own, by a kernel that is played -------------------------------------

OWN, MAIN, LIFELINE = 40, 50, 7


class Played:
    """Processes below a keeper of this process: what comes to it by the time, and what it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, grace: float = 4.0) -> None:
        self.patch, self.now = monkeypatch, 1000.0
        self.done: list[Any] = []
        self.below: dict[int, process_table.Process] = {}
        self.dies: dict[tuple[int, int], float] = {}
        self._coming: list[tuple[float, Callable[[], None]]] = []
        self._said: list[bytes] = []
        self._signals, self._zombies = b"", list[tuple[int, int]]()
        names = ("waitstatus_to_exitcode", "path", "WNOHANG")
        fake = {name: getattr(os, name) for name in names}
        fake |= dict.fromkeys(("set_inheritable", "set_blocking"), lambda *_: None)
        fake |= {"pipe": lambda: (8, 9), "getpid": lambda: OWN, "read": self._read}
        fake |= {"close": lambda fd: None, "waitpid": self._waitpid, "write": self._write}
        for name, value in {
            "os": SimpleNamespace(**fake),
            "select": SimpleNamespace(poll=lambda: self, POLLIN=1),
            "time": SimpleNamespace(monotonic=lambda: self.now),
            "prctl": lambda option, value: None,
            "signal": SimpleNamespace(
                **{each.name: each for each in signal.Signals},
                **dict.fromkeys(("set_wakeup_fd", "pthread_sigmask"), lambda *_, **__: None),
                SIG_SETMASK=2,
                signal=lambda *_: None,
            ),
            "send": self.send,
            "read_details": lambda pid: process_table.Details(),
            "command_of": lambda pid: f"command-{pid}",
        }.items():
            monkeypatch.setattr(keeper, name, value)
        monkeypatch.setattr(process_table, "send", self.send)
        monkeypatch.setattr(process_table, "processes", lambda: [*self.below.values()])
        monkeypatch.setattr(process_table.Process, "age_seconds", lambda one: one.pid)
        self.keeper = keeper.Keeper(LIFELINE, grace, self._begin)

    def at(self, seconds: float, what: Callable[..., None], *given: Any) -> Played:
        self._coming.append((1000.0 + seconds, lambda: what(*given)))
        return self

    def born(self, pid: int, parent: int = MAIN, state: str = "S") -> None:
        self.below[pid] = process_table.Process(pid, parent, pid, state, 0, 0)

    def says(self, word: bytes) -> None:
        self._said.append(word)

    def signalled(self, number: int) -> None:
        self._signals += bytes([number])

    def ended(self, pid: int, status: int = 0) -> None:
        if (gone := self.below.pop(pid, None)) is None:
            return
        for child in [*self.below.values()]:
            if child.parent == pid:
                self.below[child.pid] = child._replace(parent=OWN)
        if gone.parent == OWN:
            self._zombies.append((pid, status))
            self.signalled(signal.SIGCHLD)

    def run(self) -> int:
        return self.keeper.run(["train"])

    def sent(self, *numbers: int) -> list[tuple[float, int, int]]:
        """When these signals were sent, and to whom."""
        return [(at, pid, n) for at, pid, n in self.done if not numbers or n in numbers]

    def _begin(self, command: list[str]) -> int:
        self.born(MAIN, OWN)
        return MAIN

    def send(self, pid: int, number: int) -> None:
        self.done.append((self.now - 1000, pid, number))
        if (pid, number) in self.dies:
            self._coming.append(
                (self.now + self.dies[pid, number], lambda: self.ended(pid, number))
            )

    def register(self, fd: int, _: int) -> None: ...

    def unregister(self, fd: int) -> None:
        self.done.append((self.now - 1000, "no longer polled", fd))

    def poll(self, milliseconds: float | None) -> None:
        if self._said or self._signals:
            return
        until = self.now + (1e9 if milliseconds is None else milliseconds / 1000)
        until = min([until, *(max(at, self.now) for at, _ in self._coming)])
        assert until < 1e6, "it sleeps for ever"
        self.now = until
        due = [what for at, what in self._coming if at <= until]
        self._coming = [each for each in self._coming if each[0] > until]
        for what in due:
            what()

    def _read(self, fd: int, _: int) -> bytes:
        if fd == LIFELINE and self._said:
            return self._said.pop(0)
        found, self._signals = self._signals if fd == 8 else b"", b"" if fd == 8 else self._signals
        if not found:
            raise BlockingIOError
        return found

    def _waitpid(self, pid: int, how: int) -> tuple[int, int]:
        assert (pid, how) == (-1, os.WNOHANG)
        if self._zombies:
            return self._zombies.pop(0)
        if not any(one.parent == OWN for one in self.below.values()):
            raise ChildProcessError
        return 0, 0

    def _write(self, fd: int, data: bytes) -> None:
        self.done.append((self.now - 1000, "told" if fd == LIFELINE else "said", data.decode()))


TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_what_a_program_leaves_has_a_moment_is_named_and_has_the_whole_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Played(monkeypatch)
    one.at(0.5, one.born, 63, OWN).at(1, one.ended, 63, 9)  # another one's end is not its own
    one.at(1, one.born, 61).at(1, one.born, 62).at(2, one.ended, MAIN).at(2.25, one.ended, 61)
    one.dies = {(62, KILL): 0.0}
    assert one.run() == 0
    assert one.done == [
        (0, "told", "started 50\n"),
        (2, "told", "ended 0\n"),
        (2.5, "told", "left 1\nchild 62 62 command-62\n"),
        (2.5, 62, TERM),
        (6.5, 62, KILL),
    ]


def test_nothing_is_sent_to_the_number_of_a_program_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be another process's by then."""
    one = Played(monkeypatch)
    one.at(0.5, one.born, 61).at(1, one.signalled, signal.SIGUSR1).at(2, one.ended, MAIN)
    one.at(2.25, one.signalled, signal.SIGUSR2).at(2.375, one.ended, 61)
    assert one.run() == 0
    assert one.sent(signal.SIGUSR1, signal.SIGUSR2, TERM) == [(1, MAIN, signal.SIGUSR1)]
    assert one.now == 1002.375  # nothing is left, and nothing waited for


def test_what_a_program_that_ends_itself_leaves_has_the_rest_of_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What of it is stopped is woken at once: its launcher waits for it."""
    one = Played(monkeypatch)
    one.at(0.5, one.born, 61, MAIN, "T").at(0.5, one.born, 62).at(1, one.says, b"L")
    one.dies = {(61, KILL): 0.0, (62, TERM): 0.0}
    assert one.at(3, one.ended, MAIN, 1 << 8).run() == 1
    assert one.sent(signal.SIGCONT)[:1] == [(1, 61, signal.SIGCONT)]
    assert one.sent(TERM, KILL) == [(3, 61, TERM), (3, 62, TERM), (5, 61, KILL)]


def test_half_of_the_grace_is_the_launchers_to_tell_its_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, late = Played(monkeypatch), list[tuple[float, bool]]()

    def forsaken(everyone: Any, order: Any, own: int, is_late: bool) -> list[Any]:
        late.append((one.now - 1000, is_late))
        return [each for each in everyone if each.pid == 61 and is_late]

    monkeypatch.setattr(keeper, "forsaken", forsaken)
    one.at(0.5, one.born, 61).at(1, one.says, b"T")
    one.dies = {(61, TERM): 0.25, (MAIN, KILL): 0.0, (61, KILL): 0.0}
    one.patch.setattr(keeper, "tell_to_end", lambda everyone: None)
    assert one.run() == 137
    assert late[:6] == [
        (1.5, False),
        (2, False),
        (2.5, False),
        (3, True),
        (3.25, True),
        (3.75, True),
    ]
    assert (late[-1], one.sent(TERM)) == ((5, True), [(3, 61, TERM)])
    assert one.sent(KILL) == [(5, MAIN, KILL)]


def test_what_sigkill_does_not_end_is_killed_again_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Played(monkeypatch)
    one.patch.setattr(keeper, "KILL_SECONDS", 0.03)
    one.at(0.5, one.born, 61).at(1, one.says, b"K")
    one.dies = {(61, KILL): 0.0}
    assert one.run() == 137
    *killed, (at, _, words) = one.done[1:]
    assert at == pytest.approx(1.03, abs=0.011)
    assert [pid for _, pid, number in killed if number == KILL].count(MAIN) >= 3
    assert one.sent(TERM) == []
    assert words.startswith("rdzv: SIGKILL did not end these processes within")
    assert words.endswith(": 50 (state S)\n")


@pytest.mark.parametrize(
    ("first", "later", "at"),
    [
        # Where another may take its place, the time that is left ends any wait: what was said last.
        (b"F1009000;F1003000;", (), 3),
        (b"F1009000;F1003000;", (b"T",), 3),
        (b"F1009000;F1003000;", (b"L",), 3),
        (b"F1001500;", (b"F1003000;",), 3),
        # Then an agent that is gone ends any wait, and any grace.
        (b"F1060000;", (b"",), 1),
        (b"F1060000;", (b"T", b""), 2),
        # What does not end itself has the grace, which may be cut short.
        (b"", (b"L",), 9),
        (b"", (b"T", b"K"), 2),
    ],
)
def test_when_a_program_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, first: bytes, later: tuple[bytes, ...], at: float
) -> None:
    one = Played(monkeypatch, grace=8.0)
    if first:
        one.says(first)
    for second, word in enumerate(later, 1):
        one.at(second, one.says, word)
    one.dies = {(MAIN, KILL): 0.0}
    assert one.run() == 137
    assert one.sent(KILL) == [(at, MAIN, KILL)]
    assert [sent for _, _, sent in one.sent(TERM)] == [TERM] * (b"T" in later)


def test_a_program_that_has_no_agent_any_more_is_started_and_told_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Played(monkeypatch)
    one.says(b"")
    one.dies = {(MAIN, TERM): 0.5}
    assert one.run() == 143
    assert one.sent(TERM, KILL, LIFELINE) == [(0, "no longer polled", LIFELINE), (0, MAIN, TERM)]


def test_what_cannot_be_forked_and_a_kernel_without_subreapers_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*_: Any) -> int:
        raise OSError(12, "no memory")

    one = Played(monkeypatch)
    one.patch.setattr(keeper, "prctl", refuses)
    one.keeper = keeper.Keeper(LIFELINE, 4.0, refuses)
    assert one.run() == 126
    assert [(what, words) for _, what, words in one.done] == [
        ("said", "rdzv: processes that lose their parent will not be ended: no memory\n"),
        ("said", "rdzv: cannot start 'train': no memory\n"),
    ]


# --- a child of the keeper ------------------------------------------------------------------------


@pytest.mark.parametrize("lives", [True, False])
def test_a_child_is_the_program_only_below_its_keeper(
    monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """Where that has just been killed, nothing begins: nobody would end it."""
    done: list[Any] = []
    fake: dict[str, Any] = {"setsid": lambda: done.append("setsid")}
    fake |= {"getppid": lambda: 33 if lives else 1}
    fake |= {"_exit": lambda code: done.append(("exit", code))}
    fake |= {"execvpe": lambda *given: done.append(given)}
    monkeypatch.setattr(keeper, "os", SimpleNamespace(**fake))
    monkeypatch.setattr(keeper, "prctl", lambda *given: done.append(given))
    monkeypatch.setattr(keeper, "original_environment", lambda: {b"A": b"1"})
    with monkeypatch.context() as patch:
        quiet = {"signal": lambda n, how: None, "set_wakeup_fd": lambda fd: None}
        quiet |= {"pthread_sigmask": lambda how, mask: done.append((how, tuple(mask)))}
        patch.setattr(keeper, "signal", SimpleNamespace(**{**vars(signal), **quiet}))
        keeper.become(["train", "x"], 33)
    first = ["setsid", (keeper.PR_SET_PDEATHSIG, KILL)]
    executed = [(signal.SIG_SETMASK, ()), ("train", ["train", "x"], {b"A": b"1"})]
    assert done == [*first, *(executed if lives else []), ("exit", 126)]


@pytest.mark.parametrize("pid", [0, 77])
def test_a_signal_waits_until_a_child_has_begun(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    done: list[Any] = []

    def forks() -> int:
        done.append("fork")
        return pid

    monkeypatch.setattr(keeper, "os", SimpleNamespace(getpid=lambda: 44, fork=forks))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *given: done.append(given))
    child: Any = lambda parent: done.append(("child of", parent))  # noqa: E731
    assert keeper.fork(child) == pid
    held, forked, *then, free = done
    assert (held, forked) == ((signal.SIG_BLOCK, signal.valid_signals()), "fork")
    assert (then, free) == ([("child of", 44)] * (not pid), (signal.SIG_SETMASK, ()))


def test_a_kernel_that_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        keeper.prctl(-1, 0)


def test_a_process_that_executes_nothing_lets_go_of_the_keepers_files() -> None:
    ours, theirs = socket.socketpair()
    before = {*os.listdir("/proc/self/fd")}
    with ours:
        keeper.Keeper(theirs.detach(), 1.0, lambda command: 1).let_go()
        assert ours.recv(1) == b""
    assert {*os.listdir("/proc/self/fd")} < before
