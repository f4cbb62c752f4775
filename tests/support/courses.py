"""A course that is driven along and written down; of a run each event, and all that it changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest
from pydantic_core import to_json

from rendezvous.run.decision import Outcome
from rendezvous.run.events import Event
from rendezvous.run.views import event_line, node_view, run_status
from rendezvous.wire.errors import RequestError
from rendezvous.wire.run import RunSpec
from tests.support.driver import Drive


class Told(Protocol):
    """What has a line for each thing that has come of it."""

    lines: list[str]


class Course(Drive):
    """A run of which each event is told, with all that it changes for anybody."""

    def __init__(self, spec: RunSpec) -> None:
        self.lines: list[str] = []
        self._shown: dict[str, dict[str, str]] = {}
        super().__init__(spec)

    def apply(self, event: Event) -> Outcome:
        """See the base class."""
        outcome = super().apply(event)
        line = event_line(self.run, len(self.journal), event, outcome, self.now)
        self.lines.append(f"* {self.now:.2f} {event.kind} {one_line(said(values_of(line)))}")
        self._tell(_flat("view", values_of(node_view(self.run, self.now, 2.5))))
        return outcome

    def look(self) -> None:
        """Tell what a person is shown by now."""
        self._tell(_flat("status", values_of(run_status(self.run, self.now, self.leases))))

    def _tell(self, values: Iterator[tuple[str, str]]) -> None:
        """Those that are not as they were."""
        seen = dict(values)
        kind = min(seen).partition(".")[0]
        shown = self._shown.get(kind, {})
        for name in sorted({*seen, *shown}):
            if seen.get(name) != shown.get(name):
                self.lines.append(f"{name} {seen.get(name, 'gone')}")
        self._shown[kind] = seen

    def tries(self, step: Callable[[], Any]) -> None:
        """Who is refused is told why."""
        try:
            step()
        except RequestError as exc:
            self.lines.append(f"! {type(exc).__name__} {exc.message} [{exc.hint}]")

    def cancel_now(self, why: str) -> None:
        """Somebody cancels it."""
        event = self.cancel(why)
        assert event is not None
        self.apply(event)


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


def values_of(of: object) -> Any:
    """As JSON has it."""
    return json.loads(to_json(of))


def one_line(values: object) -> str:
    """In one line, whatever it holds."""
    return str(values).replace("\n", "\\n")


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    """A line for each value that there is; one for each entry of a list of records."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(f"{name}.{key}", each)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, each in enumerate(value):
            yield f"{name}.{number}", one_line(said(each))
    elif value not in (None, [], {}, ""):
        yield name, one_line(value)


def said(record: dict[str, Any]) -> str:
    """The values that there are, by their names."""
    return " ".join(f"{k}={v}" for k, v in record.items() if v not in (None, [], "", False))
