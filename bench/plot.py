"""Draw docs/speed.svg from what `python -m bench` has written: `python -m bench.plot`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot

from bench.rows import ROWS

PICTURE = Path(__file__).parent.parent / "docs" / "speed.svg"
_LINES = (
    ("c10d", "torch c10d", "#b04030"),
    ("tcpstore", "torch TCPStore, bare", "#888888"),
    ("rdzv-tls", "rdzv, TLS", "#205090"),
    ("rdzv", "rdzv, HTTP", "#50a0d0"),
)


def main() -> None:
    """One line for each system: median against the number of nodes."""
    rows: list[dict[str, Any]] = json.loads(ROWS.read_text())
    matplotlib.rcParams["svg.hashsalt"] = "rdzv"  # the same figures are the same file
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2))
    sizes: set[int] = set()
    for system, label, color in _LINES:
        points = sorted(
            (row["nodes"], row["median"])
            for row in rows
            if row["what"] == f"{system} table" and row["unit"] == "ms"
        )
        if points:
            axes.loglog(*zip(*points, strict=True), "o-", label=label, color=color, markersize=4)
        sizes |= {nodes for nodes, _ in points}
    axes.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)])
    axes.minorticks_off()
    axes.set_xlabel("nodes")
    axes.set_ylabel("ms")
    axes.set_title("Last node arrives until every node has the table (median)", fontsize=10)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(PICTURE, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
