"""Numbers of nodes and of processes, as `--nnodes` and `--nproc-per-node` are written. Pure."""

from __future__ import annotations

import re
from typing import Literal

from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.types import MAX_NODES, MOST_PROCESSES

_OF_SLURM = re.compile(r"(?:[\w.-]+:)+([0-9]{1,4})(?:\(\S*\))?|([0-9]{1,4})\(x[0-9]+\)", re.ASCII)
"""GPUs or tasks of a node: gpu:a100:8, a100:8(S:0-1), 8(x2)."""
_MOST_ANYWHERE, _MOST_PER_CPU = 64, 8


def read_size(text: str) -> tuple[int, int]:
    """MIN and MAX of `--nnodes`, as torchrun writes it: N or MIN:MAX; raises ValueError."""
    numbers = text.strip().split(":")
    if len(numbers) > 2 or not all(_is_number(number) for number in numbers):
        raise ValueError("a size is N or MIN:MAX, for example 4 or 2:4")
    low, high = int(numbers[0]), int(numbers[-1])
    if not 1 <= low <= high <= MAX_NODES:
        raise ValueError(f"a run has 1 to {MAX_NODES} nodes, and MIN is not above MAX")
    return low, high


Count = int | Literal["auto", "gpu", "cpu"]
"""Of the processes of a node: a word is counted there."""


@frozen
class Processes:
    """`--nproc-per-node`: one count for every slot, or one for each."""

    counts: tuple[Count, ...]

    @classmethod
    def parse(cls, text: str) -> Processes:
        """Read `8`, `gpu` or `2,1,1,1`; raises ValueError."""
        return cls(tuple(_count(part.strip()) for part in text.split(",")))

    def of(self, slot: int) -> Count:
        """The count of one slot; raises UsageError."""
        if len(self.counts) == 1:
            return self.counts[0]
        if slot < len(self.counts):
            return self.counts[slot]
        raise UsageError(
            f"--nproc-per-node {self} has {len(self.counts)} entries, but there is a slot {slot}",
            hint="give one number for all nodes, or one per slot",
        )

    def __str__(self) -> str:
        return ",".join(map(str, self.counts))


def _count(word: str) -> Count:
    match word:
        case "auto" | "gpu" | "cpu":
            return word
        case _ if _is_number(word) and 1 <= int(word) <= MOST_PROCESSES:
            return int(word)
    if found := _OF_SLURM.fullmatch(word):
        raise ValueError(f"{word!r} is Slurm's way to write it; write {found[1] or found[2]}")
    raise ValueError(
        f"{word!r} is not a number from 1 to {MOST_PROCESSES}, and not auto, gpu or cpu"
    )


def most_processes(cpus: int) -> int:
    """How many processes a node of this many CPUs takes: more is a slip of the pen."""
    return max(_MOST_ANYWHERE, _MOST_PER_CPU * cpus)


def check_processes(count: int, cpus: int, source: str, *, of_list: bool = True) -> None:
    """Refuse a number of processes that is no number of processes; raises UsageError.

    Args:
        count: Of this node.
        cpus: Its CPUs.
        source: What the number was given with, as a person knows it.
        of_list: Whether a list of hosts may have given it.
    """
    if count > most_processes(cpus):
        port = (
            f"; in a list of hosts, n1:{count} is {count} processes on n1, and a port of its sshd "
            f"is written 'n1 port={count}'"
        )
        raise UsageError(
            f"{count} processes are asked for on this node ({source}), which has {cpus} "
            f"CPU{'s' * (cpus > 1)}: at most {most_processes(cpus)} are started on it",
            hint="give the number of processes of one node, not of the whole run"
            + (port if of_list else ""),
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
