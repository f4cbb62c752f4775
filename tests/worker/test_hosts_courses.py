"""What is done to a hosts file, call by call, is as in `hosts_courses.txt`.

Of skewed tables, each thing twice, with others who write, hold the lock or the file; the text after
each step. See `make reference`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rendezvous.wire.errors import ArmingFailed
from tests.support.courses import lines_in, one_line, text_of
from tests.worker.skewed import SLOT, skewed
from tests.worker.told import Instead, Told
from worker.hosts import file as hosts_file
from worker.hosts import resolver
from worker.hosts.file import HostsBlock, edit_hosts, known_names, may_live, restore_stale
from worker.hosts.plan import plan_hosts
from worker.hosts.resolver import addresses_of, names_to_ask
from worker.hosts.text import Owner, hollow, names_in, names_of, original_of

KNOWN = Path(__file__).with_name("hosts_courses.txt")
PLAIN = "127.0.0.1 localhost\n127.0.1.1 gpu-4 gpu-4.example\n10.4.0.9 store\n"
OWN, OTHER = Owner(4_711, 900, "boot-7", 33), Owner(77, 31, "boot-7", 33)
FIRST = skewed()
SECOND = skewed(6, order=(2, 0, 1), addresses=("10.5.0.31", "10.5.0.14", "10.5.0.22"))


class Clock:
    """In place of `time`."""

    def __init__(self) -> None:
        self.now = 70.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.now += seconds


class File:
    """A hosts file, and the calls that reach it."""

    def __init__(self, folder: str, patch: pytest.MonkeyPatch) -> None:
        self.told, self.path, self.patch = Told(), Path(folder, "hosts"), patch
        self.path.write_text(PLAIN)
        self.clock = Clock()
        patch.setattr(hosts_file, "time", self.clock)
        patch.setattr(hosts_file, "current_owner", lambda: OWN)
        self.leases: list[int] = []
        self.locks: list[int] = []
        self.full = 1 << 20
        """Bytes until the file system is full."""
        self.calls()

    def calls(self) -> None:
        """Tell those that change something."""

        def lease(fd: int, what: int, value: int = 0) -> int:
            if what == fcntl.F_SETLEASE and value == fcntl.F_WRLCK and self.leases:
                number = self.leases.pop(0)
                if number:
                    raise OSError(number, "lease")
                return 0
            if what in (fcntl.F_SETLEASE, fcntl.F_SETSIG):
                return 0
            return fcntl.fcntl(fd, what, value)

        def lock(fd: int, how: int) -> None:
            if self.locks:
                number = self.locks.pop(0)
                raise OSError(number, "lock")

        def written(call: Callable[..., int]) -> Callable[..., int]:
            def write(fd: int, data: bytes, *at: int) -> int:
                if self.full <= 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                kept = data[: self.full]
                self.full -= len(kept)
                return call(fd, kept, *at)

            return write

        told = self.told
        calls = {
            "pwrite": written(os.pwrite),
            "write": written(os.write),
            "ftruncate": os.ftruncate,
            "fsync": os.fsync,
        }
        self.patch.setattr(hosts_file, "os", _Plain(told, os, **calls))
        self.patch.setattr(hosts_file, "fcntl", _Plain(told, fcntl, fcntl=lease, flock=lock))

    def is_so(self, what: str) -> None:
        """The text, and the seconds that have passed."""
        self.told.of(f"{what} ({self.clock.now - 70:.3f} s)", self.path.read_text())

    def tries(self, what: str, step: Callable[[], Any]) -> None:
        """Do it, and tell what came of it."""
        self.told.lines.append(f"= {what}")
        try:
            found = step()
        except ArmingFailed as exc:
            self.told.refused(_without(exc, self.path))
        else:
            if found is not None:
                self.told.lines.append(f"- {one_line(found)}")
        self.is_so(what)


def _without(exc: ArmingFailed, path: Path) -> ArmingFailed:
    return ArmingFailed(exc.message.replace(str(path), "HOSTS"), hint=exc.hint)


class _Plain(Instead):
    """Without the number of the file, and what is tried again and again once."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in self._calls:
            return found

        def call(*given: Any) -> Any:
            try:
                return found(*given)
            finally:
                line = self._told.lines.pop().replace(f"({given[0]}", "(fd", 1)
                if given[1:2] == (fcntl.F_SETFL,):
                    line = f"@ appends {bool(given[2] & os.O_APPEND)}"
                if given[1:2] != (fcntl.F_GETFL,) and self._told.lines[-1:] != [line]:
                    self._told.lines.append(line)

        return call


