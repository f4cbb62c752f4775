"""Looks at the file systems of some paths, none of which can hold it up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rendezvous.wire.evidence import Fact
from worker.evidence import places_probe
from worker.evidence.parsing.places import place_facts
from worker.machine import aside

SHARED_MEMORY = "/dev/shm"  # noqa: S108
_MOST_PATHS = 24
_LONGEST = 4096


def look_places(
    folders: Iterable[str], paths: Iterable[str], limit_seconds: float, shared: str = SHARED_MEMORY
) -> list[Fact]:
    """How full they are, and which do not answer.

    Args:
        folders: Where the program works; a path that is not absolute begins in the first of them.
        paths: What its output names.
        limit_seconds: For the process that looks.
        shared: The folder of shared memory.
    """
    folders = [folder for folder in folders if folder.startswith("/")]
    base = folders[0] if folders else ""
    named = [path if path.startswith("/") else f"{base}/{path}" for path in paths if path]
    asked = [
        path
        for path in dict.fromkeys([shared, *folders, *named])
        if path.startswith("/") and "\0" not in path and len(path) < _LONGEST
    ][:_MOST_PATHS]
    program = Path(places_probe.__file__)
    return place_facts(asked, aside.ask(program, *asked, limit_seconds=limit_seconds).text)
