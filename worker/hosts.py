"""The names of a run's nodes in /etc/hosts: one marked block, and every other byte as it was.

The file is written in place, since a container's /etc/hosts is a bind mount that no rename can
replace. The original lines stay where they are, so that no reader misses `localhost`; the block
stands at the end, and all between its markers belongs to rdzv:

    # BEGIN rdzv run=llama pid=17 start=4242 boot=5f3c... ns=4026531836 own=n0,node-0
    10.0.0.4 n0 node-0
    ::ffff:10.0.0.4 n0 node-0
    # END rdzv run=llama

A loopback line that carries this node's own name would win over the block (the C library sorts
loopback first). While a block stands, blanks cover the name, or a # the line's first letter, and
the block says what it was:

    # was 0: 127.0.0.1 localhost n0

A process can be killed in the middle of a write, which then has written some pages and not the
others. So nothing that is somebody else's is ever moved, and each step leaves a text from which
`restore_stale` makes the original one again.

Texts are a file's bytes decoded with `surrogateescape`; only a line feed ends a line.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, TypeAlias

from pydantic import TypeAdapter, ValidationError

from rendezvous.errors import ArmingFailed
from rendezvous.schema import Address, EndpointTable, RunId, TableRow, is_valid_label, printable

_BEGINS = "# BEGIN rdzv run="
_ENDS = "# END rdzv run="
_BEGIN = re.compile(
    r"# BEGIN rdzv run=([^\s]+) pid=([0-9]{1,20}) start=([0-9]{1,20}) boot=([^\s]*) "
    r"ns=([0-9]{1,20}) own=([^\s]*)( newline=added)?\r?\n?\Z"
)
_END = re.compile(r"# END rdzv run=([^\s]+)\r?\n?\Z")
_WAS = re.compile(r"# was ([0-9]{1,9}): (.*?)\r?\n?\Z", re.DOTALL)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FIELD = re.compile(r"[^ \t\v\f\r\n]+")  # as the C library separates them
_LOCK_SECONDS = 5.0
_MOST_TRIES = 10
_MOST_WORDS = 600
_ENDINGS = "\r\n"
_MOST_TOLD = 3
_ADDRESS: TypeAdapter[str] = TypeAdapter(Address)
_RUN_ID: TypeAdapter[str] = TypeAdapter(RunId)

_Fields: TypeAlias = tuple[str, ...]  # of one line: an address, then names


@dataclass(frozen=True)
class HostsEntry:
    """The names of one node."""

    address: str
    names: list[str]


@dataclass(frozen=True)
class HostsPlan:
    """What to write for a table.

    Attributes:
        entries: Only nodes that keep at least one name.
        own_names: The names that this node's loopback lines must give up.
        warning: Which names are left out, and why; empty when none is.
    """

    entries: list[HostsEntry]
    own_names: frozenset[str]
    warning: str


@dataclass(frozen=True)
class Owner:
    """The process that wrote a block, told apart from a later one with the same id.

    Attributes:
        start: When it started, in clock ticks since the boot.
        boot: The kernel's boot id.
        namespace: Its pid namespace; it cannot be seen from another one.
    """

    pid: int
    start: int
    boot: str
    namespace: int

    @classmethod
    def current(cls) -> Self:
        """This process."""
        pid = os.getpid()
        return cls(pid, _start_of(pid) or 0, _boot_id(), _pid_namespace())

    def may_live(self) -> bool:
        """Whether the process still runs, or cannot be seen from here."""
        if self.boot != _boot_id():
            return False
        return self.namespace != _pid_namespace() or self.start == _start_of(self.pid)


NOBODY = Owner(0, 0, "", 0)


@dataclass(frozen=True)
class _Block:
    run: str
    owner: Owner
    own_names: frozenset[str]
    body: str

    def text(self, was: str = "", *, newline_added: bool = False) -> str:
        owner = self.owner
        return (
            f"# BEGIN rdzv run={self.run} pid={owner.pid} start={owner.start} boot={owner.boot} "
            f"ns={owner.namespace} own={','.join(sorted(self.own_names))}"
            f"{' newline=added' if newline_added else ''}\n{was}{self.body}{_ENDS}{self.run}\n"
        )


class HostsBlock:
    """This process's block in a hosts file: put there, replaced, taken away.

    Its methods wait up to 5 s for another process that holds the file's lock, and raise
    `ArmingFailed` when the file cannot be written; the file is then as it was.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run
        self._owner = Owner.current()
        self._written: frozenset[_Fields] = frozenset()

    def install(self, table: EndpointTable, own_slot: int) -> str | None:
        """Write the table's names; say in one sentence which were left out, None when none was."""
        plan, written = HostsPlan([], frozenset(), ""), self._written

        def change(text: str) -> str:
            nonlocal plan, written
            rest = _without_lines(text, self._written)
            plan = plan_hosts(rest, table, own_slot, run=self._run)
            written = _fields_of(plan.entries) - set(map(_fields, _lines(_parse(rest)[0])))
            return render_hosts(
                rest, plan.entries, run=self._run, own_names=plan.own_names, owner=self._owner
            )

        edit_hosts(self._path, change)
        self._written = written
        return plan.warning or None

    def remove(self) -> None:
        """Take away what `install` wrote, also where a container engine has dropped the markers.

        The block of another process of the same run stays.
        """
        edit_hosts(
            self._path,
            lambda text: _without_blocks(
                _without_lines(text, self._written),
                lambda block: block.run == self._run and block.owner == self._owner,
            ),
        )
        self._written = frozenset()


