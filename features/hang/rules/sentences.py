"""The words of a verdict: ranks, calls, places and times, and what to try. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from features.hang.rules.calls import Group, Point, call_of
from features.hang.rules.seen import Other, Seen
from features.hang.rules.stacks import Kind
from features.hang.rules.verdict import Rule, Source
from features.hang.wire import NodeLook
from rendezvous.wire.words import all_of, bytes_text, duration_text, listed, numbers_text

_BUSY_CPU_SECONDS = 0.05
_BUSY_BYTES = 1 << 20
_MOST_PLACES = 3
_MOST_NAME = 60
_MOST_HELD = 3

NEXT_STEPS: Mapping[Rule, str] = {
    "stopped": "was a debugger attached, or kill -STOP sent? kill -CONT PID continues what lives",
    "moving": "look again in some seconds: what hangs is in the same place then",
    "starting": "check how fast this node reads the environment's files, and what this rank prints "
    "(rdzv logs RUN)",
    "children": "see what these processes do there, and what they printed last: rdzv logs RUN",
    "cycle": "let all ranks call the collectives of both process groups in the same order",
    "behind": "see what this rank does there, and what it printed last: rdzv logs RUN",
    "different": "compare what the program does on these ranks before this call: a condition, a "
    "shape or a number of steps differs",
    "all_inside": "check the network (rdzv status --checks), the NCCL log (NCCL_DEBUG=INFO), and "
    "each node's kernel log for Xid errors (dmesg)",
    "odd_stack": "look again: what hangs is in the same place then",
    "unclear": "look again, and compare the places and the last words of the ranks: rdzv logs RUN",
    "nothing": "start the run with --look auto, and COMMAND as a Python program",
}
"""What to try after each rule."""


def of_text(ranks: Collection[int], of: int) -> str:
    """`7 of 8 ranks`, or `all 8 ranks`."""
    if len(ranks) == of:
        return all_of(of, "rank") if of > 1 else "the only rank"
    return f"{len(ranks)} of {of} ranks"


def rank_text(seen: Seen) -> str:
    """`rank 5 (node 2, gpu-17)`."""
    return f"rank {seen.rank} ({_node_text(seen)})"


def ranks_text(found: Sequence[Seen]) -> str:
    """`ranks 5, 6 (node 2, gpu-17)`; of several nodes each with its own."""
    if len(found) == 1:
        return rank_text(found[0])
    if len({seen.node.slot for seen in found}) == 1:
        return f"{numbers_text([seen.rank for seen in found])} ({_node_text(found[0])})"
    if len(found) > 3:
        nodes = len({seen.node.slot for seen in found})
        return f"{numbers_text([seen.rank for seen in found])} (of {nodes} nodes)"
    return listed(map(rank_text, found))


def gone_text(found: Sequence[Seen]) -> str:
    """`rank 5 (node 2, gpu-17) has ended`."""
    return f"{ranks_text(found)} {'have' if len(found) > 1 else 'has'} ended"


def _node_text(seen: Seen) -> str:
    node = seen.node
    name = f"slot {node.slot}" if node.node is None else f"node {node.node}"
    return f"{name}, {node.hostname}" if node.hostname else name


def call_text(group: Group, point: Point, function: str = "", *, brief: bool = False) -> str:
    """`all_reduce #21 (float32[1024]) of default_pg`, or `brief`; `function`: as stacks name it."""
    if point.peer:
        return f"a send or receive of {group.words}"
    call = None
    for rank in point.waiting:
        if call := call_of(group.parts[rank].group, point.number):
            break
    operation = operation_of(call.operation) if call else function or "call"
    what = f" ({call.what})" if call and call.what and not brief else ""
    of = "" if brief and group.is_default else f" of {group.words}"
    return f"{operation} #{point.number}{what}{of}"


def operation_of(operation: str) -> str:
    """Without the library's name: `nccl:all_reduce` is `all_reduce`."""
    return operation.rpartition(":")[2].strip("_")


def place_text(seen: Seen) -> str:
    """Where a rank is, and whether it is at work."""
    place = seen.place
    if place.kind is Kind.UNKNOWN and seen.awaits_children:
        where = f"it waits for {children_text(seen.children)}"
    elif place.kind is Kind.UNKNOWN:
        where = "where it is was not seen"
    elif place.kind is Kind.IMPORTING:
        name = f" {place.function}" if place.function else ""
        where = f"it is importing{name}, in {place.words}"
    elif seen.awaits_children:
        where = f"it is in {place.words} and waits for {children_text(seen.children)}"
    else:
        where = f"it is in {place.words}"
    if seen.awaits_disk:
        where += f" and waits for a disk or file system ({disk_text(seen)})"
    return where + work_text(seen)


