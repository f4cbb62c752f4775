"""What a keeper does with what is below it is as in `keeper_courses.txt`: each word and signal.

It runs in this process, against a kernel that is played on a clock of its own. See `make
reference`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.courses import lines_in, text_of
from tests.worker.told import Told
from worker.program import keeper, process_table
from worker.program.process_table import Details, Process

KNOWN = Path(__file__).with_name("keeper_courses.txt")

OWN, LIFELINE, SIGNALS, SIGNALS_IN = 40, 7, 8, 9


class Machine:
    """Processes below a keeper, and what comes to it, by the time.

    Args:
        ends: By pid and signal, after how many seconds it ends with which wait status.
        details: What is known of each beside its place.
    """

    def __init__(
        self,
        told: Told,
        ends: Mapping[tuple[int, int], tuple[float, int]],
        details: Mapping[int, Details] | None = None,
    ) -> None:
        self.told, self.ends, self.details = told, ends, details or {}
        self.now = 1000.0
        self.below: dict[int, Process] = {}
        self.to_come: list[tuple[float, Callable[[], None]]] = []
        self.zombies: list[tuple[int, int]] = []
        self.said: list[bytes] = []
        self.signals = b""
        self.starts: int | OSError = 50

    # --- what comes -------------------------------------------------------------------------------

    def at(self, seconds: float, what: Callable[..., None], *given: Any) -> Machine:
        """After so many seconds from the start of the course."""
        self.to_come.append((1000.0 + seconds, lambda: what(*given)))
        return self

    def born(self, pid: int, parent: int, group: int = 50, state: str = "S") -> None:
        """A process begins."""
        self.below[pid] = Process(pid, parent, group, state, pid * 10, 0)

    def says(self, words: bytes) -> None:
        """The agent says something; nothing: it is gone."""
        self.said.append(words)

    def signalled(self, *numbers: int) -> None:
        """The keeper receives signals."""
        self.signals += bytes(numbers)

    def ended(self, pid: int, status: int) -> None:
        """A process ends; its children are the keeper's, which waits for its own."""
        if (gone := self.below.pop(pid, None)) is None:
            return
        self.line("ended", pid, status)
        for child in [*self.below.values()]:
            if child.parent == pid:
                self.below[child.pid] = child._replace(parent=OWN)
        if gone.parent == OWN:
            self.zombies.append((pid, status))
            self.signals += bytes([signal.SIGCHLD])

    # --- what is asked ----------------------------------------------------------------------------

    def line(self, what: str, *given: object) -> None:
        """Tell it, with the time."""
        words = " ".join(str(int(one) if isinstance(one, int) else one) for one in given)
        self.told.lines.append(f"@ {self.now - 1000:.3f} {what} {words}".rstrip())

    def send(self, pid: int, number: int) -> None:
        """In place of kill(2)."""
        self.line("send", pid, signal.Signals(number).name)
        if number == signal.SIGCONT and pid in self.below:
            self.below[pid] = self.below[pid]._replace(state="S")
        if (end := self.ends.get((pid, number))) is not None:
            self.to_come.append((self.now + end[0], lambda: self.ended(pid, end[1])))

    def poll(self, milliseconds: float | None) -> list[Any]:
        """Sleep until something comes."""
        if self.said or self.signals:
            return []
        until = float("inf") if milliseconds is None else self.now + milliseconds / 1000
        coming = min((at for at, _ in self.to_come), default=float("inf"))
        assert min(until, coming) < float("inf"), "it sleeps for ever"
        self.now = max(self.now, min(until, coming))
        due = [one for one in self.to_come if one[0] <= self.now]
        self.to_come = [one for one in self.to_come if one[0] > self.now]
        for _, happens in sorted(due, key=lambda one: one[0]):
            happens()
        return []

    def read(self, fd: int, _: int) -> bytes:
        """What has come."""
        if fd == LIFELINE and self.said:
            return self.said.pop(0)
        if fd == SIGNALS and self.signals:
            found, self.signals = self.signals, b""
            return found
        raise BlockingIOError

    def waitpid(self, pid: int, _: int) -> tuple[int, int]:
        """One that has ended."""
        assert pid == -1
        if self.zombies:
            return self.zombies.pop(0)
        if any(one.parent == OWN for one in self.below.values()):
            return 0, 0
        raise ChildProcessError

    def begin(self, command: list[str]) -> int:
        """The program starts."""
        self.line("starts", command)
        if isinstance(self.starts, OSError):
            raise self.starts
        self.born(self.starts, OWN)
        return self.starts

    def prctl(self, *given: int) -> None:
        """See the kernel."""
        self.line("prctl", *given)
        if self.starts == 51:
            raise OSError(1, "not permitted")

    def run(self, grace: float = 4.0) -> Machine:
        """A keeper's whole life."""
        kernel = SimpleNamespace(
            **{name: getattr(os, name) for name in ("waitstatus_to_exitcode", "path", "WNOHANG")},
            pipe=lambda: (SIGNALS, SIGNALS_IN),
            getpid=lambda: OWN,
            read=self.read,
            waitpid=self.waitpid,
            write=lambda fd, data: self.line("write", fd, data),
            close=lambda fd: self.line("close", fd),
            set_inheritable=lambda *given: self.line("set_inheritable", *given),
            set_blocking=lambda *given: self.line("set_blocking", *given),
        )
        names = [one.name for one in signal.Signals]
        signals = SimpleNamespace(
            **{name: getattr(signal, name) for name in (*names, "SIG_SETMASK")},
            set_wakeup_fd=lambda fd, **more: self.line("set_wakeup_fd", fd, more),
            signal=lambda number, _: self.line("handles", signal.Signals(number).name),
            pthread_sigmask=lambda _, mask: self.line("masks", *mask),
        )
        polls = SimpleNamespace(
            poll=self.poll,
            register=lambda fd, _: self.line("registers", fd),
            unregister=lambda fd: self.line("unregisters", fd),
        )
        doors: dict[str, Any] = {
            "os": kernel,
            "signal": signals,
            "select": SimpleNamespace(poll=lambda: polls, POLLIN=select.POLLIN),
            "time": SimpleNamespace(monotonic=lambda: self.now),
            "prctl": self.prctl,
            "FORWARDED": sorted(keeper.FORWARDED),
            "send": self.send,
            "command_of": lambda pid: f"command-{pid}",
            "read_details": lambda pid: self.details.get(pid, Details()),
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, door in doors.items():
                patch.setattr(keeper, name, door)
            patch.setattr(process_table, "send", self.send)
            patch.setattr(process_table, "processes", lambda: [*self.below.values()])
            patch.setattr(Process, "age_seconds", lambda one: self.now - 1000 + one.pid)
            one = keeper.Keeper(LIFELINE, grace, self.begin)
            code = one.run(["train", "--lr", "3"])
            one.let_go()
        self.line("code", code)
        return self


def _course(told: Told, title: str, **ends: Any) -> Machine:
    told.of(title)
    return Machine(told, **ends)


TERM, KILL = signal.SIGTERM, signal.SIGKILL


def how_a_program_ends_by_itself() -> Told:
    """It is passed signals, also when it has ended; who is left is named, and ended."""
    told = Told()
    ends = {(63, TERM): (0.25, 15), (64, TERM): (0.5, 15)}
    one = _course(told, "it ends well and leaves seven, of which one ends by itself", ends=ends)
    for pid in range(61, 68):
        one.at(0.5, one.born, pid, 50 if pid % 2 else 61, 50 + pid % 3)
        one.ends = {**one.ends, (pid, KILL): (0.0125 + pid % 2 / 64, 9)}
    one.at(1, one.signalled, signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH)
    one.at(2, one.signalled, signal.SIGUSR1)
    one.at(2.25, one.ended, 62, 256).at(3, one.ended, 50, 0)
    one.at(3.125, one.signalled, signal.SIGUSR2).at(3.25, one.ended, 67, 0)
    one.run()
    one = _course(told, "all that it leaves ends in time", ends={})
    one.at(0.5, one.born, 61, 50).at(0.5, one.born, 62, 50)
    one.at(1, one.ended, 50, 0).at(1.25, one.ended, 61, 512).at(1.375, one.ended, 62, 3).run()
    one = _course(told, "it is told to end while that is waited for", ends={(61, TERM): (1, 15)})
    one.at(0.5, one.born, 61, 50).at(1, one.ended, 50, 0).at(1.25, one.says, b"T").run()
    ends = {(61, TERM): (1.5, 15)}
    one = _course(told, "it fails, and nothing is named", ends=ends)
    one.at(0.5, one.born, 61, 50).at(1, one.ended, 50, 3 << 8).run()
    one = _course(told, "a signal ends it, and two of its children with it", ends={})
    one.starts = 51  # and it has no subreaper
    one.at(0.5, one.born, 61, OWN).at(0.5, one.born, 62, OWN)
    one.at(1, one.ended, 61, 11).at(1, one.ended, 51, 6).at(1, one.ended, 62, 11).run()
    one = _course(told, "it cannot start", ends={})
    one.starts = OSError(12, "no memory")
    one.run()
    return told


def how_a_program_is_ended() -> Told:
    """Told once, whoever has started it; killed at the end of the grace, or at once."""
    told = Told()
    dies = {(pid, KILL): (0.0125, 9) for pid in range(50, 70)}
    ends = {**dies, (50, TERM): (0.5, 15), (61, TERM): (1, 15), (62, TERM): (9, 15)}
    one = _course(told, "one is stopped, one is late, one is born meanwhile", ends=ends)
    one.at(0.5, one.born, 61, 50, 50, "T").at(0.5, one.born, 62, 61).at(1, one.says, b"T")
    one.at(1.25, one.born, 63, 50).at(1.5, one.says, b"T").at(2.5, one.born, 64, 62).run()
    one = _course(
        told, "it ends itself, one of it is stopped, and the rest has its time", ends=ends
    )
    one.at(0.5, one.born, 61, 50, 50, "T").at(0.5, one.born, 63, 50)
    one.at(1, one.says, b"L").at(2.5, one.ended, 50, 1 << 8).run()
    one = _course(told, "it ends itself well, without a word of what is left", ends=ends)
    one.at(0.5, one.born, 63, 50).at(1, one.says, b"L").at(4, one.ended, 50, 0).run()
    one = _course(told, "it does not end itself", ends=dies)
    one.at(0.5, one.born, 63, 50).at(1, one.says, b"L").run(2.0)
    one = _course(told, "it is killed while it ends itself", ends=dies)
    one.at(1, one.says, b"L").at(1.5, one.says, b"K").run()
    one = _course(told, "it is killed at once", ends=dies)
    one.at(0.5, one.born, 63, 50).at(1, one.says, b"K").run()
    late = {**dies, (63, KILL): (0.5, 9)}
    one = _course(told, "it is killed, and told more before all of it has ended", ends=late)
    one.at(0.5, one.born, 63, 50).at(1, one.says, b"K").at(1, one.says, b"T").run()
    one = _course(told, "it is killed in the grace, and told to stop again", ends=late)
    one.at(0.5, one.born, 63, 50).at(1, one.says, b"T")
    one.at(1.25, one.says, b"K").at(1.25, one.says, b"T").run()
    one = _course(told, "the agent is gone in the grace", ends=dies)
    one.at(1, one.says, b"T").at(1.5, one.says, b"").run(3.0)
    one = _course(told, "what SIGKILL does not end is named", ends={(50, KILL): (0.0125, 9)})
    one.at(0.5, one.born, 61, 50, 61, "D").at(0.5, one.born, 62, 61, 61, "Z")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "KILL_SECONDS", 0.025)
        one.at(1, one.says, b"K").run()
    return told