def restore_stale(path: Path) -> list[str]:
    """Take away the blocks of processes that are gone; tell the runs they belonged to.

    Raises:
        ArmingFailed: There is such a block, and the file cannot be written.
    """
    stale: dict[str, None] = {}

    def is_stale(block: _Block) -> bool:
        if block.owner.may_live():
            return False
        stale[block.run] = None
        return True

    if path.exists():
        edit_hosts(path, lambda text: _without_blocks(text, is_stale))
    return list(stale)


# ---- what the text becomes: pure ----------------------------------------------------------------


def plan_hosts(current: str, table: EndpointTable, own_slot: int, *, run: str) -> HostsPlan:
    """Choose the names to write: each node's hostname, and `node-RANK`.

    Left out are a hostname that is no single label (silently), one that two nodes have, an alias
    that is another node's hostname, and a name that `current` already maps to another address.

    Raises:
        ArmingFailed: The table holds something that is no node's address.
    """
    elsewhere = _names_in(current, besides=run)
    hostnames = Counter(row.hostname.lower() for row in table.rows)
    entries, problems = [], []
    own_names: frozenset[str] = frozenset()
    for row in table.rows:
        address, own = _checked_address(row.address), row.slot == own_slot
        names = []
        for name in _wanted_names(row):
            taken = {a for a in elsewhere.get(name.lower(), ()) if not (own and _is_loopback(a))}
            problem = _problem(name, row, hostnames, taken - {address})
            if problem:
                problems.append(problem)
            else:
                names.append(name)
        if own:
            own_names = frozenset(names)
        if names:
            entries.append(HostsEntry(address, names))
    return HostsPlan(entries, own_names, _warning(problems))


def render_hosts(
    current: str,
    entries: Sequence[HostsEntry],
    *,
    run: str,
    own_names: AbstractSet[str],
    owner: Owner = NOBODY,
) -> str:
    """The text with this run's block at its end; a block of this run that is there is replaced.

    Args:
        current: The text now, with or without blocks.
        entries: Each gets a line, an IPv4 address a second one in its ::ffff: form: torch's store
            looks that up, and would wait for the name server.
        run: The run id.
        own_names: Names that loopback lines give up while the block stands.
        owner: Who writes.

    Raises:
        ArmingFailed: An address or name that must not stand in a hosts file.
    """
    lines = [line for entry in entries for line in _entry_lines(entry)]
    own = frozenset(_checked_name(name).lower() for name in own_names)
    block = _Block(_checked_run(run), owner, own, "".join(lines))
    original, blocks = _parse(current)
    return _compose(original, [*(other for other in blocks if other.run != run), block])


def remove_block(current: str, run: str | None) -> str:
    """The text without this run's block, or without any for None; else byte for byte as it was."""
    return _without_blocks(current, lambda block: run is None or block.run == run)