@contextmanager
def a_file() -> Iterator[File]:
    """One of which nothing is left."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        yield File(folder, patch)


def a_block_that_comes_and_goes() -> Told:
    """Installed, the same again, another one, beside another run's, and taken away twice."""
    with a_file() as hosts:
        block = HostsBlock(hosts.path, "llama")
        hosts.tries("installed", lambda: block.install(FIRST, SLOT))
        hosts.tries("the same again", lambda: block.install(FIRST, SLOT))
        other = HostsBlock(hosts.path, "qwen")
        hosts.tries(
            "another run's",
            lambda: other.install(skewed(addresses=("10.6.0.1", "10.6.0.2", "10.6.0.3")), 7),
        )
        hosts.tries("another table", lambda: block.install(SECOND, SLOT))
        text = hosts.path.read_text()
        hosts.told.of("names", names_of("llama", text), names_in(text, besides="llama"))
        hosts.told.of("plain", original_of(text), hollow(text))
        hosts.tries("a former one's is away", lambda: other.remove())
        hosts.tries("away", block.remove)
        hosts.tries("away again", block.remove)
        own = "10.5.0.31 gpu-9 node-1\n"
        hosts.tries(
            "now such a line is theirs", lambda: hosts.path.write_text(PLAIN + own) and None
        )
        hosts.tries("away once more", block.remove)
        hosts.tries("installed beside it", lambda: block.install(FIRST, SLOT))
        hosts.tries("it stays", block.remove)
        hosts.tries("without a final newline", lambda: hosts.path.write_text(PLAIN[:-1]) and None)
        hosts.tries("installed", lambda: block.install(FIRST, SLOT))
        hosts.tries(
            "a line is added",
            lambda: hosts.path.write_text(hosts.path.read_text() + "10.9.9.9 new\n") and None,
        )
        hosts.tries("away", block.remove)
        return hosts.told


def who_else_is_there() -> Told:
    """Locks and leases that are held for a while and for ever, and others that write."""
    with a_file() as hosts:
        block = HostsBlock(hosts.path, "llama", lock_seconds=0.05)
        hosts.locks = [errno.EAGAIN, errno.EAGAIN]
        hosts.tries("locked for a moment", lambda: block.install(FIRST, SLOT))
        hosts.locks = [errno.EAGAIN] * 9
        hosts.tries("locked for long", block.remove)
        hosts.locks = [errno.ENOLCK]
        hosts.tries("no lock is to be had", block.remove)
        hosts.locks = []
        hosts.leases = [errno.EAGAIN, errno.EAGAIN, 0]
        hosts.tries("open for a moment", block.remove)
        block.install(FIRST, SLOT)
        hosts.leases = [errno.EINVAL, 0]
        hosts.tries("no lease is to be had", block.remove)
        block.install(FIRST, SLOT)
        hosts.leases = [errno.EAGAIN] * 200
        hosts.tries("open for long", block.remove)
        hosts.told.of("left", 200 - len(hosts.leases))
        hosts.leases = []
        seen: list[str] = []

        def changes(text: str) -> str:
            seen.append(text)
            if len(seen) in (2, 3):
                hosts.path.write_text(f"10.9.9.{len(seen)} new\n" + text)
            return text + "10.8.8.8 mine\n"

        hosts.tries("another writes", lambda: edit_hosts(hosts.path, changes))
        hosts.told.of("seen", len(seen))

        def never(text: str) -> str:
            seen.append(text)
            hosts.path.write_text(f"10.7.7.{len(seen)} new\n")
            return text + "x"

        hosts.tries("another writes again and again", lambda: edit_hosts(hosts.path, never))
        hosts.told.of("seen", len(seen))
        return hosts.told


def others_add_while_it_is_cut() -> Told:
    """Nothing, two lines one after another, and lines to a text without an end."""
    with a_file() as hosts:
        block = HostsBlock(hosts.path, "llama")
        added: list[str] = []

        def read(fd: int, most: int, at: int) -> bytes:
            if added:
                with hosts.path.open("a") as file:
                    file.write(added.pop(0))
            return os.pread(fd, most, at)

        hosts.patch.setattr(hosts_file, "os", Instead(Told(), hosts_file.os, pread=read))  # type: ignore[attr-defined]
        for what, text, pieces in (
            ("two in one", PLAIN, ["10.9.9.1 new\n10.9.9.2 newer\n"]),
            ("one after another", PLAIN, ["10.9.9.1 new\n", "10.9.9.2 newer\n", "# end\n"]),
            ("no end", PLAIN[:-1], ["10.9.9.1 new\n", "10.9.9.2 newer\n"]),
            ("an empty one", "", ["10.9.9.1 new\n", "10.9.9.2 newer"]),
        ):
            hosts.path.write_text(text)
            block.install(FIRST, SLOT)
            added[:] = pieces
            hosts.tries(what, block.remove)
        return hosts.told


def what_goes_wrong() -> Told:
    """A full file system while it is written, and while it is put back; files that are none."""
    with a_file() as hosts:
        block = HostsBlock(hosts.path, "llama")
        for room in (40, 300):
            hosts.full = room
            hosts.patch.setattr(hosts_file, "_put", _refilled(hosts, hosts_file._put))
            hosts.tries(f"room for {room}", lambda: block.install(FIRST, SLOT))
            hosts.patch.setattr(hosts_file, "_put", hosts_file._put.whole)  # type: ignore[attr-defined]
        hosts.full = 40
        hosts.path.write_text(PLAIN)
        hosts.tries("room for 40 for good", lambda: block.install(FIRST, SLOT))
        hosts.full = 1 << 20
        hosts.path.write_text(PLAIN)
        for number in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO):

            def refuse(*_: Any, number: int = number) -> Any:
                raise OSError(number, f"errno {number}")

            hosts.patch.setattr(hosts_file, "_locked", refuse)
            hosts.tries(f"errno {number}", lambda: block.install(FIRST, SLOT))
        gone = hosts.path.with_name("gone")
        hosts.told.of("gone", restore_stale(gone), known_names(gone, "llama"))
        return hosts.told


