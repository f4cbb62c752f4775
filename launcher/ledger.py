"""What a launch knows of its worker runs, on disk: for the launcher after it, and for `rdzv logs`.

The registry's journal says what was meant to be submitted, as a part of the run's state. This file
says what may exist at a scheduler, and how it is found and ended there, whatever became of the run,
its registry, and the options that it was launched with.

A line is written when something becomes known: before a worker run is submitted, with its id, and
when it is gone. The kernel keeps the lines of a killed launcher; the last one may be torn.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from launcher.plan import WorkerRun
from launcher.template import Value

LOCAL = "local"
"""What starts nodes as children of the launcher."""


class LedgerEntry(BaseModel):
    """What is known of a worker run.

    Attributes:
        starter: What started it: a scheduler's name, or the path of a profile.
        handle: The scheduler's id; empty while none is known.
        gone: It is over, and its scheduler has said so.
        former: Another launch had submitted it, and it could not be ended.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    slot: int
    generation: int
    starter: str
    source: str
    variables: dict[str, Value]
    handle: str = ""
    gone: bool = False
    former: bool = False

    @staticmethod
    def of(run: WorkerRun, starter: str) -> LedgerEntry:
        """The entry before it is submitted."""
        return LedgerEntry(
            name=run.name,
            slot=run.slot,
            generation=run.generation,
            starter=starter,
            source=run.source,
            variables=run.variables,
        )

    def run(self) -> WorkerRun:
        """The worker run, as its scheduler needs it afterwards: without the template."""
        return WorkerRun(
            self.slot, self.generation, self.name, dict(self.variables), self.source, ""
        )


class Ledger:
    """The entries in a file; readable by its owner alone, as the variables may hold secrets.

    What runs as a child of the launcher is not written down: it ends with the launcher.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, entry: LedgerEntry) -> None:
        """Write down what is about to be submitted; raises OSError."""
        self._write(entry, entry.model_dump())

    def note(self, entry: LedgerEntry) -> None:
        """Write down what became known since; raises OSError."""
        self._write(entry, {"name": entry.name, "handle": entry.handle, "gone": entry.gone})

    def _write(self, entry: LedgerEntry, known: dict[str, Any]) -> None:
        if entry.starter == LOCAL:
            return
        data = f"{json.dumps(known)}\n".encode()
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # what a killed launcher or a full disk had cut short
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)

    def entries(self) -> list[LedgerEntry]:
        """What is known, in order of slot and generation; what is another launch's comes first."""
        found: dict[str, dict[str, Any]] = {}
        for known in self._lines():
            name = known["name"]
            found[name] = found.get(name, {}) | known
        entries = [entry for known in found.values() if (entry := _entry(known)) is not None]
        return sorted(entries, key=lambda entry: (entry.slot, not entry.former, entry.generation))

    def left(self) -> list[LedgerEntry]:
        """Those of which it is not known that they are gone."""
        return [entry for entry in self.entries() if not entry.gone]

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text("utf-8", "replace")
        except OSError:
            return
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                known = json.loads(line)
                if isinstance(known, dict) and isinstance(known.get("name"), str):
                    yield known


def _entry(known: dict[str, Any]) -> LedgerEntry | None:
    try:
        return LedgerEntry.model_validate(known)
    except ValidationError:
        return None