def _without_blocks(text: str, unwanted: Callable[[_Block], bool]) -> str:
    original, blocks = _parse(text)
    return _compose(original, [block for block in blocks if not unwanted(block)])


def _without_lines(text: str, written: AbstractSet[_Fields]) -> str:
    """The text without lines that were ours and stand outside of any block now."""
    original, blocks = _parse(text)
    kept = [line for line in _lines(original) if not (written and _fields(line) in written)]
    return _compose("".join(kept), blocks)


def _parse(text: str) -> tuple[str, list[_Block]]:
    """The text as it would be without rdzv, and the blocks in it."""
    lines, original, blocks, was = _lines(text), list[str](), list[_Block](), list[str]()
    newline_added_after = -1
    at = 0
    while at < len(lines):
        begin = _BEGIN.match(lines[at])
        end = _end_of_block(lines, at, begin.group(1)) if begin else None
        if end is None and _is_torn(lines, at):
            end = len(lines)
        if end is None:
            original.append(lines[at])
            at += 1
            continue
        if begin is not None:
            block, known = _block(begin, lines[at + 1 : end])
            blocks += [block] if end < len(lines) else []
            was += known
            newline_added_after = len(original) if begin.group(7) else newline_added_after
        at = end + 1
    if original and newline_added_after == len(original):
        original[-1] = original[-1].removesuffix("\n")
    for line in was:
        _switch_on(original, line)
    return "".join(original), blocks


def _compose(original: str, blocks: Sequence[_Block]) -> str:
    """The inverse of `_parse`: the original's bytes stay where they are, each line as long."""
    if not blocks:
        return original
    own = frozenset(name for block in blocks for name in block.own_names)
    before = _lines(original)
    after = [_switched_off(line, own) for line in before]
    was = "".join(
        f"# was {index}: {line.rstrip(_ENDINGS)}\n"
        for index, line in enumerate(before)
        if line != after[index]
    )
    newline_added = not original.endswith("\n") and original != ""
    first, *others = blocks
    return "".join(
        [
            *after,
            "\n" if newline_added else "",
            first.text(was, newline_added=newline_added),
            *(block.text() for block in others),
        ]
    )


def _lines(text: str) -> list[str]:
    return _LINE.findall(text)


def _end_of_block(lines: Sequence[str], begin: int, run: str) -> int | None:
    """Where the block ends; None for a beginning without an end, which is left alone."""
    for at in range(begin + 1, len(lines)):
        if _BEGIN.match(lines[at]):
            return None
        end = _END.match(lines[at])
        if end and end.group(1) == run:
            return at
    return None


def _is_torn(lines: Sequence[str], at: int) -> bool:
    """Whether here begins what a process wrote last of all before it was killed."""
    begin = _BEGIN.match(lines[at])
    if begin is None:
        is_last = at == len(lines) - 1 and not lines[at].endswith("\n")
        return is_last and lines[at].startswith(_BEGINS)
    rest = "".join(lines[at + 1 :]).lstrip("\n")
    return f"{_ENDS}{begin.group(1)}".startswith(rest)


def _block(begin: re.Match[str], inside: Sequence[str]) -> tuple[_Block, list[str]]:
    """A block, and its lines that tell what other lines were."""
    run, pid, start, boot, namespace, own, _ = begin.groups()
    owner = Owner(int(pid), int(start), boot, int(namespace))
    was = [line for line in inside if _WAS.match(line)]
    body = "".join(line for line in inside if not _WAS.match(line))
    return _Block(run, owner, frozenset(filter(None, own.split(","))), body), was


def _switched_off(line: str, own_names: AbstractSet[str]) -> str:
    """A loopback line without these names, as long as it was."""
    fields = list(_FIELD.finditer(line.partition("#")[0]))
    own = [name for name in fields[1:] if name.group().lower() in own_names]
    if not own or not _is_loopback(fields[0].group()):
        return line
    if len(own) == len(fields) - 1:
        return f"#{line[1:]}"
    for name in own:
        line = f"{line[: name.start()]}{' ' * len(name.group())}{line[name.end() :]}"
    return line


