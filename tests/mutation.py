"""How many mutants the last `make mutate` left alive, by module.

    python -m tests.mutation [--sample]

Ends with 1 when more than one of twenty that were run lives, or when some were not run: with
`--sample`, as after `make mutate MUTANTS='*7'`, when none was.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

_MOST_ALIVE = 0.05
_COLUMNS = ("killed", "timed out", "no type", "alive", "not run")
_VERDICTS = {1: "killed", 3: "killed", 37: "no type", None: "not run"} | dict.fromkeys(
    (-24, 24, 36, 152, 255), "timed out"
)


def main(folder: Path = Path("mutants"), *, sample: bool = False) -> int:
    """Print the table; the answer is the exit code."""
    total: Counter[str] = Counter()
    print(f"{'module':<28}{'mutants':>10}{''.join(f'{name:>10}' for name in _COLUMNS)}")
    for path in sorted(folder.rglob("*.py.meta")):
        codes = json.loads(path.read_text())["exit_code_by_key"].values()
        found = Counter(_VERDICTS.get(code, "alive") for code in codes)
        total += found
        print(_line(str(path.relative_to(folder)).removesuffix(".meta"), found))
    print(_line("all", total))
    run = total.total() - total["not run"]
    alive = total["alive"] / max(1, run)
    said = f"{run} of {total.total()} were run"
    print(f"{said}; alive: {alive:.1%} of them, at most {_MOST_ALIVE:.0%}")
    missed = total["not run"] > 0 and not sample
    return int(not run or alive > _MOST_ALIVE or missed)


def _line(name: str, found: Counter[str]) -> str:
    return f"{name:<28}{found.total():>10}{''.join(f'{found[name]:>10}' for name in _COLUMNS)}"


if __name__ == "__main__":
    sys.exit(main(sample="--sample" in sys.argv))
