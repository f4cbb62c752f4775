"""The ranks of all nodes side by side, as one look has found them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from features.hang.rules.stacks import Kind, Place, place_of
from features.hang.wire import LookReport, NodeLook, ProcessLook, RankLook, RunLook, Stack

_NOWHERE = Place(Kind.UNKNOWN)


_WAITS_FOR_CHILDREN = ("do_wait", "kernel_wait4")
"""Kernel functions in which a process waits for its children."""


class Other(NamedTuple):
    """A process that is not a rank: a launcher, or what a rank has started."""

    look: ProcessLook
    stack: Stack | None = None
    place: Place = _NOWHERE

    @property
    def number(self) -> int:
        """Number of the process."""
        return self.look.pid


class Seen(NamedTuple):
    """One rank.

    Attributes:
        node: What its node has answered.
        place: Where its main thread is.
        whole: Whether its node has reported all that it saw.
        children: What it has started, the nearest first.
        launcher: What starts it, where its own process is not known.
        is_unstarted: Its launcher has not started it.
    """

    rank: int
    node: NodeLook
    look: RankLook
    stack: Stack | None
    place: Place
    whole: bool
    children: tuple[Other, ...] = ()
    launcher: Other | None = None
    is_unstarted: bool = False

    @property
    def awaits_disk(self) -> bool:
        """Whether it waits in the kernel for a disk or file system: what is frozen does not."""
        return self.look.state == "D" and self.look.waits_in != "__refrigerator"

    @property
    def awaits_children(self) -> bool:
        """Return whether it waits for processes that it has started."""
        waits = self.place.kind is Kind.CHILDREN or self.look.waits_in in _WAITS_FOR_CHILDREN
        return waits and bool(self.children)

    @property
    def is_read(self) -> bool:
        """Whether its flight recorder was read."""
        return self.look.recorder == "read"

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended; one whose process is not known may live."""
        return self.look.pid > 0 and self.look.state in ("", "Z", "X", "x")

    @property
    def answers(self) -> bool:
        """Whether anything but its process state is known."""
        return self.is_read or self.stack is not None

    @property
    def is_silent(self) -> bool:
        """Whether it should have answered, and has not."""
        known = self.answers or self.is_gone or self.is_unstarted
        return self.look.recorder == "silent" or not known

    @property
    def is_starting(self) -> bool:
        """Whether it has not made its first process group, and waits for none to do so."""
        if self.look.groups or self.is_gone or self.place.kind.waits:
            return False
        # Without a stack, one that has imported torch may wait for others to begin.
        seen = self.look.stage == "imported" and self.place.kind is not Kind.UNKNOWN
        return seen or self.look.stage in ("starting", "importing")


class Ranks(NamedTuple):
    """All ranks that were seen, by their numbers; and the nodes that have not answered."""

    by_number: dict[int, Seen]
    silent_nodes: tuple[NodeLook, ...]
    words: tuple[str, ...]
    """Why nodes could see nothing."""

    def silent(self) -> tuple[int, ...]:
        """The ranks that have not answered, as far as their numbers can be known."""
        found = {seen.rank for seen in self.by_number.values() if seen.is_silent}
        return tuple(sorted(found | self._of_silent_nodes()))

    def _of_silent_nodes(self) -> set[int]:
        """Where every other node has the same number of ranks, in the order of the nodes."""
        counts: dict[int | None, list[int]] = {}
        for seen in self.by_number.values():
            counts.setdefault(seen.node.node, []).append(seen.rank)
        sizes = {len(ranks) for ranks in counts.values()}
        if len(sizes) != 1 or None in counts:
            return set()
        [size] = sizes
        if any(ranks[0] != (node or 0) * size for node, ranks in counts.items()):
            return set()
        silent = [node.node for node in self.silent_nodes if node.node is not None]
        found = {rank for node in silent for rank in range(node * size, (node + 1) * size)}
        return found - self.by_number.keys()


def see(run_look: RunLook) -> Ranks:
    """The ranks that the nodes have reported, sorted; of two with one number, the first node's."""
    found: dict[int, Seen] = {}
    silent: list[NodeLook] = []
    words: list[str] = []
    for node in sorted(run_look.nodes, key=lambda node: node.slot):
        report = node.report
        if report is None or (run_look.epoch and report.epoch != run_look.epoch):
            silent.append(node)
            continue
        if report.words and report.words not in words:
            words.append(report.words)
        for seen in _of_node(node, report):
            found.setdefault(seen.rank, seen)
    return Ranks(dict(sorted(found.items())), tuple(silent), tuple(words))


def _of_node(node: NodeLook, report: LookReport) -> Iterator[Seen]:
    places = [place_of(stack) for stack in report.stacks]

    def where(number: int | None) -> tuple[Stack | None, Place]:
        known = number is not None and number < len(places)
        return (report.stacks[number or 0], places[number or 0]) if known else (None, _NOWHERE)

    def other(look: ProcessLook) -> Other:
        return Other(look, *where(look.stack))

    launcher = other(report.launcher) if report.launcher is not None else None
    for look in report.ranks:
        stack, place = where(look.stack)
        unstarted = not look.pid and look.rank in report.unstarted
        children = tuple(map(other, look.children))
        yield Seen(
            look.rank,
            node,
            look,
            stack,
            place,
            not report.left_out,
            children,
            None if look.pid else launcher,
            unstarted,
        )