def _switch_on(original: list[str], was: str) -> None:
    """The inverse of `_switched_off`; a line that somebody else has changed meanwhile stays."""
    told = _WAS.match(was)
    assert told is not None
    index, whole = int(told.group(1)), told.group(2)
    if not _fields(whole) or not _is_loopback(_fields(whole)[0]):
        return  # torn as well
    for at in (index, *range(len(original))):
        if at < len(original) and _may_have_been(original[at].rstrip(_ENDINGS), whole):
            line = original[at]
            original[at] = whole + line[len(line.rstrip(_ENDINGS)) :]
            return


def _may_have_been(line: str, whole: str) -> bool:
    """Whether nothing but blanks, or a # in front, make the line another than it was."""
    if len(line) != len(whole):
        return False
    return line[:1] in (whole[:1], "#") and all(
        now in (then, " ") for now, then in zip(line[1:], whole[1:], strict=True)
    )


def _fields(line: str) -> _Fields:
    """The address and names of a line; empty for a comment or what has no name."""
    fields = tuple(_FIELD.findall(line.partition("#")[0]))
    return fields if len(fields) > 1 else ()


def _fields_of(entries: Iterable[HostsEntry]) -> frozenset[_Fields]:
    return frozenset(_fields(line) for entry in entries for line in _entry_lines(entry))


def _names_in(text: str, *, besides: str) -> dict[str, set[str]]:
    """The addresses that each name has without this run's block, other runs' blocks included."""
    original, blocks = _parse(text)
    found: dict[str, set[str]] = {}
    for part in (original, *(block.body for block in blocks if block.run != besides)):
        for address, *names in filter(None, map(_fields, _lines(part))):
            for name in names:
                found.setdefault(name.lower(), set()).add(_canonical(address))
    return found


def _wanted_names(row: TableRow) -> list[str]:
    hostname = [row.hostname] if is_valid_label(row.hostname) else []
    alias = f"node-{row.rank}"
    return hostname if row.hostname.lower() == alias else [*hostname, alias]


def _problem(name: str, row: TableRow, hostnames: Counter[str], taken: AbstractSet[str]) -> str:
    """Why a name cannot be written for a row; empty when it can."""
    is_hostname = name == row.hostname
    if hostnames[name.lower()] > is_hostname:
        return f"{name} is also another node's hostname"
    if taken:
        return f"{name} is {', '.join(sorted(taken))} there and {row.address} in the table"
    return ""