def _refilled(hosts: File, put: Any) -> Any:
    """Put something; the next time there is room again."""

    def again(fd: int, old: str, new: str) -> None:
        try:
            put(fd, old, new)
        finally:
            hosts.full = 1 << 20

    again.whole = put  # type: ignore[attr-defined]
    return again


def whose_blocks_are_stale() -> Told:
    """Blocks of processes that live, are gone, and of other boots and namespaces."""
    with a_file() as hosts:
        started = {4_711: 900, 77: 32, 78: None}
        hosts.patch.setattr(hosts_file, "_start_of", started.get)
        hosts.patch.setattr(hosts_file, "_boot_id", lambda: "boot-7")
        hosts.patch.setattr(hosts_file, "_pid_namespace", lambda: 33)
        owners = {
            "lives": OWN,
            "another": OTHER,
            "gone": replace(OTHER, pid=78),
            "elsewhere": replace(OTHER, namespace=34),
            "before": replace(OWN, boot="boot-6"),
            "unknown": replace(OTHER, pid=79),
        }
        for number, (run, owner) in enumerate(owners.items()):
            hosts.patch.setattr(hosts_file, "current_owner", lambda owner=owner: owner)
            block = HostsBlock(hosts.path, run)
            block.install(skewed(addresses=tuple(f"10.{number}.0.{n}" for n in (1, 2, 3))), SLOT)
            hosts.told.of(run, may_live(owner))
        hosts.told.lines = [line for line in hosts.told.lines if not line.startswith("@")]
        hosts.is_so("six")
        hosts.told.of("known", known_names(hosts.path, "lives"))
        hosts.told.of("stale", restore_stale(hosts.path), restore_stale(hosts.path))
        hosts.told.lines = [line for line in hosts.told.lines if not line.startswith("@")]
        hosts.is_so("after")
        return hosts.told


def which_names_are_written() -> Told:
    """Plans: names that are taken, lead elsewhere, are twice there, or are no names."""
    told = Told()
    long = FIRST
    table = long.model_copy(
        update={
            "rows": [
                replace(long.rows[0], hostname="GPU-9"),
                replace(long.rows[1], hostname="node-2"),
                replace(long.rows[2], hostname="gpu-9"),
            ]
        }
    )
    cases: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "plain": (PLAIN, FIRST, {}),
        "taken": ("10.9.9.1 gpu-4 gpu-9\n10.4.0.22 gpu-6\n10.9.9.2 NODE-2 gpu-9\n", FIRST, {}),
        "own at loopback": ("127.0.1.1 gpu-4\n127.0.1.2 gpu-9\n::1 node-1\n", FIRST, {}),
        "twice": ("", table, {}),
        "lead elsewhere": (
            "",
            FIRST,
            {
                "gpu-9": {"10.7.0.1", "10.7.0.2"},
                "gpu-4": {"127.0.1.1"},
                "gpu-6": {"10.4.0.22", "10.7.0.3"},
            },
        ),
        "lead here": (
            "",
            FIRST,
            {"gpu-9": {"10.4.0.31"}, "gpu-4": {"::ffff:10.4.0.14"}, "node-0": {"10.1.1.1"}},
        ),
    }
    for what, (text, given, resolved) in cases.items():
        for slot in (SLOT, 7):
            plan = plan_hosts(text, given, slot, run="llama", resolved=resolved)
            told.of(
                f"{what}, of {slot}",
                *plan.entries,
                own=sorted(plan.own_names),
                warning=plan.warning,
            )
    told.of(
        "asked", names_to_ask(["Gpu-9", "store", "gpu-9", "a.b", "gpu-4", "Web"]), names_to_ask([])
    )
    many = [f"n{number}" for number in range(300)]
    told.of("of many", names_to_ask([*many, "vault", "kube"]), len(names_to_ask(many * 9)))
    answers: list[Any] = [
        [
            (2, 1, 6, "", ("10.0.0.4", 0)),
            (10, 1, 6, "", ("fe80::1%eth0", 0, 0, 2)),
            (2, 1, 6, "", ("10.0.0.4", 0)),
        ],
        OSError(5, "no"),
        UnicodeError("no"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for answer in answers:
            patch.setattr(resolver, "socket", Instead(told, socket, getaddrinfo=answer))
            told.of("addresses", sorted(addresses_of("gpu-9")))
    return told


COURSES = {
    one.__name__: one
    for one in (
        *(a_block_that_comes_and_goes, who_else_is_there, others_add_while_it_is_cut),
        what_goes_wrong,
        *(whose_blocks_are_stale, which_names_are_written),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_done_to_a_hosts_file(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
