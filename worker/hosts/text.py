"""The contents of a hosts file: the names it knows, rdzv's blocks, and the text without them.

All between the markers of a block belongs to rdzv. Blocks stand at the end, and the original lines
where they are, each as long as it was:

    # BEGIN rdzv run=llama pid=17 start=4242 boot=5f3c... ns=4026531836 own=n0,node-0
    10.0.0.4 n0 node-0
    ::ffff:10.0.0.4 n0 node-0
    # END rdzv run=llama

A loopback line that carries this node's own name would win over the block (the C library sorts
loopback first). While a block stands, blanks cover the name, or a # the line's first letter, and
the block says what it was:

    # was 0: 127.0.0.1 localhost n0

Texts are a file's bytes decoded as Latin-1, one character for each; only a line feed ends a line.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from pydantic import ValidationError

from rendezvous.frozen import frozen
from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.hostnames import is_valid_label
from rendezvous.wire.types import Address, RunId, adapter_of
from rendezvous.wire.words import printable

BEGINS = "# BEGIN rdzv run="
_ENDS = "# END rdzv run="
_BEGIN = re.compile(
    r"# BEGIN rdzv run=([^\s]+) pid=([0-9]{1,20}) start=([0-9]{1,20}) boot=([^\s]*) "
    r"ns=([0-9]{1,20}) own=([^\s]*)( newline=added)?\r?\n?\Z"
)
_END = re.compile(r"# END rdzv run=([^\s]+)\r?\n?\Z")
_WAS = re.compile(r"# was ([0-9]{1,9}): (.*?)\r?\n?\Z", re.DOTALL)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FIELD = re.compile(r"[^ \t\v\f\r\n]+")  # as the C library separates them
_ENDINGS = "\r\n"

Fields: TypeAlias = tuple[str, ...]  # of one line: an address, then names


@frozen
class HostsEntry:
    """The names of one node."""

    address: str
    names: list[str]


@frozen
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


NOBODY = Owner(0, 0, "", 0)


@frozen
class Block:
    """What stands between two markers, and what the first of them says."""

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
    block = Block(_checked_run(run), owner, own, "".join(lines))
    original, blocks = _parse(current)
    return _compose(original, [*(other for other in blocks if other.run != run), block])


def remove_blocks(text: str, unwanted: Callable[[Block], bool]) -> str:
    """The text without some of its blocks; without any it is byte for byte as it was."""
    original, blocks = _parse(text)
    return _compose(original, [block for block in blocks if not unwanted(block)])


def remove_lines(text: str, unwanted: AbstractSet[Fields]) -> str:
    """The text without lines of these fields that stand outside of any block."""
    original, blocks = _parse(text)
    kept = [line for line in lines_of(original) if not (unwanted and _fields(line) in unwanted)]
    return _compose("".join(kept), blocks)


def missing_lines(text: str, entries: Iterable[HostsEntry]) -> frozenset[Fields]:
    """What the lines of these entries hold that no line outside of any block does."""
    wanted = frozenset(_fields(line) for entry in entries for line in _entry_lines(entry))
    return wanted - frozenset(map(_fields, lines_of(original_of(text))))


def original_of(text: str) -> str:
    """The text as it would be without rdzv."""
    return _parse(text)[0]


def hollow(text: str) -> str:
    """The text with line feeds alone between the markers of each block, as long as it was."""
    lines = lines_of(text)
    for begin, end in _block_spans(lines):
        lines[begin + 1 : end] = ["\n" * len(line) for line in lines[begin + 1 : end]]
    return "".join(lines)


def lines_of(text: str) -> list[str]:
    """The lines with their line feeds."""
    return _LINE.findall(text)


def _parse(text: str) -> tuple[str, list[Block]]:
    """The text as it would be without rdzv, and the blocks in it."""
    lines, original, blocks, was = lines_of(text), list[str](), list[Block](), list[str]()
    newline_added_after = -1
    at = 0
    for first, end in _block_spans(lines):
        original += lines[at:first]
        begin = _BEGIN.match(lines[first])
        if begin is not None:
            block, known = _block(begin, lines[first + 1 : end])
            blocks += [block] if end < len(lines) else []
            was += known
            newline_added_after = len(original) if begin.group(7) else newline_added_after
        at = end + 1
    original += lines[at:]
    if original and newline_added_after == len(original):
        original[-1] = original[-1].removesuffix("\n")
    done = set[int]()
    for line in was:
        _switch_on(original, line, done)
    if at == 0:
        return text, []
    plain, nested = _parse("".join(original))  # a marker that stood alone may not do so now
    return plain, [*nested, *blocks]


def _block_spans(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first and last line of each block; a torn one ends behind the text."""
    at = 0
    while at < len(lines):
        begin = _BEGIN.match(lines[at])
        end = _end_of_block(lines, at, begin.group(1)) if begin else None
        if end is None and _is_torn(lines, at):
            end = len(lines)
        if end is not None:
            yield at, end
            at = end
        at += 1


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
        return is_last and lines[at].startswith(BEGINS)
    rest = "".join(lines[at + 1 :]).lstrip("\n")
    return f"{_ENDS}{begin.group(1)}".startswith(rest)


