"""The block in /etc/hosts: every other byte stays, whoever is killed and whoever else writes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.errors import ArmingFailed
from tests.worker.test_hosts_plan import TWO, TWO_BODY, row, table
from tests.worker.test_hosts_text import BLOCK, ENTRIES, PLAIN, remove_block, render
from worker.hosts import file as hosts_file
from worker.hosts.file import HostsBlock, current_owner, edit_hosts, restore_stale
from worker.hosts.text import NOBODY, Owner, render_hosts
from worker.program.process_table import read_process


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text(PLAIN)
    return path


def test_a_table_that_must_not_be_written_leaves_the_file(hosts: Path) -> None:
    with pytest.raises(ArmingFailed, match="not a node's address"):
        HostsBlock(hosts, "r1").install(table(row(0, "n0", "10.0.0.4 bank")), 0)
    assert hosts.read_text() == PLAIN


def test_a_torn_marker_of_somebody_else_is_left_as_it_is(hosts: Path) -> None:
    content = b"# BEGIN rdzv run=r1 pid=1 start=1 boot=b ns=1 own=n0\n10.0.0.7 n7\n"
    hosts.write_bytes(content)
    block = HostsBlock(hosts, "r1")
    block.install(TWO, 0)
    assert TWO_BODY.encode() in hosts.read_bytes()
    block.remove()
    assert hosts.read_bytes() == content


def test_the_marker_names_run_and_process_and_what_is_left_out_is_returned(hosts: Path) -> None:
    hosts.write_text(PLAIN + "10.9.9.9 n1\n")
    block = HostsBlock(hosts, "r1")
    words = "n1 is 10.9.9.9 there and 10.0.0.5 in the table"
    assert block.install(TWO, 1) == f"names left out of the hosts file: {words}"
    owner = current_owner()
    assert owner.pid == os.getpid()
    assert hosts.read_text() == (
        f"{PLAIN}10.9.9.9 n1\n"
        f"# BEGIN rdzv run=r1 pid={owner.pid} start={owner.start} boot={owner.boot} "
        f"ns={owner.namespace} own=node-1\n{TWO_BODY.replace('n1 ', '')}# END rdzv run=r1\n"
    )
    block.remove()
    assert hosts.read_text() == PLAIN + "10.9.9.9 n1\n"


def test_a_letter_whose_small_one_is_a_plain_letter_stands_for_itself(hosts: Path) -> None:
    content = "127.0.0.1 localhost \u212a1 k1\n".encode()  # the Kelvin sign
    hosts.write_bytes(content)
    block = HostsBlock(hosts, "r1")
    assert block.install(table(row(0, "k1", "10.0.0.4")), 0) is None
    assert hosts.read_bytes().startswith(content.replace(b" k1", b"   ") + b"# BEGIN ")
    block.remove()
    assert hosts.read_bytes() == content


def test_the_file_stays_the_same_file_also_behind_a_link(hosts: Path, tmp_path: Path) -> None:
    hosts.chmod(0o640)
    before = hosts.stat()
    link = tmp_path / "link"
    link.symlink_to(hosts)
    HostsBlock(link, "r1").install(TWO, 0)
    assert link.is_symlink()
    after = hosts.stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


def test_a_change_that_changes_nothing_does_not_write(hosts: Path) -> None:
    os.utime(hosts, (1, 1))
    assert restore_stale(hosts) == []
    HostsBlock(hosts, "r1").remove()
    assert hosts.stat().st_mtime == 1


def test_what_a_container_engine_leaves_of_the_block_is_taken_away_too(hosts: Path) -> None:
    hosts.write_text(PLAIN + "10.0.0.5 n1 node-1\n")
    block = HostsBlock(hosts, "r1")
    block.install(TWO, 0)
    lines = [line for line in hosts.read_text().splitlines() if not line.startswith("#")]
    hosts.write_text("".join(f"{line.replace(' ', chr(9), 1)}\n" for line in lines))
    assert block.install(table(row(0, "n0", "10.0.0.6"), row(1, "n1", "10.0.0.5")), 0) is None
    assert hosts.read_text().count("10.0.0.6") == 2
    block.remove()
    assert "10.0.0.4" not in hosts.read_text()
    assert "10.0.0.6" not in hosts.read_text()
    assert "10.0.0.5\tn1 node-1\n" in hosts.read_text()


def test_what_a_container_engine_leaves_of_the_second_block_is_taken_away_too(hosts: Path) -> None:
    """The programs have started again on another table; each time the markers are dropped."""
    block = HostsBlock(hosts, "r1")
    for third in (6, 7, 8):
        sealed = table(row(0, "n0", f"10.0.0.{third}"), row(1, "n1", f"10.0.1.{third}"))
        assert block.install(sealed, 0) is None
        text = hosts.read_text()
        found = [line for line in text.splitlines() if "10.0." in line]
        assert len(found) == 4  # of this table alone
        assert all(f".{third} " in line for line in found)
        hosts.write_text("".join(f"{x}\n" for x in text.splitlines() if not x.startswith("#")))
    block.remove()
    assert "10.0." not in hosts.read_text()
    block.install(TWO, 1)
    block.remove()
    assert "10.0." not in hosts.read_text()


def test_the_block_of_another_process_of_the_run_stays(hosts: Path) -> None:
    block = HostsBlock(hosts, "r1")
    block.install(TWO, 0)
    edit_hosts(hosts, lambda text: render(text))
    block.remove()
    assert hosts.read_text() == PLAIN + BLOCK


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    with pytest.raises(ArmingFailed, match=f"^{path} cannot be written: No such file or directory"):
        HostsBlock(path, "r1").install(TWO, 0)
    assert restore_stale(path) == []
    assert not path.exists()


def test_a_file_that_another_process_keeps_locked_is_left(hosts: Path) -> None:
    with hosts.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ArmingFailed, match="temporarily unavailable"):
            edit_hosts(hosts, lambda text: text + "x\n", lock_seconds=0.05)
    assert hosts.read_text() == PLAIN


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EROFS, "it is mounted read-only here; use --hosts off to leave it alone"),
        (errno.EACCES, "only root can write it; use --hosts off to leave it alone"),
        (errno.EPERM, "it may be immutable (lsattr); use --hosts off to leave it alone"),
        (errno.ENOSPC, "make room on its file system, or use --hosts off to leave it alone"),
        (errno.EWOULDBLOCK, "another process holds its lock (lslocks); try again"),
        (errno.EIO, "use --hosts off to leave the file alone"),
    ],
)
def test_what_keeps_a_file_from_being_written_is_said(hosts: Path, number: int, hint: str) -> None:
    def change(_: str) -> str:
        raise OSError(number, os.strerror(number))

    with pytest.raises(ArmingFailed) as caught:
        edit_hosts(hosts, change)
    told = f"{hosts} cannot be written: {os.strerror(number)}"
    assert (caught.value.message, caught.value.hint) == (told, hint)


def test_a_file_that_is_replaced_while_its_lock_is_waited_for_is_changed_too(
    hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    new.write_text("10.9.9.9 new\n")
    waits = threading.Event()
    lock = fcntl.flock

    def locks(file: int, flags: int) -> None:
        try:
            lock(file, flags)
        except BlockingIOError:
            waits.set()
            raise

    with hosts.open() as other, ThreadPoolExecutor() as pool:
        lock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", locks)
        edited = pool.submit(edit_hosts, hosts, render, lock_seconds=30.0)
        assert waits.wait(30.0)
        new.replace(hosts)
        lock(other, fcntl.LOCK_UN)
        edited.result(30.0)
    assert hosts.read_text() == "10.9.9.9 new\n" + BLOCK


def test_a_line_that_an_editor_puts_in_front_meanwhile_is_kept(hosts: Path) -> None:
    hosts.write_text("127.0.1.1 n0\n")
    reads = []

    def change(text: str) -> str:
        reads.append(text)
        if len(reads) == 2:  # the first is made without the lock
            hosts.write_text("10.9.9.9 new\n" + text)
        return render(text)

    edit_hosts(hosts, change)
    assert hosts.read_text() == render("10.9.9.9 new\n127.0.1.1 n0\n")


def test_a_line_added_while_it_is_cut_is_kept(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = HostsBlock(hosts, "r1")
    block.install(TWO, 0)
    editors = []
    cut = os.ftruncate

    def cut_while_an_editor_adds(fd: int, size: int) -> None:
        adds = f"echo 10.9.9.9 new >> {hosts}"
        editors.append(subprocess.Popen(["sh", "-c", adds]))
        time.sleep(0.2)
        cut(fd, size)

    monkeypatch.setattr(os, "ftruncate", cut_while_an_editor_adds)
    block.remove()
    assert [editor.wait(30.0) for editor in editors] == [0]
    assert hosts.read_text() == PLAIN + "10.9.9.9 new\n"


@pytest.mark.parametrize("text", [PLAIN, PLAIN[:-1], ""])
def test_lines_added_one_after_another_while_it_is_cut_are_kept(
    hosts: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Where no lease can be had that keeps others out."""
    hosts.write_text(text)
    block = HostsBlock(hosts, "r1")
    block.install(TWO, 0)
    pieces, read = ["10.9.9.1 new\n", "10.9.9.2 newer\n"], os.pread

    def read_after_another_piece(fd: int, size: int, at: int) -> bytes:
        if pieces:
            with hosts.open("a") as file:
                file.write(pieces.pop(0))
        return read(fd, size, at)

    monkeypatch.setattr(hosts_file, "_lease", lambda _: False)
    monkeypatch.setattr(os, "pread", read_after_another_piece)
    block.remove()
    newline = "\n" * (text == PLAIN[:-1])
    assert hosts.read_text() == f"{text}{newline}10.9.9.1 new\n10.9.9.2 newer\n"


