"""The processes of this machine as /proc shows them, and signals to them.

The keeper imports it in a bare interpreter: nothing but the standard library is there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

KILL_SECONDS = 10.0
"""How long SIGKILL is repeated: a process stuck in a driver or a file server may never end."""

_COMMAND_LENGTH = 60


class Process(NamedTuple):
    """One process as /proc/PID/stat shows it; `started` tells a number that was used again."""

    pid: int
    parent: int
    group: int
    state: str
    started: int
    status: int

    def age_seconds(self) -> float:
        """Time since its start."""
        ticks = os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / ticks  # noqa: TID251


class Details(NamedTuple):
    """What else is known of a process; empty where it cannot be read, or is gone.

    Attributes:
        words: Its command line.
        environment: See `environment_of`.
        ignored: Signals that it ignores, and `caught`, those that it handles itself.
    """

    words: tuple[bytes, ...] = ()
    environment: frozenset[bytes] = frozenset()
    ignored: frozenset[int] = frozenset()
    caught: frozenset[int] = frozenset()


def read_process(pid: int) -> Process | None:
    """Look at one process; None when it is gone. A zombie's `status` is its wait status."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, 4096)
        finally:
            os.close(fd)
    except OSError:
        return None
    # The name of the program, in parentheses, may hold blanks and parentheses itself.
    fields = text.rpartition(b")")[2].split()
    parent, group = int(fields[1]), int(fields[2])
    return Process(pid, parent, group, fields[0].decode(), int(fields[19]), int(fields[49]))


def read_details(pid: int) -> Details:
    """Look closer at one process."""
    # The name, the first line's, may hold anything but a line's end.
    lines = [line.partition(b":\t") for line in _read(pid, "status").split(b"\n")]
    masks = {name: mask for name, _, mask in lines}
    return Details(
        tuple(_read(pid, "cmdline").split(b"\0")[:-1]),
        frozenset(environment_of(pid)),
        *(_signals(masks.get(name, b"0")) for name in (b"SigIgn", b"SigCgt")),
    )


def environment_of(pid: int) -> list[bytes]:
    """What a process was started with, NAME=VALUE each; empty where that cannot be read."""
    return [item for item in _read(pid, "environ").split(b"\0") if item]


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _signals(mask: bytes) -> frozenset[int]:
    bits = int(mask, 16)
    return frozenset(n + 1 for n in range(bits.bit_length()) if bits >> n & 1)


def command_of(pid: int) -> str:
    """A process's command in a few words; empty when it is gone."""
    words = _read(pid, "cmdline")[:4096].decode(errors="replace").split("\0")
    return short_command(words, _read(pid, "comm").decode(errors="replace").strip())


def short_command(words: list[str], name: str) -> str:
    """The program's name, and the script or module that it runs; `name` where it has no words.

    Every other argument is left out: it may hold a secret.
    """
    first, *arguments = (words[0].split() or [name])[:1] + words[1:]
    shown = [os.path.basename(first)]
    for before, word in zip([first, *arguments], arguments, strict=False):
        if before == "-m":
            shown += ["-m", word]
            break
        if word.endswith((".py", ".sh")) and not set(word) & set(" =:\n"):
            shown += [os.path.basename(word)]
            break
    text = "".join(c if c.isprintable() else "?" for c in " ".join(shown))
    return text[:_COMMAND_LENGTH]


def processes() -> list[Process]:
    """Every process of this machine (or container) that can be seen."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[Process]:
    """Everything below `root`, parents first, without `spare` and all that is below these."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [root]
    for parent in parents:
        kept = [child for child in children.get(parent, []) if child.pid not in spare]
        found += kept
        parents += [child.pid for child in kept]
    return found


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone, or no longer ours to signal (setuid)."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def terminate(everyone: list[Process]) -> None:
    """SIGTERM to all; a stopped process is woken, or it would never see it."""
    for process in everyone:
        send(process.pid, signal.SIGTERM)
    wake(everyone)


def wake(everyone: list[Process]) -> None:
    """SIGCONT to what is stopped: whoever has told it to end would wait for it until the kill."""
    for process in everyone:
        if process.state == "T":
            send(process.pid, signal.SIGCONT)


def kill(everyone: list[Process]) -> None:
    """SIGKILL to all."""
    for process in everyone:
        send(process.pid, signal.SIGKILL)


def still_there(left: list[Process]) -> str:
    """The sentence about processes that outlived SIGKILL."""
    pids = ", ".join(f"{process.pid} (state {process.state})" for process in left)
    return f"SIGKILL did not end these processes within {KILL_SECONDS:.0f} s: {pids}"