def _warning(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    told = list(dict.fromkeys(problems))
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    text = f"names left out of the hosts file: {'; '.join(told[:_MOST_TOLD])}{more}"
    return printable(text, _MOST_WORDS)


def _entry_lines(entry: HostsEntry) -> list[str]:
    address = _checked_address(entry.address)
    names = " ".join(_checked_name(name) for name in entry.names)
    if not names:
        return []
    mapped = [] if ":" in address else [f"::ffff:{address} {names}\n"]
    return [f"{address} {names}\n", *mapped]


def _checked_address(address: str) -> str:
    try:
        return _ADDRESS.validate_python(address, strict=True)
    except ValidationError as exc:
        raise ArmingFailed(
            f"the endpoint table holds {printable(repr(address), 80)}, which is no node's address; "
            "it is not written into the hosts file",
            hint="look for a node or registry that is not the one you started",
        ) from exc


def _checked_name(name: str) -> str:
    if not is_valid_label(name):
        raise ArmingFailed(
            f"{printable(repr(name), 80)} cannot be written into the hosts file as a name",
            hint="a name is one label of letters, digits and '-', and is not localhost",
        )
    return name


def _checked_run(run: str) -> str:
    try:
        return _RUN_ID.validate_python(run, strict=True)
    except ValidationError as exc:
        raise ArmingFailed(f"{printable(repr(run), 80)} is not a run id") from exc


def _canonical(address: str) -> str:
    """One spelling for each address; IPv4 also for its ::ffff: form. What is none stays."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(_canonical(address)).is_loopback
    except ValueError:
        return False


# ---- the file -----------------------------------------------------------------------------------


def edit_hosts(
    path: Path, change: Callable[[str], str], *, lock_seconds: float = _LOCK_SECONDS
) -> None:
    """Change a hosts file in place, under its lock (flock).

    Args:
        path: The file; through a symbolic link its target is written.
        change: Makes the new text of the old one; called again when somebody else has written
            meanwhile, without asking for the lock.
        lock_seconds: How long to wait for another process that holds the lock.

    Raises:
        ArmingFailed: The file cannot be written; unless the message says more, it is as it was.
    """
    try:
        before = _decoded(path.read_bytes())
        if change(before) == before:
            return  # also where the file could not be written
        with path.open("r+b", buffering=0) as file:
            _lock(file.fileno(), lock_seconds)
            for _ in range(_MOST_TRIES):
                old = _content(file)
                new = _encoded(change(_decoded(old)))
                if _content(file) == old:  # nobody has written meanwhile
                    _replace(file, old, new)
                    if _content(file) == new:
                        return
        raise OSError(errno.EIO, "somebody else writes it all the time")
    except OSError as exc:
        raise ArmingFailed(
            f"{path} cannot be written: {exc.strerror or exc}",
            hint=_HINTS.get(exc.errno or 0, "use --hosts off to leave the file alone"),
        ) from exc


_HINTS = {
    errno.EROFS: "it is mounted read-only here; use --hosts off to leave it alone",
    errno.EACCES: "only root can write it; use --hosts off to leave it alone",
    errno.EPERM: "it may be immutable (lsattr); use --hosts off to leave it alone",
    errno.ENOSPC: "make room on its file system, or use --hosts off to leave it alone",
    errno.EWOULDBLOCK: "another process holds its lock (lslocks); try again",
}


def _lock(fd: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _replace(file: IO[bytes], old: bytes, new: bytes) -> None:
    try:
        _put(file.fileno(), old, new)
    except OSError as exc:
        _put_back(file, old, exc)
        raise


def _put_back(file: IO[bytes], old: bytes, cause: OSError) -> None:
    try:
        _put(file.fileno(), _content(file), old)  # what it needs was allocated
    except OSError as exc:
        words = f"{cause.strerror}, and the old text could not be put back: {exc.strerror}"
        raise OSError(cause.errno, words) from exc


def _put(fd: int, old: bytes, new: bytes) -> None:
    """Take our blocks away, and write the new ones; others' lines stay, and are always there."""
    if not new.startswith(old):
        plain = _encoded(_parse(_decoded(new))[0])
        _leave(fd, old, plain)
        old = plain
    if new != old:
        _append(fd, new[len(old) :])
        _overwrite(fd, old, new[: len(old)])
    os.fsync(fd)


def _leave(fd: int, old: bytes, plain: bytes) -> None:
    """Make the file plain again: first the lines that have lost a name, which the blocks know."""
    kept = _overwrite(fd, old, plain)
    _write(fd, plain[kept:], kept)
    end, known = len(plain), len(old)
    while added := os.pread(fd, 1 << 20, known):  # by somebody else, meanwhile
        known += len(added)
        joined = end == len(plain) and plain[-1:] not in (b"", b"\n")
        piece = b"\n" + added if joined else added
        _write(fd, piece, end)
        end += len(piece)
    os.ftruncate(fd, end)


def _overwrite(fd: int, old: bytes, new: bytes) -> int:
    """Write the lines that are others, as long as lines are as long as before; to which byte."""
    at = 0
    begins = _BEGINS.encode()
    for before, after in zip(_byte_lines(old), _byte_lines(new), strict=False):
        if len(before) != len(after) or before.startswith(begins):
            break
        if before != after:
            _write(fd, after, at)
        at += len(after)
    return at


def _append(fd: int, tail: bytes) -> None:
    """Add to the end, whoever else adds to it: first the markers, so that no block is without."""
    markers = (_BEGINS.encode(), _ENDS.encode())
    frame = b"".join(
        line if line.startswith(markers) else b"\n" * len(line) for line in _byte_lines(tail)
    )
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND)
    try:
        _check_whole(os.write(fd, frame), frame)
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    _write(fd, tail, os.lseek(fd, 0, os.SEEK_CUR) - len(tail))


def _write(fd: int, piece: bytes, at: int) -> None:
    _check_whole(os.pwrite(fd, piece, at), piece)


def _byte_lines(text: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", text)


def _check_whole(written: int, piece: bytes) -> None:
    if written < len(piece):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


# ---- who is alive -------------------------------------------------------------------------------


def _start_of(pid: int) -> int | None:
    """When a process started; None when there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return None if state in "ZX" else int(fields[18])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
