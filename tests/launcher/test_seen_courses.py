"""What people see of whole runs, on every board and on the page, is as in `seen.txt`.

The runs are those of `tests/rendezvous/test_courses.py`: no two numbers of them are the same one.
Of each event: what a log has (`log`), what a terminal has (`live`), and what the page is told has
changed (`page`); now and then the table, and how it ended in the last lines. Who changes what is
shown writes the file anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from rich.console import Console

from launcher.show.board import JsonBoard, LiveBoard, PlainBoard
from launcher.show.epochs import after_starts, epoch_words, used_text
from launcher.show.last_line import last_line
from launcher.show.slot_table import draw
from launcher.state.state_dir import StateDir
from launcher.ui.told import LaunchFacts, Told
from rendezvous.run.decision import Outcome
from rendezvous.run.events import Event
from rendezvous.run.views import event_line, run_status
from rendezvous.wire.run import Phase, RunSpec, RunStatus
from tests.rendezvous import test_courses as runs
from tests.support.courses import Course, lines_in, one_line, said, text_of, values_of

KNOWN = Path(__file__).with_name("seen.txt")
FIRST = 1_000
WIDTHS = {Phase.GATHERING: 120, Phase.RUNNING: 64, Phase.FINISHED: 100}
"""Of a terminal in which the table is drawn; of other phases it is not."""


class _Stream(io.StringIO):
    """What was written since it was looked at."""

    def taken(self) -> list[str]:
        found = self.getvalue()
        self.seek(0)
        self.truncate()
        return [line.rstrip() for line in found.splitlines() if line.strip()]


class Seen(Course):
    """A run that is shown everywhere at once; `lines` has what was new to see at each event."""

    def __init__(self, spec: RunSpec) -> None:
        self._log, self._json, self._screen = _Stream(), _Stream(), _Stream()
        console = Console(file=self._screen, width=300, highlight=False)
        self._boards = (
            PlainBoard(self._log, 4, clock=lambda: self.now),
            JsonBoard(self._json),
            LiveBoard(4, console=console, clock=lambda: self.now),
        )
        self._live = self._boards[2]
        self._told = Told(LaunchFacts("r", nodes="4"), FIRST, "reading")
        self._state: dict[str, Any] = {}
        self._drawn: Phase | None = None
        super().__init__(spec)

    def apply(self, event: Event) -> Outcome:
        """See the base class; the terminal's table is not drawn each time, as that takes long."""
        outcome = super(Course, self).apply(event)
        line = event_line(self.run, len(self.journal), event, outcome, self.now)
        status = run_status(self.run, self.now, self.leases)
        told = self._told.n
        for board in self._boards:
            said_ = event.kind == "restart_asked"  # who asks has typed it
            board.event(line, said=said_)
            if board is not self._live:
                board.status(status)
        self._told.event(line)
        self._told.status(status)
        self._live._formed = self.run.epoch > 0 and status.phase is not Phase.GATHERING
        if self._live._formed:
            self._live.status(status)
        self.lines.append(f"* {self.now:.2f} {event.kind}")
        for name, stream in (("log", self._log), ("live", self._screen), ("json", self._json)):
            found = stream.taken()
            if name != "json":
                self.lines += [f"{name} {one}" for one in found]
        self.lines += self._news(told)
        if status.phase is not self._drawn:
            self._drawn = status.phase
            self._draw(status)
        return outcome

    def _news(self, told: int) -> Iterator[str]:
        change = values_of(self._told.changes(told) or {})
        change.pop("n", None)
        for event in change.pop("events", []):
            assert event["reason"]
        head = change.pop("head", {})
        yield from self._differs("head", head)
        for part, name in (("slots", "slot"), ("ranks", "rank"), ("epochs", "epoch")):
            for row in change.pop(part, []):
                row["spans"] = [
                    f"{one['phase']} {one['start']:g}-{one['end'] or 0:g}"
                    for one in row.get("spans", [])[-2:]
                ]
                yield from self._differs(f"{part} {row[name]}", row)
        assert change == {}

    def _differs(self, name: str, row: dict[str, Any]) -> Iterator[str]:
        before = self._state.get(name, {})
        skip = ("elapsed", "digest", "launch_id", "run")
        news = {key: one for key, one in row.items() if before.get(key) != one and key not in skip}
        if isinstance(news.get("result"), dict):
            news["result"] = news["result"]["message"]
        if row:
            self._state[name] = row
        if news:
            gone = [key for key, one in news.items() if one in (None, "", [], False)]
            yield f"page {name}: {one_line(said(news))}" + f" without {gone}" * bool(gone)

    def _draw(self, status: RunStatus) -> None:
        if (width := WIDTHS.get(status.phase)) is None:
            return
        stream = _Stream()
        Console(file=stream, width=width, highlight=False).print(draw(status, most_rows=3))
        self.lines += [f"| {line}" for line in stream.taken()]

    def look(self) -> None:
        """See the base class: the table, and how each epoch has ended."""
        status = run_status(self.run, self.now, self.leases)
        self._draw(status)
        self.lines += [f"epoch {epoch_words(end)}; {end.then}" for end in status.ended]
        self.lines.append(f"used {used_text(status)}; {after_starts(status.ended, 1)}")

    def end(self) -> None:
        """What is left of it once it is over."""
        if (result := self.run.result) is not None:
            with TemporaryDirectory() as folder:
                words = last_line("r", result, StateDir(Path(folder), "r")).replace(
                    folder, "/state"
                )
            self.lines += [f"last {line}" for line in words.splitlines()]
        self._boards[0].status(run_status(self.run, self.now + 61, self.leases))
        self._boards[1].close()
        self._boards[1].close()
        self.lines += [f"log {line}" for line in self._log.taken()]
        self.lines += [f"json {line}" for line in self._json.taken()]


COURSES = (
    runs.it_ends_well,
    runs.it_fails_twice_and_starts_again,
    runs.it_loses_two_nodes,
    runs.it_goes_on_with_a_standby,
    runs.nobody_reaches_slot_2,
    runs.they_come_late_or_not_at_all,
    runs.its_machine_will_go,
    runs.nothing_moves,
    runs.fewer_go_on,
)


def seen(course: Callable[[], Course]) -> Seen:
    """This run, as it is shown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "Course", Seen)
        drive = course()
    assert isinstance(drive, Seen)
    drive.end()
    return drive


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
def test_what_is_seen_of_a_course(course: Callable[[], Course]) -> None:
    assert seen(course).lines == lines_in(KNOWN, course.__name__)


def _all() -> dict[str, Callable[[], Course]]:
    return {one.__name__: lambda one=one: seen(one) for one in COURSES}  # type: ignore[misc]


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(_all())) == 0)