def places_text(found: Iterable[Seen]) -> str:
    """`ranks 0-2 are in load (a.py:3); rank 3 is in save (a.py:9)`, the biggest place first."""
    places: dict[str, list[int]] = {}
    gone: list[int] = []
    for seen in found:
        (gone if seen.is_gone else places.setdefault(seen.place.words, [])).append(seen.rank)
    unknown = places.pop("", [])
    order = sorted(places.items(), key=lambda item: (-len(item[1]), item[1]))
    words = [f"{numbers_text(ranks)} {_verb(ranks)} in {place}" for place, ranks in order]
    if gone:
        words.insert(0, f"{numbers_text(gone)} {'has' if len(gone) == 1 else 'have'} ended")
    if unknown:
        words.append(f"where {numbers_text(unknown)} {_verb(unknown)} was not seen")
    more = f" and {len(words) - _MOST_PLACES} more" * (len(words) > _MOST_PLACES)
    return "; ".join(words[:_MOST_PLACES]) + more


def _verb(ranks: Collection[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def launcher_text(seen: Seen, its: str = "its") -> str:
    """`its launcher (torchrun --nnodes 2, process 71) is in get (store.py:9)`."""
    launcher = seen.launcher
    if launcher is None:
        return f"where {its} launcher is was not seen"
    name = launcher.look.name[:_MOST_NAME]
    return f"{its} launcher ({name}, process {launcher.number}) is {_other_place(launcher)}"


def children_text(children: Sequence[Other]) -> str:
    """`4 processes that it started: process 71 is in load (a.py:3), 3 are in get (b.py:9)`."""
    number = len(children)
    head = f"{number} process{'es' * (number != 1)} that it started"
    return f"{head}: {others_text(children)}"


def others_text(others: Sequence[Other]) -> str:
    """Places of processes, those at the same place together, the fewest first."""
    groups: dict[tuple[str, str], list[Other]] = {}
    for other in others:
        is_known = other.place.kind is not Kind.UNKNOWN
        name = "" if is_known else f" ({other.look.name[:_MOST_NAME]})"
        groups.setdefault((name, _other_place(other)), []).append(other)
    order = sorted(groups.items(), key=lambda item: (len(item[1]), item[1][0].number))
    words = [
        f"process {found[0].number}{name} is {place}"
        if len(found) == 1
        else f"{len(found)}{name} are {place}"
        for (name, place), found in order
    ]
    more = f" and {len(words) - _MOST_PLACES} more" * (len(words) > _MOST_PLACES)
    return ", ".join(words[:_MOST_PLACES]) + more


def _other_place(other: Other) -> str:
    """Place of a process that is not a rank: by its stack, or by what the kernel shows."""
    look, place = other.look, other.place
    if look.state in ("T", "t"):
        return "stopped (SIGSTOP, or a debugger)"
    if look.state in ("", "Z", "X", "x"):
        return "gone"
    if place.kind is not Kind.UNKNOWN:
        return f"in {place.words}{work_text(other)}"
    waits = f", waiting in {look.waits_in}" if look.waits_in else ""
    return f"in state {look.state}{waits}{work_text(other)}"


def disk_text(seen: Seen) -> str:
    """`D, nfs_wait_bit_killable`."""
    return f"D, {seen.look.waits_in}" if seen.look.waits_in else "D"


def is_at_work(seen: Seen | Other) -> bool:
    """Whether it used the CPU, or read or wrote, during the look."""
    return seen.look.cpu >= _BUSY_CPU_SECONDS or seen.look.bytes >= _BUSY_BYTES


def work_text(seen: Seen | Other) -> str:
    """`; it is at work: it used 2.1 s of CPU during the look`; empty for one that is not."""
    if not is_at_work(seen):
        return ""
    done = []
    if seen.look.cpu >= _BUSY_CPU_SECONDS:
        done.append(f"used {duration_text(seen.look.cpu)} of CPU")
    if seen.look.bytes >= _BUSY_BYTES:
        done.append(f"read and wrote {bytes_text(seen.look.bytes)}")
    return f"; it is at work: it {' and '.join(done)} during the look"


_SOURCES: Mapping[Source, str] = {
    "recorder": "flight recorders",
    "stacks": "stacks",
    "/proc": "/proc",
}


def held_back_text(nodes: Iterable[NodeLook]) -> str:
    """What control groups hold nodes back with: a fact beside a verdict, and no verdict."""
    by_words: dict[str, list[str]] = {}
    for node in nodes:
        for words in node.report.held_back if node.report is not None else ():
            number = f"slot {node.slot}" if node.node is None else f"node {node.node}"
            by_words.setdefault(words, []).append(number)
    found = [f"{listed(names, _MOST_HELD)}: {words}" for words, names in by_words.items()]
    more = len(found) - _MOST_HELD
    return "; ".join([*found[:_MOST_HELD], *[f"and {more} more"] * (more > 0)])


def tail_text(
    sources: Sequence[Source], of: int, silent: Sequence[int], silent_nodes: Sequence[int]
) -> str:
    """What a sentence was made from, and who did not answer."""
    if not sources:
        return ""
    *names, last = [_SOURCES[source] for source in sources]
    parts = [f"from {', '.join(names)} and {last}" if names else f"from {last}"]
    if silent:
        parts.append(f"{numbers_text(silent)} did not answer")
    elif silent_nodes:
        nodes = f"slot{'s' * (len(silent_nodes) > 1)} {listed(map(str, silent_nodes))}"
        parts.append(f"no answer from {nodes}")
    else:
        parts.append(f"{of_text(range(of), of)} answered")
    return f" ({'; '.join(parts)})"
