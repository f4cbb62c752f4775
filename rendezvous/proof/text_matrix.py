"""A round of probes as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rendezvous.proof.pairs import OUTCOMES, failures
from rendezvous.wire.peers import FULL_MESH, PEERS_EACH
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.words import printable

TEXT_NODES = 32
"""Up to so many nodes the text matrix is whole; above, only what fails is in it."""


def text_matrix(tried: Round, hostnames: Mapping[int, str]) -> list[str]:
    """A round as lines: who probes in rows, who is probed in columns, and what the letters mean.

    Whole up to `TEXT_NODES` nodes; above, only rows and columns in which something fails, and not
    more than so many of each.
    """
    failed = failures(tried)
    size = len(tried.slots)
    every = size * (size - 1 if size <= FULL_MESH else PEERS_EACH)
    lines = [f"{tried.network}: {len(failed)} of {every} directed pairs fail"]
    rows = columns = sorted(tried.slots)
    if len(rows) > TEXT_NODES:
        rows, columns = sorted({one for one, _ in failed}), sorted({other for _, other in failed})
    if failed:
        lines += _grid(tried, rows[:TEXT_NODES], columns[:TEXT_NODES], hostnames)
        lines += _left_out(rows, columns)
        lines.append(f"  . good, {legend_of(failed.values())}")
    return lines


def _grid(
    tried: Round, rows: Sequence[int], columns: Sequence[int], hostnames: Mapping[int, str]
) -> list[str]:
    names = {slot: f"{slot} {printable(hostnames.get(slot, ''), 24)}" for slot in rows}
    width = max(len("from \\ to"), *map(len, names.values()))
    digits = len(str(max(columns)))
    lines = []
    for digit in range(digits):
        head = "from \\ to" if digit == digits - 1 else ""
        numbers = " ".join(str(slot).rjust(digits)[digit] for slot in columns)
        lines.append(f"  {head:{width}}  {numbers}".rstrip())
    for slot in rows:
        letters = {probe.slot: letter_of(probe) for probe in tried.reports.get(slot, ())}
        # Good pairs of older rounds are left away; in a full mesh they are known all the same.
        missing = "." if len(tried.slots) <= FULL_MESH else " "
        cells = ("-" if other == slot else letters.get(other, missing) for other in columns)
        lines.append(f"  {names[slot]:{width}}  {' '.join(cells)}".rstrip())
    return lines


def letter_of(probe: PairProbe) -> str:
    """How a pair stands in a matrix."""
    return "." if probe.outcome == "ok" else OUTCOMES[probe.outcome].letter


def _left_out(rows: Sequence[int], columns: Sequence[int]) -> list[str]:
    more = [
        f"{len(slots) - TEXT_NODES} more {what}"
        for slots, what in ((rows, "rows"), (columns, "columns"))
        if len(slots) > TEXT_NODES
    ]
    return [f"  and {' and '.join(more)}"] if more else []


def legend_of(failed: Iterable[PairProbe]) -> str:
    """What the letters mean that stand for these pairs."""
    outcomes = {probe.outcome for probe in failed}
    letters = [f"{kind.letter} {kind.words}" for key, kind in OUTCOMES.items() if key in outcomes]
    return ", ".join(letters)
