"""The command of a benchmark, as a person types it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_USUAL_SLOW = "0.5"
"""What `--slow-below` is where nobody gives it."""
_UNITS = ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


def bench_command(words: Sequence[str], nodes: str) -> list[str]:
    """`rdzv bench --nnodes 2 --sizes 4K,1M`.

    Args:
        words: What each node is started with.
        nodes: How many there are.
    """
    given = list(zip(words[::2], words[1::2], strict=False))
    sizes = ",".join(_size(int(value)) for flag, value in given if flag == "--size")
    slow = [value for flag, value in given if flag == "--slow-below" and value != _USUAL_SLOW]
    options = {"--nnodes": nodes, "--sizes": sizes, "--slow-below": "".join(slow)}
    return ["rdzv", "bench", *(word for one in options.items() if one[1] for word in one)]


def _size(count: int) -> str:
    """`64K` of 65536 bytes, as `--sizes` reads it."""
    for unit, letter in _UNITS:
        if count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)
