"""How far the search for failing schedules has come, in all: `build/simulate/progress.json`.

The file is written anew after each chunk of seeds, all or nothing: a search can be broken off at
any moment. What was run is counted for each version of the code: only with it a seed is a schedule.
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

import features
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
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Progress:
    """What was run in all, by version, the newest last; and what did not hold, by failed seed."""

    next_seed: int = 0
    schedules: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)

    def after(self, chunk: range, part: Totals, version: str) -> Progress:
        """With the next seeds, which have come to `part`; raises ValueError for any others."""
        if chunk.start != self.next_seed or part.schedules != len(chunk):
            raise ValueError(f"{part.schedules} of {chunk} do not follow {self.next_seed - 1}")
        versions = dict(self.versions)
        versions[version] = versions.pop(version, 0) + part.schedules
        schedules = self.schedules + part.schedules
        return Progress(chunk.stop, schedules, versions, {**self.failed, **_invariants(part)})

    def replayed(self, part: Totals) -> Progress:
        """With what came of the failed seeds, run again: those that pass are taken out."""
        return replace(self, failed=_invariants(part))

    def words(self, version: str) -> str:
        """What was run in all, and what has failed, in lines."""
        here = self.versions.get(version, 0)
        lines = [
            f"seed {seed} has failed ({invariant}), and is run again first next time"
            for seed, invariant in self.failed.items()
        ]
        whole = f"in all {self.schedules} schedules, {here} of them on this version of the code"
        return "\n".join([f"{whole} ({version}); the next seed is {self.next_seed}", *lines])


def _invariants(part: Totals) -> dict[int, str]:
    return {seed: violation.invariant for seed, violation in part.failed}


_PROGRESS = TypeAdapter(Progress)


class Kept:
    """The progress in its folder, and the version of the code that is searched."""

    def __init__(self, folder: Path, version: str) -> None:
        self.version = version
        self._file = folder / FILE
        self.progress = _read(self._file)

    def take(self, chunk: range, part: Totals) -> None:
        self._write(self.progress.after(chunk, part, self.version))

    def replayed(self, part: Totals) -> None:
        self._write(self.progress.replayed(part))

    def _write(self, progress: Progress) -> None:
        unfinished = self._file.with_suffix(".new")
        unfinished.write_bytes(_PROGRESS.dump_json(progress, indent=1) + b"\n")
        unfinished.replace(self._file)
        self.progress = progress


@contextmanager
def kept_in(folder: Path, version: str) -> Iterator[Kept]:
    """The progress in this folder, for one search at a time; raises SystemExit for a second one,
    and for a file that is none of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Kept(folder, version)
    except BlockingIOError:
        raise SystemExit(f"another search goes on in {folder}; give a --seed") from None
    finally:
        os.close(lock)


def _read(file: Path) -> Progress:
    if not file.exists():
        return Progress()
    try:
        return _PROGRESS.validate_json(file.read_bytes())
    except ValidationError as exc:
        raise SystemExit(f"{file} is not a search's progress; delete it to begin anew") from exc


def version_of_code() -> str:
    """What stands for the code that is searched, the simulator included; its tests are not."""
    packages = [Path(package.__path__[0]) for package in (rendezvous, worker, launcher, features)]
    return digest([*packages, Path(__file__).parent])


def digest(folders: Iterable[Path]) -> str:
    """A dozen hexadecimal digits that change with any source in these folders but tests."""
    found = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if not file.name.startswith("test_"):
                name, source = file.relative_to(folder.parent).as_posix(), file.read_bytes()
                found.update(f"{name} {len(source)}\n".encode() + source)
    return found.hexdigest()[:12]
