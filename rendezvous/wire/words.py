"""Text as people read it: what may be shown, and the one form of sizes, times, names and lists.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_BYTES = re.compile(r"[0-9]{1,11}[KMGkmg]?")
_SPAN = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")
PRINTABLE = re.compile(
    r"[^\x00-\x1f\x7f\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]*\Z"
)
"""No control characters, and nothing that turns or breaks a line."""


def size_text(low: int, high: int) -> str:
    """The one written form of a size, in which nodes compare it: 4, or 2:4."""
    return str(low) if low == high else f"{low}:{high}"


_PARTS = re.compile(r"([0-9]{1,18})|([^0-9]+)")


def natural_key(text: str) -> list[tuple[str, int]]:
    """A sort key in which node2 comes before node10, and eth9 before eth10."""
    return [(word, int(number or 0)) for number, word in _PARTS.findall(text)]


def time_text(seconds: float) -> str:
    """A time that has passed: coarse, as every node is told it; nothing for a moment."""
    if seconds < 10:
        return ""
    if seconds < 60:
        return f"{seconds // 10 * 10:.0f} s"
    return f"{seconds // 60:.0f} min" if seconds < 7200 else f"{seconds // 3600:.0f} h"


def printable(text: str, limit: int) -> str:
    """The text without control characters, cut to `limit` characters: fit for logs and boards."""
    clean = text
    if not PRINTABLE.match(text):
        clean = "".join(c if PRINTABLE.match(c) else "?" for c in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def did_you_mean(
    word: str, known: Iterable[str], form: str = "'{}'", *, least: float = 0.65
) -> str:
    """`did you mean 'a' or 'b'?`: at most two of the known words, nearest first; else "".

    Capitals do not count. `form` shows one word; `least`: how alike they must be, at most 1.
    """
    from difflib import SequenceMatcher  # rarely needed, and not free

    alike = {name: SequenceMatcher(None, name.lower(), word.lower()).ratio() for name in known}
    nearest = sorted(alike, key=alike.__getitem__, reverse=True)[:2]
    least = max(least, 0.9 * max(alike.values(), default=0))
    words = [form.format(name) for name in nearest if alike[name] >= least]
    return f"did you mean {' or '.join(words)}?" if words else ""


def listed(names: Iterable[str], limit: int = 5, *, of: int | None = None) -> str:
    """`a, b, c and 4 more`; `of`: how many there are, where only the first ones are given."""
    names = list(names)
    count = len(names) if of is None else of
    more = f" and {count - limit} more" if count > limit else ""
    return ", ".join(names[:limit]) + more


def all_of(count: int, noun: str = "node") -> str:
    """`the node`, `both nodes`, `all 4 nodes`."""
    if count < 2:
        return f"the {noun}"
    return f"both {noun}s" if count == 2 else f"all {count} {noun}s"


def few(names: Iterable[str], most: int = 5) -> str:
    """`a, b, c` of a few, `a and 249 more` of many."""
    names = list(names)
    return listed(names, len(names) if len(names) <= most else 1)


def slots_text(indices: Sequence[int]) -> str:
    """`slot 5`, or `slots 1-3, 5`; the indices are in order."""
    return f"slot{'s' * (len(indices) > 1)} {spans_text(indices)}"


def numbers_text(ranks: Iterable[int]) -> str:
    """`rank 5`, or `ranks 0-3, 8`."""
    numbers = sorted(ranks)
    return f"rank{'s' * (len(numbers) > 1)} {spans_text(numbers)}"


def spans_text(indices: Sequence[int]) -> str:
    """`1-3, 5`; the indices are in order."""
    spans: list[tuple[int, int]] = []
    for index in indices:
        if spans and spans[-1][1] == index - 1:
            spans[-1] = (spans[-1][0], index)
        else:
            spans.append((index, index))
    names = [str(low) if low == high else f"{low}-{high}" for low, high in spans]
    return listed(names)


def spans_of(members: str) -> list[range]:
    """`0-3,8` as ranges; nothing where it is not of this form."""
    found = []
    for word in members.replace(" ", "").split(","):
        span = _SPAN.fullmatch(word)
        if span is None:
            return []
        found.append(range(int(span[1]), int(span[2] or span[1]) + 1))
    return found


def node_name(node: int | None, hostname: str, slot: int | None = None) -> str:
    """`node 1 (h1)`; `node 1 (h1, slot 3)` where the slot has another number; `slot 3 (h1)` before
    nodes have numbers."""
    about = [hostname] if hostname else []
    if node is None:
        node, kind = slot, "slot"
    else:
        kind, differs = "node", slot not in (None, node)
        about += [f"slot {slot}"] * differs
    return f"{kind} {node} ({', '.join(about)})" if about else f"{kind} {node}"


_COMMANDS = ("rdzv cancel", "rdzv drain", "rdzv restart")
"""The reasons of a person who gives none: the command."""


def reason_clause(reason: str) -> str:
    """` with 'rdzv cancel' by ann on h0` of a command, `: bad fan` of a person's own words, or
    both."""
    asked, _, words = reason.partition(": ")
    command, *by = asked.partition(" by ")
    if command not in _COMMANDS:
        command, by, words = "", [], reason
    return f" with {command!r}{''.join(by)}" * bool(command) + f": {words}" * bool(words)


_OF_RUN = re.compile(r"\brdzv (\w+) RUN\b")


def hint_for(run: str, hint: str) -> str:
    """Name the run in the commands of a hint: `rdzv logs llama` in place of `rdzv logs RUN`."""
    return _OF_RUN.sub(lambda command: f"rdzv {command[1]} {run}", hint)


def no_node_words(run: str, node: int, count: int) -> str:
    """`run 'llama' has no node 7: its nodes are 0 to 3`, where so many have a number."""
    known = "its only node is 0" if count else "none of its nodes has a number yet"
    if count > 1:
        known = f"its nodes are 0 to {count - 1}"
    return f"run '{run}' has no node {node}: {known}"


def slot_name(slot: int, hostnames: Mapping[int, str]) -> str:
    """`slot 9 (h9)`."""
    return node_name(None, hostnames.get(slot, ""), slot)


def group_name(slots: Sequence[int], hostnames: Mapping[int, str]) -> str:
    """`slot 1 (h1), slot 4 (h4)` of a few, `slots 0-63` of many."""
    if len(slots) <= 2:
        return ", ".join(slot_name(slot, hostnames) for slot in slots)
    return slots_text(slots)


def bracketed(host: str) -> str:
    """A host in front of a port: `[fd00::5]`; a name or an IPv4 address stays."""
    return f"[{host}]" if ":" in host else host


def duration_text(seconds: float) -> str:
    """`4.2 s`, `45 s`, `2 min 10 s`, `40 min`, `3 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def seconds_text(seconds: float) -> str:
    """`12 ms`, `1.5 s`, `40 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def ms_text(milliseconds: float) -> str:
    """`0.12 ms`, `230 ms`."""
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"


def read_bytes(text: str) -> int:
    """A number of bytes, also with K, M or G; raises ValueError."""
    if not _BYTES.fullmatch(text):
        raise ValueError("a size is a number of bytes, also with K, M or G: 64K, 16M, 1G")
    return int(text.rstrip("KMGkmg")) << {"K": 10, "M": 20, "G": 30}.get(text[-1].upper(), 0)


def bytes_text(count: float) -> str:
    """`700 MiB`, `1.5 GiB`, `12 bytes`."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            amount = count / size
            return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"
    return f"{count:.0f} bytes"
