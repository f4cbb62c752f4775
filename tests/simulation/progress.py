"""How far the search for failing schedules has come, in all: `build/simulate/progress.json`.

The file is written anew after each chunk of seeds, all or nothing, so that a search can be broken
off at any moment: what was not finished is run again by the next one, and no seed is left out. A
seed that failed stays written down until it passes.

A seed says which schedule was run only together with the code that drew and ran it, so that what
was run is counted for each version of the code as well.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

import launcher
import rendezvous
import worker
from tests.simulation.history import Violation

FILE = "progress.json"


@dataclass
class Totals:
    """What many schedules came to."""

    schedules: int = 0
    events: int = 0
    records: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, Violation]] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Count these as well."""
        self.schedules += other.schedules
        self.events += other.events
        self.records += other.records
        self.seconds += other.seconds
        self.faults += other.faults
        self.failed += other.failed


@dataclass(frozen=True)
class Progress:
    """What was run in all; a failed seed that is run again is not counted again.

    Attributes:
        next_seed: All before it were run.
        seconds: On the virtual clock.
        faults: How often each kind befell a schedule.
        versions: How many schedules were run on each version of the code, the newest last.
        failed: The invariant that did not hold, by seed.
    """

    next_seed: int = 0
    schedules: int = 0
    seconds: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)

    def after(self, chunk: range, part: Totals, version: str) -> Progress:
        """With the next seeds, which have come to `part`; raises ValueError for any others."""
        if chunk.start != self.next_seed or part.schedules != len(chunk):
            raise ValueError(f"{part.schedules} of {chunk} do not follow {self.next_seed - 1}")
        older = {name: count for name, count in self.versions.items() if name != version}
        return Progress(
            chunk.stop,
            self.schedules + part.schedules,
            self.seconds + part.seconds,
            dict(Counter(self.faults) + part.faults),
            older | {version: self.versions.get(version, 0) + part.schedules},
            {**self.failed, **_invariants(part)},
        )

    def replayed(self, part: Totals) -> Progress:
        """With what came of the failed seeds, run again: those that pass are taken out."""
        return replace(self, failed=_invariants(part))

    def words(self, version: str) -> Iterator[str]:
        """The lines that tell of it."""
        count, here = sum(self.faults.values()), self.versions.get(version, 0)
        yield (
            f"in all {self.schedules} schedules, {self.seconds / 3600:.1f} virtual hours, "
            f"{count} faults of {len(self.faults)} kinds; the next seed is {self.next_seed}"
        )
        others = f", {self.schedules - here} on {len(self.versions.keys() - {version})} others"
        yield f"{here} of them on this version of the code ({version})" + (
            others if here < self.schedules else ""
        )
        for seed, invariant in self.failed.items():
            yield f"seed {seed} has failed ({invariant}), and is run again first next time"


def _invariants(part: Totals) -> dict[int, str]:
    return {seed: violation.invariant for seed, violation in part.failed}


_PROGRESS = TypeAdapter(Progress)


class Kept:
    """The progress in its folder.

    Args:
        folder: Where its file is, or will be.
        version: Of the code that is searched.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self.version = version
        self._file = folder / FILE
        self._progress = _read(self._file)

    @property
    def progress(self) -> Progress:
        """As it is in the file."""
        return self._progress

    def take(self, chunk: range, part: Totals) -> None:
        """Write down what came of the next seeds."""
        self._write(self._progress.after(chunk, part, self.version))

    def replayed(self, part: Totals) -> None:
        """Write down what came of the failed seeds, run again."""
        self._write(self._progress.replayed(part))

    def words(self) -> str:
        """What was run in all."""
        return "\n".join(self._progress.words(self.version))

    def _write(self, progress: Progress) -> None:
        unfinished = self._file.with_suffix(".new")
        unfinished.write_bytes(_PROGRESS.dump_json(progress, indent=1) + b"\n")
        unfinished.replace(self._file)
        self._progress = progress


@contextmanager
def kept_in(folder: Path, version: str) -> Iterator[Kept]:
    """The progress in this folder, for one search at a time.

    Raises:
        SystemExit: Another search goes on there, or its file is none of ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        _lock(lock, folder)
        yield Kept(folder, version)
    finally:
        os.close(lock)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"another search goes on in {folder}; give a --seed") from None


def _read(file: Path) -> Progress:
    if not file.exists():
        return Progress()
    try:
        return _PROGRESS.validate_json(file.read_bytes())
    except ValidationError as exc:
        raise SystemExit(f"{file} is not a search's progress; delete it to begin anew") from exc


def version_of_code() -> str:
    """What stands for the code that is searched, the simulator included; its tests are not."""
    packages = [Path(package.__path__[0]) for package in (rendezvous, worker, launcher)]
    return digest([*packages, Path(__file__).parent])


def digest(folders: Iterable[Path]) -> str:
    """A dozen hexadecimal digits that change with any source in these folders but tests."""
    found = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if not file.name.startswith("test_"):
                source = file.read_bytes()
                name = file.relative_to(folder.parent).as_posix()
                found.update(f"{name} {len(source)}\n".encode() + source)
    return found.hexdigest()[:12]