def until_when_a_program_may_run() -> Told:
    """Said several times; the last one counts, in one piece or in two."""
    told = Told()
    dies = {(pid, KILL): (0.0125, 9) for pid in range(50, 70)}
    one = _course(told, "until then, said anew, and then no more", ends=dies)
    one.says(b"F1002000;")
    one.at(1, one.says, b"F1003000;F1004000;").at(2, one.says, b"F1005500;F1005250;")
    one.at(0.5, one.born, 61, 50).run()
    one = _course(told, "it passes in the grace", ends=dies)
    one.at(0.5, one.says, b"F1003000;").at(2, one.says, b"T").run(8.0)
    one = _course(told, "it passes while it ends itself", ends=dies)
    one.at(0.5, one.says, b"F1003000;L").run(8.0)
    one = _course(told, "the agent is gone, and its place is another's", ends=dies)
    one.at(0.5, one.says, b"F1009000;").at(1, one.says, b"").run(8.0)
    one = _course(told, "it is over before the start", ends=dies)
    one.says(b"F1000000;")
    one.run()
    one = _course(told, "the agent is gone before the start", ends={(50, TERM): (0.5, 15)})
    one.says(b"")
    one.run()
    return told


def who_is_told_to_end() -> Told:
    """By its launcher, or by the keeper: skewed, and two kinds of launchers in one program."""
    told = Told()
    led, local = frozenset({b"TORCHELASTIC_RUN_ID=4"}), frozenset({b"LOCAL_RANK=2"})
    python = (b"/opt/python3.12", b"train.py")
    base = frozenset({b"A=1"})
    details = {
        OWN: Details(environment=base),
        50: Details((b"bash",), base),
        61: Details((b"/opt/python3", b"/bin/torchrun"), base),
        62: Details(python, base | led),
        63: Details(python, base | led),
        64: Details(python, base | led | {b"X=1"}),
        65: Details((b"/bin/timeout", b"9", b"x"), base),
        66: Details((b"x",), base),
        67: Details((b"python3", b"-u", b"-m", b"deepspeed.launcher.launch"), base),
        68: Details((b"python3", b"/bin/horovodrun"), base),
        69: Details(python, base, caught=frozenset({15})),
        70: Details(python, base | local),
        71: Details(python, base | {b"LOCAL_RANK=0"}),
    }
    dies = {(pid, TERM): (0.25 * (pid % 5), 15) for pid in details}
    dies |= {(pid, KILL): (0.0125, 9) for pid in details}
    places = {61: 50, 62: 61, 63: 61, 64: 63, 65: 50, 66: 65, 67: 50, 68: 50, 69: 50}
    places |= {70: 69, 71: 69}
    for title, lives in (
        ("each ends soon", ()),
        ("a launcher ends without a word to its ranks", (62, 63, 64, 70)),
        ("none but the killed ones end", tuple(details)),
    ):
        ends = {key: end for key, end in dies.items() if key[1] == KILL or key[0] not in lives}
        one = _course(told, title, ends=ends, details=details)
        for pid, parent in places.items():
            one.at(0.5, one.born, pid, parent, pid if pid in (62, 63, 64) else 50)
        one.at(1, one.says, b"T").run()
    return told


COURSES = {
    one.__name__: one
    for one in (
        *(how_a_program_ends_by_itself, how_a_program_is_ended),
        *(until_when_a_program_may_run, who_is_told_to_end),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_keeper_does(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
