"""How nodes and lists are named in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def listed(names: Iterable[str], limit: int = 5) -> str:
    """`a, b, c and 4 more`."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def slots_text(indices: Sequence[int]) -> str:
    """`slot 5`, or `slots 1-3, 5`; the indices are in order."""
    spans: list[tuple[int, int]] = []
    for index in indices:
        if spans and spans[-1][1] == index - 1:
            spans[-1] = (spans[-1][0], index)
        else:
            spans.append((index, index))
    names = [str(low) if low == high else f"{low}-{high}" for low, high in spans]
    return f"slot{'s' * (len(indices) > 1)} {listed(names)}"


def node_name(slot: int, hostnames: Mapping[int, str]) -> str:
    """`slot 9 (h9)`."""
    return f"slot {slot} ({hostnames[slot]})" if hostnames.get(slot) else f"slot {slot}"


def group_name(slots: Sequence[int], hostnames: Mapping[int, str]) -> str:
    """`slot 1 (h1), slot 4 (h4)` of a few, `slots 0-63` of many."""
    if len(slots) <= 2:
        return ", ".join(node_name(slot, hostnames) for slot in slots)
    return slots_text(slots)
