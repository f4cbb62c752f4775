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
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from launcher.plan.plan import LOCAL, WorkerRun
from rendezvous.frozen import frozen


@frozen
class LedgerEntry:
    """What is known of a worker run.

    Attributes:
        run: The worker run.
        starter: What started it: a scheduler's name, or the path of a profile.
        handle: The scheduler's id; empty while none is known.
        gone: It is over, and its scheduler has said so.
        former: Another launch had submitted it, and it could not be ended.
    """

    run: WorkerRun
    starter: str
    handle: str = ""
    gone: bool = False
    former: bool = False

    @property
    def name(self) -> str:
        """Of the worker run."""
        return self.run.name

    def line(self) -> str:
        """As the file has it."""
        run = {name: getattr(self.run, name) for name in _OF_RUN}
        return json.dumps(run | {name: getattr(self, name) for name in _OF_ENTRY}) + "\n"


_OF_RUN = tuple(one.name for one in fields(WorkerRun))
_OF_ENTRY = tuple(one.name for one in fields(LedgerEntry) if one.name != "run")
_ENTRY = TypeAdapter(LedgerEntry)


class Ledger:
    """The entries in a file; readable by its owner alone, as the variables may hold secrets.

    What runs as a child of the launcher is not written down: it ends with the launcher.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, entry: LedgerEntry) -> None:
        """Write down what is about to be submitted; raises OSError."""
        self._write(entry, entry.line())

    def note(self, entry: LedgerEntry) -> None:
        """Write down what became known since; raises OSError."""
        known = {"name": entry.name, "handle": entry.handle, "gone": entry.gone}
        self._write(entry, json.dumps(known) + "\n")

    def _write(self, entry: LedgerEntry, line: str) -> None:
        if entry.starter == LOCAL:
            return
        data = line.encode()
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
        return sorted(entries, key=lambda e: (e.run.slot, not e.former, e.run.generation))

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
        return _ENTRY.validate_python({**known, "run": known})
    except ValidationError:
        return None