@pytest.mark.parametrize(
    ("errors", "held", "left"),
    [
        ([errno.EAGAIN, errno.EAGAIN], True, 0),
        ([errno.EINVAL, errno.EINVAL], False, 1),  # a file system without leases
        ([errno.EAGAIN] * 100_000, False, 1),
    ],
)
def test_a_lease_is_asked_for_while_somebody_has_the_file_open_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch, errors: list[int], held: bool, left: int
) -> None:
    def control(fd: int, what: int, value: int) -> int:
        if what == fcntl.F_SETLEASE and errors:
            raise OSError(errors.pop(), "")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    assert hosts_file._lease(7) is held
    assert len(errors) >= left


def test_while_its_lock_is_waited_for_it_is_not_open(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the lock may need that nobody else has the file open."""
    with hosts.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def sleep(_: float) -> None:
            opened = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
            assert [*opened].count(str(hosts)) == 1
            fcntl.flock(other, fcntl.LOCK_UN)

        monkeypatch.setattr(time, "sleep", sleep)
        edit_hosts(hosts, lambda text: text + "10.9.9.9 new\n", lock_seconds=9.0)
    assert hosts.read_text() == PLAIN + "10.9.9.9 new\n"


def test_who_finds_it_changed_each_time_gives_up(hosts: Path) -> None:
    seen: list[str] = []

    def change(text: str) -> str:
        seen.append(text)
        hosts.write_text(f"10.9.9.{len(seen)} new\n")
        return text + "x"

    with pytest.raises(ArmingFailed, match="another program keeps writing it"):
        edit_hosts(hosts, change)
    assert "x" not in hosts.read_text()
    assert len(seen) < 100


@pytest.mark.parametrize("restored", [True, False])
def test_of_a_write_that_takes_a_part_nothing_stays_or_it_is_said(
    hosts: Path, monkeypatch: pytest.MonkeyPatch, restored: bool
) -> None:
    write = os.write

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:40]))
    if not restored:
        monkeypatch.setattr(os, "pwrite", fails)
        monkeypatch.setattr(os, "ftruncate", fails)
    with pytest.raises(ArmingFailed, match="No space left on device") as refused:
        HostsBlock(hosts, "r1").install(TWO, 0)
    assert "make room" in (refused.value.hint or "")
    words = "and the old text could not be restored: Input/output error"
    assert (words in refused.value.message) is not restored
    assert (hosts.read_text() == PLAIN) is restored


def test_a_file_that_somebody_keeps_open_is_cut_too(hosts: Path) -> None:
    block = HostsBlock(hosts, "r1")
    with hosts.open():
        block.install(TWO, 0)
        assert hosts.read_text() != PLAIN
        block.remove()
    assert hosts.read_text() == PLAIN


UGLY = {
    "empty": b"",
    "no final newline": b"127.0.0.1 localhost\n10.0.0.9 store",
    "only newlines": b"\n\n\n",
    "CRLF": b"127.0.0.1 localhost\r\n127.0.1.1 n0\r\n",
    "lone CR": b"127.0.0.1 localhost\r127.0.1.1 n0\r",
    "comments": b"# 127.0.0.1 n0\n127.0.0.1 localhost #n0\n#\n##\n127.0.1.1 n0#x\n",
    "own name on the localhost line": b"127.0.0.1 localhost N0\n::1 n0 localhost n0\n",
    "own name only": b"127.0.0.1 n0",
    "not UTF-8": b"127.0.0.1 localhost\n\xff\xfe\xc3\n127.0.1.1 n0 \xe9t\xe9\n",
    "odd separators": "127.0.0.1 localhost\x0c127.0.1.1 n0\x85\u2028 n0\x1c\x00\n".encode(),
}


class Recorded:
    """What was written into a file, to see it as it would be had the writer been killed."""

    def __init__(self, before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = before
        self.steps: list[tuple[int | None, bytes | None]] = []
        self._record(monkeypatch, "write", lambda data: (None, data))
        self._record(monkeypatch, "pwrite", lambda data, at: (at, data))
        self._record(monkeypatch, "ftruncate", lambda size: (size, None))

    def _record(self, monkeypatch: pytest.MonkeyPatch, name: str, step: Callable[..., Any]) -> None:
        real = getattr(os, name)

        def recorded(fd: int, *how: Any) -> Any:
            self.steps.append(step(*how))
            return real(fd, *how)

        monkeypatch.setattr(os, name, recorded)

    def states(self) -> Iterator[bytes]:
        """The file after each byte that was written."""
        state = bytearray(self.before)
        for at, data in self.steps:
            if data is None:
                del state[at:]
                yield bytes(state)
            start = len(state) if at is None else at
            for index, byte in enumerate(data or b"", start):
                state[index : index + 1] = bytes([byte])
                yield bytes(state)


@pytest.mark.parametrize("added", [b"", b"10.9.9.9 added\n127.0.0.9 n0"], ids=["", "added"])
@pytest.mark.parametrize("content", UGLY.values(), ids=UGLY)
def test_no_line_is_lost_whenever_the_writer_is_killed(
    hosts: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, added: bytes
) -> None:
    hosts.write_bytes(content)
    block = HostsBlock(hosts, "r1")
    recorded = Recorded(content, monkeypatch)
    block.install(TWO, 0)
    assert all(data is not None for _, data in recorded.steps)  # it cuts nobody's new line off
    newline = b"\n" * bool(content and not content.endswith(b"\n"))
    localhost = content.startswith(b"127.0.0.1 localhost")
    begun = content + newline + b"# BEGIN rdzv run="
    for state in () if added else recorded.states():
        assert state.startswith(b"127.0.0.1 localhost") is localhost  # no reader misses it
        restored = restored_text(state)
        # The first letters of a marker are not known as such.
        assert restored == content or begun.startswith(restored)
    with hosts.open("ab") as file:
        file.write(added)
    whole = content + newline * bool(added) + added
    recorded = Recorded(hosts.read_bytes(), monkeypatch)
    block.remove()
    lines = set(whole.split(b"\n"))
    for state in recorded.states():
        assert state.startswith(b"127.0.0.1 localhost") is localhost
        left = set(restored_text(state).split(b"\n"))
        assert lines <= left
        assert not left & set(TWO_BODY.encode().splitlines())
    assert hosts.read_bytes() == whole


def restored_text(state: bytes) -> bytes:
    return remove_block(state.decode("latin-1"), None).encode("latin-1")


# ---- who is alive -------------------------------------------------------------------------------


def with_block(owner: Owner, run: str = "r1", text: str = PLAIN) -> str:
    """The text with a block of this process."""
    return render_hosts(text, ENTRIES, run=run, own_names={"n0"}, owner=owner)


def test_the_block_of_a_killed_process_is_taken_away_and_a_live_ones_stays(hosts: Path) -> None:
    def owner(process: subprocess.Popen[bytes]) -> Owner:
        found = read_process(process.pid)
        assert found is not None
        return replace(current_owner(), pid=process.pid, start=found.started)

    with subprocess.Popen(["sleep", "60"]) as dead, subprocess.Popen(["sleep", "60"]) as living:
        text = with_block(owner(living), "r2", with_block(owner(dead), text="127.0.0.1 n0"))
        hosts.write_text(text)
        assert restore_stale(hosts) == []
        assert hosts.read_text() == text
        dead.kill()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        assert restore_stale(hosts) == ["r1"]
        assert hosts.read_text() == with_block(owner(living), "r2", "127.0.0.1 n0")
        living.kill()
        living.wait()  # no process at all
        assert restore_stale(hosts) == ["r2"]
    assert hosts.read_text() == "127.0.0.1 n0"


@pytest.mark.parametrize(
    ("lives", "change"),
    [
        (True, {}),
        (False, {"start": 1}),  # the same pid, later
        (False, {"boot": "another"}),
        (True, {"namespace": 1, "start": 1}),  # one that is not seen
        (False, {"namespace": 1, "boot": "another"}),
        (False, {"pid": 0}),
        (False, asdict(NOBODY)),
    ],
)
def test_an_owner_is_gone_when_that_is_known(hosts: Path, lives: bool, change: Any) -> None:
    hosts.write_text(with_block(replace(current_owner(), **change)))
    assert restore_stale(hosts) == ([] if lives else ["r1"])
    assert (hosts.read_text() == PLAIN) is not lives


# ---- mounts -------------------------------------------------------------------------------------

RESOLVES = """
import json, socket, sys
from pathlib import Path
from rendezvous.wire.table import EndpointTable
from worker.hosts.file import HostsBlock

def resolve(name):
    return sorted({found[4][0] for found in socket.getaddrinfo(name, 1)})

block = HostsBlock(Path("/etc/hosts"), "r1")
block.install(EndpointTable.model_validate_json(sys.argv[1]), 0)
resolved = {name: resolve(name) for name in ["n0", "n1", "node-0", "node-1", "localhost"]}
reverse = socket.getnameinfo(("::ffff:10.0.0.5", 1), 0)[0]
block.remove()
print(json.dumps([resolved, reverse]))
"""


@pytest.mark.netns
def test_over_a_bind_mount_the_names_resolve_while_the_block_stands(hosts: Path) -> None:
    before = "127.0.0.1 localhost n0\n127.0.1.1 n0\n::1 localhost n0"
    hosts.write_text(before)
    mounts = ["unshare", "--mount", "sh", "-ec", f'mount --bind {hosts} /etc/hosts; exec "$0" "$@"']
    command = [*mounts, sys.executable, "-c", RESOLVES, TWO.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = (["10.0.0.4", "::ffff:10.0.0.4"], ["10.0.0.5", "::ffff:10.0.0.5"])
    nodes = {"n0": first, "node-0": first, "n1": second, "node-1": second}
    assert json.loads(done.stdout) == [nodes | {"localhost": ["127.0.0.1", "::1"]}, "n1"]
    assert hosts.read_text() == before
