"""Which lines of the product the schedule of each seed executes, kept in `build/simulate/`.

No schedule shows a planted bug that does not execute what the bug changes: the search needs to try
the others alone.
"""

from __future__ import annotations

import difflib
import functools
import gc
from collections.abc import Iterable, Sequence
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType

from coverage import Coverage

from tests.simulation.generate import generate
from tests.simulation.patching import Edit
from tests.simulation.progress import version_of_code
from tests.simulation.world import simulate

_ROOT = Path(__file__).parents[2]
_PACKAGES = ["rendezvous", "worker", "launcher"]


class Executed:
    """What the real code executes of itself, by seed; each seed is run for it once.

    Args:
        folder: Where it is kept for as long as neither the product nor the simulator changes.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"executed-{version_of_code()}.coverage"
        for former in set(folder.glob("executed-*")) - {file}:
            former.unlink()
        within = [f"{_ROOT / package}/*" for package in _PACKAGES]
        self._coverage = Coverage(data_file=file, config_file=False, include=within)
        self._coverage.load()
        self._known = {int(text) for text in self._coverage.get_data().measured_contexts() if text}
        self._by_line = functools.cache(self._seeds_by_line)

    def of(self, edits: Iterable[Edit], seeds: Sequence[int]) -> list[int]:
        """Those of the seeds that execute a line that one of the edits changes."""
        self._run([seed for seed in seeds if seed not in self._known])
        found: set[int] = set()
        for edit in edits:
            lines = changed_lines((_ROOT / edit.file).read_text(), edit)
            if lines is None:
                return list(seeds)
            by_line = self._by_line(edit.file)
            found = found.union(*(by_line.get(line, ()) for line in lines))
        return [seed for seed in seeds if seed in found]

    def _run(self, seeds: Sequence[int]) -> None:
        if not seeds:
            return
        gc.disable()  # once is enough, and much faster
        self._coverage.start()
        for seed in seeds:
            self._coverage.switch_context(str(seed))
            simulate(generate(seed))
        self._coverage.stop()
        gc.enable()
        gc.collect()
        self._coverage.save()
        self._known |= set(seeds)
        self._by_line = functools.cache(self._seeds_by_line)

    def _seeds_by_line(self, file: str) -> dict[int, set[int]]:
        by_line = self._coverage.get_data().contexts_by_lineno(str(_ROOT / file))
        return {line: {int(text) for text in texts if text} for line, texts in by_line.items()}


def changed_lines(text: str, edit: Edit) -> set[int] | None:
    """The lines of functions that an edit of a source changes, and beside which it adds some.

    Returns:
        None when all that it changes is executed once, at the import.
    """
    old, new = text.splitlines(), text.replace(edit.old, edit.new).splitlines()
    changed: set[int] = set()
    for tag, low, high, _, _ in _differences(old, new):
        if tag != "equal":
            changed |= set(range(low + 1, high + 1)) or {low, low + 1}
    begun = _lines_with_code(compile(text, edit.file, "exec"))
    lines = {max((line for line in begun if line <= one), default=0) for one in changed}
    return {line for line in lines if begun.get(line)} or None


def _differences(old: list[str], new: list[str]) -> Iterable[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _lines_with_code(code: CodeType, *, is_function: bool = False) -> dict[int, bool]:
    """The lines that something begins on; whether that is something of a function."""
    found = {line: is_function for _, _, line in code.co_lines() if line}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = _lines_with_code(inner, is_function=_is_function(inner)) | found
    return found


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & CO_NEWLOCALS)