def _compose(original: str, blocks: Sequence[Block]) -> str:
    """The inverse of `_parse`: the original's bytes stay where they are, each line as long."""
    if not blocks:
        return original
    own = frozenset(name for block in blocks for name in block.own_names)
    before = lines_of(original)
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


def _block(begin: re.Match[str], inside: Sequence[str]) -> tuple[Block, list[str]]:
    """A block, and its lines that tell what other lines were."""
    run, pid, start, boot, namespace, own, _ = begin.groups()
    owner = Owner(int(pid), int(start), boot, int(namespace))
    was = [line for line in inside if _WAS.match(line)]
    body = "".join(line for line in inside if not _WAS.match(line))
    return Block(run, owner, frozenset(filter(None, own.split(","))), body), was


def _switched_off(line: str, own_names: AbstractSet[str]) -> str:
    """A loopback line without these names, as long as it was."""
    fields = list(_FIELD.finditer(line.partition("#")[0]))
    own = [name for name in fields[1:] if name.group().lower() in own_names]
    if not own or not is_loopback(fields[0].group()):
        return line
    if len(own) == len(fields) - 1:
        return f"#{line[1:]}"
    for name in own:
        line = f"{line[: name.start()]}{' ' * len(name.group())}{line[name.end() :]}"
    return line


def _switch_on(original: list[str], was: str, done: set[int]) -> None:
    """The inverse of `_switched_off`; a line that somebody else has changed meanwhile stays."""
    told = _WAS.match(was)
    assert told is not None
    index, whole = int(told.group(1)), told.group(2)
    if not _fields(whole) or not is_loopback(_fields(whole)[0]):
        return  # torn as well
    for at in (index, *range(len(original))):
        if at >= len(original) or at in done:
            continue
        line = original[at].rstrip(_ENDINGS)
        if _may_have_been(line, whole):
            original[at] = whole + original[at][len(line) :]
            done.add(at)
            return


def _may_have_been(line: str, whole: str) -> bool:
    """Whether nothing but blanks, or a # in front, make the line another than it was."""
    if len(line) != len(whole):
        return False
    return line[:1] in (whole[:1], "#") and all(
        now in (then, " ") for now, then in zip(line[1:], whole[1:], strict=True)
    )


def _fields(line: str) -> Fields:
    """The address and names of a line; empty for a comment or what has no name."""
    fields = tuple(_FIELD.findall(line.partition("#")[0]))
    return fields if len(fields) > 1 else ()


def names_in(text: str, *, besides: str) -> dict[str, set[str]]:
    """The addresses that each name has without this run's block, other runs' blocks included."""
    original, blocks = _parse(text)
    return _names(original, *(block.body for block in blocks if block.run != besides))


def names_of(run: str, text: str) -> dict[str, set[str]]:
    """The addresses that each name has in this run's block."""
    return _names(*(block.body for block in _parse(text)[1] if block.run == run))


def _names(*parts: str) -> dict[str, set[str]]:
    """The addresses that each name has in these parts of a hosts file."""
    found: dict[str, set[str]] = {}
    for part in parts:
        for address, *names in filter(None, map(_fields, lines_of(part))):
            for name in names:
                found.setdefault(name.lower(), set()).add(canonical(address))
    return found


def _entry_lines(entry: HostsEntry) -> list[str]:
    address = checked_address(entry.address)
    names = " ".join(_checked_name(name) for name in entry.names)
    if not names:
        return []
    mapped = [] if ":" in address else [f"::ffff:{address} {names}\n"]
    return [f"{address} {names}\n", *mapped]


def checked_address(address: str) -> str:
    """An address as it is written; raises ArmingFailed for what is no node's."""
    try:
        return str(adapter_of(Address).validate_python(address, strict=True))
    except ValidationError as exc:
        raise ArmingFailed(
            f"the endpoint table contains {printable(repr(address), 80)}, which is not a "
            "node's address; rdzv does not write it into the hosts file",
            hint="check whether a node or registry that you did not start takes part",
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
        return str(adapter_of(RunId).validate_python(run, strict=True))
    except ValidationError as exc:
        raise ArmingFailed(f"{printable(repr(run), 80)} is not a run id") from exc


def canonical(address: str) -> str:
    """One spelling for each address; IPv4 also for its ::ffff: form. What is none stays."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def is_loopback(address: str) -> bool:
    """Whether it leads to this node alone; False for what is no address."""
    try:
        return ipaddress.ip_address(canonical(address)).is_loopback
    except ValueError:
        return False
