"""Where the hot path's time goes: `python -m bench.profile [NODES]` (= `make profile`)."""

from __future__ import annotations

import argparse
import pstats
import tempfile
from pathlib import Path
from typing import Any

from bench.meeting import Meeting
from bench.process import crowds
from bench.registry import serving

_SHOWN = 25


def main() -> None:
    """Let nodes assemble before a registry under cProfile, and print its own times."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=512)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=0, help="of each round's programs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile"
        module = ["bench.profiled", str(out)]
        with (
            serving(tls=arguments.tls, journal="sqlite", module=module) as registry,
            crowds(registry.place, arguments.nodes, 1) as crowd,
        ):
            meeting = Meeting(registry, crowd, arguments.nodes)
            meeting.open()
            if arguments.restarts:
                meeting.restarts(arguments.rounds, arguments.restarts)
            else:
                meeting.assembly(arguments.rounds)
        _print(out, arguments.nodes * arguments.rounds)


def _print(out: Path, joins: int) -> None:
    """A line for each of the functions that took most, their callees left out."""
    stats: Any = pstats.Stats(str(out))
    rows = sorted(stats.stats.items(), key=lambda item: -item[1][2])
    total = sum(values[2] for _, values in rows)
    print(f"{total:.2f} s in the registry (cProfile's own cost included), {joins} joins of nodes")
    print(f"{'own s':>7} {'share':>6} {'calls':>9} {'us/call':>8}  function")
    for (file, line, name), (_, calls, own, _, _) in rows[:_SHOWN]:
        place = "" if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} "
        micros = 1e6 * own / calls
        print(f"{own:7.3f} {own / total:6.1%} {calls:9} {micros:8.1f}  {place}{name}")


if __name__ == "__main__":
    main()
