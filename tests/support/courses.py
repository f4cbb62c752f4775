"""Courses of what a person or another program reads: driven along, and kept in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest


class Told(Protocol):
    """What has a line for each thing that has come of it."""

    lines: list[str]


def text_of(courses: Mapping[str, Callable[[], Told]]) -> str:
    """All of them, as a file has them."""
    return "".join(f"# {name}\n" + "\n".join(one().lines) + "\n\n" for name, one in courses.items())


def write_down(
    file: Path, names: Iterable[str], drive: Callable[[str, Path, pytest.MonkeyPatch], Told]
) -> None:
    """Write the file anew from courses that each have a folder and an environment to themselves."""

    def one(name: str) -> Told:
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            course = drive(name, Path(folder), patch)
            patch.undo()  # before the folder goes, which may be the working folder
            return course

    file.write_text(text_of({name: partial(one, name) for name in names}))


def lines_in(file: Path, name: str) -> list[str]:
    """What the file has of this one."""
    return file.read_text().partition(f"# {name}\n")[2].partition("\n\n")[0].splitlines()


def one_line(values: object) -> str:
    """In one line, whatever it holds."""
    return str(values).replace("\n", "\\n")
