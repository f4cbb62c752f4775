"""What a profile's scheduler asks, when, and what it makes of each answer, on a virtual clock.

Three worker runs whose slots, generations, ids and answers differ, and all of it twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.schedulers.command import Said
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.profile_file import read_profile
from rendezvous.wire.errors import SchedulerError
from tests.schedulers.test_profile import Changes, bench, changed, written
from tests.support.bed import join_text
from tests.support.courses import lines_in, write_down
from tests.support.virtual_time import run_virtually

WHOLE: list[Changes] = [
    ("retry_submit", "at_once = 2\nbusy = 'dropped[\\s\\S]*^exit code 255$'\nretry_submit"),
    ("timeout_seconds = 30", "timeout_seconds = 20"),
    ("poll_seconds = 0.1", "poll_seconds = 7"),
    ('argv = ["batch", "show", "<<ID>>"]', 'argv = ["batch", "all"]'),
    (
        "'^state=(?P<state>\\S+) reason=(?P<detail>.*)$'\ngone = 'no such job'",
        "'^<<ID>> (?P<state>\\S+) (?P<code>\\d*) (?P<detail>.*)$'\nlist = true",
    ),
    ("[logs]", '[clear]\nargv = ["batch", "clear", "<<NAME>>"]\n\n[logs]'),
    ("[submit]", "begins = '^begin$'\n[submit]"),
    ("[find]", "refused = 'no account'\nfinal = 'for ever'\n\n[find]"),
    ('failed = ["BROKEN"]', 'failed = ["BROKEN"]\npreempted = ["TAKEN"]'),
]
KNOWN = Path(__file__).with_name("courses.txt")
SECONDS = 0.25
"""How long each command takes."""


class Course:
    """A scheduler whose commands say what the course wants.

    Attributes:
        lines: Each command with its time limit, and what came of what was asked.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *changes: Changes) -> None:
        self.bed = bench(folder)
        monkeypatch.setattr(random, "random", lambda: 1.0)
        profile = read_profile(written(folder, changed(*WHOLE, *changes)))
        context = SchedulerContext(self.bed.submissions, {"PATH": "/bin"})
        self.scheduler = ProfileScheduler("batch", profile, context)
        self.scheduler._runner = cast(Any, self)
        self.lines: list[str] = []
        self.answers: list[tuple[int | None, str] | SchedulerError] = []
        self._at_once = 0

    def run_of(self, slot: int) -> Any:
        """A worker run; no two numbers of it are the same one."""
        return self.bed.run(slot, generation=slot + 3)

    async def run(
        self, argv: list[str], *, timeout_seconds: float, stdin: str | None = None
    ) -> Said:
        """In the place of the runner."""
        self._at_once += 1
        assert self._at_once <= 2
        words = " ".join(argv).replace(f"{self.bed.submissions}/", "")
        self._add(f"{words} within {timeout_seconds:g} s" + (f" < {stdin}" if stdin else ""))
        answer = self.answers.pop(0)
        await asyncio.sleep(SECONDS)
        self._at_once -= 1
        if isinstance(answer, SchedulerError):
            raise answer
        code, said = answer
        return Said(code, f"begin\n{said}" if code != 9 else said, "no room" * (code == 1))

    def _add(self, words: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time():.2f} {words}")

    async def tell(self, what: Coroutine[Any, Any, Any]) -> None:
        """Tell what came of it."""
        try:
            found = await what
        except SchedulerError as exc:
            kind = f"{type(exc).__name__}{getattr(exc, 'final', '') or ''}"
            words = f"! {kind} {exc.message} [{exc.hint}]"
            self._add(words.replace(f"{self.bed.submissions}/", ""))
        else:
            is_text = found is None or isinstance(found, str)
            words = "" if is_text else f"{found.state} {found.detail} {found.preempted}"
            self._add(f"= {words or found}")

    async def submit(self, slot: int, *answers: tuple[int | None, str] | SchedulerError) -> None:
        """Submit it, and tell the troubles on the way."""

        async def trouble(words: str) -> None:
            self._add(f"? {words}")

        self.answers += answers
        await self.tell(self.scheduler.submit(self.run_of(slot), join_text(slot), trouble=trouble))

    async def describe(
        self, slot: int, handle: str, *answers: tuple[int | None, str] | SchedulerError
    ) -> None:
        """Tell how it is described."""
        self.answers += answers
        await self.tell(self.scheduler.describe(self.run_of(slot), handle))

    async def cancel(
        self, slot: int, handle: str, grace: float, *answers: tuple[int | None, str]
    ) -> None:
        """End it, and tell what of it still lies in the launch's folder."""
        self.answers += answers
        await self.tell(self.scheduler.cancel(self.run_of(slot), handle, grace_seconds=grace))
        self._add(f"# {' '.join(self.files())}")

    def files(self) -> list[str]:
        """What lies in the launch's folder."""
        return sorted(path.name for path in self.bed.submissions.glob("*"))


def submissions(course: Course) -> Any:
    """They are tried, looked for, and tried again."""

    async def work() -> None:
        lost = SchedulerError("it cannot be started", hint="see why")
        there = (0, "66 rdzv-k7f2a9c1xy-3-6 x\n67 rdzv-k7f2a9c1xy-3-6 y\n68 another z")
        await course.submit(
            3,
            (1, "what?"),
            *((0, "none"), (3, "503"), (0, "none")),
            (None, ""),
            *((9, "none"), lost, there),
        )
        await course.submit(2, (255, "dropped"), (255, "dropped"), (0, "job 70 submitted"))
        await course.submit(1, (255, "dropped"), (1, "job -8 submitted\njob 71 submitted"))
        await course.submit(3, (4, "no account"), (1, "cannot clear"))
        await course.submit(3, (4, "no account for ever"), (0, "cleared"))
        await course.submit(3, (4, "no account for ever"))
        await course.submit(1, (0, ""), (3, ""), (3, "busy"), (3, "down"))
        await course.submit(1, lost)

    return work


def afterwards(course: Course) -> Any:
    """Runs are described together, ended, and what they have left is taken away."""

    async def work() -> None:
        both = (0, "71 WAITING  Priority  is low\n75 ACTIVE 0 \n76 ACTIVE 5 no node\n72 ODD  x")
        for slot, handle in ((1, "71"), (2, "75"), (3, "76")):
            await course.submit(slot, (0, f"job {handle} submitted"))
        await course.describe(1, "71", both)
        await course.describe(2, "75")
        await course.describe(3, "76")
        await course.describe(3, "72")
        await course.describe(3, "79", (1, "cannot clear"))
        await asyncio.sleep(5.0)
        await course.describe(1, "71")
        await asyncio.sleep(2.0)
        ended = (0, "71 DONE 00 all  well\n75 BROKEN 7 \n76 TAKEN  for another\n76 DONE 3 x")
        await course.describe(1, "71", ended, (1, "cannot clear"))
        await course.describe(1, "71", (0, ""))
        await course.describe(1, "71")
        await course.describe(2, "75", (1, ""))
        await course.describe(3, "76", (0, ""))
        await course.cancel(2, "75", 7.2, (0, ""))
        gone = (0, "76 DONE 0 ")
        await course.describe(2, "75", gone, (0, ""))
        await asyncio.sleep(0.25)
        await course.describe(3, "76")
        await asyncio.sleep(0.25)
        await course.describe(3, "76", (3, "who?"))
        await course.describe(3, "76")
        await asyncio.sleep(30.0)
        await course.describe(3, "76", (0, "76 ACTIVE  again"))
        await asyncio.sleep(6.5)
        await course.describe(3, "76")
        await asyncio.sleep(0.25)
        await course.describe(1, "70", (9, "half"))
        await course.submit(3, (1, "what"), (0, "80 rdzv-k7f2a9c1xy-3-6 x"))
        listed = (0, "80 rdzv-k7f2a9c1xy-3-6 x\n82 rdzv-k7f2a9c1xy-3-6 y")
        await course.cancel(3, "80", 0.0, (0, ""), listed, (1, "no such job"))
        await course.cancel(1, "71", 2.0, (1, "no"), (0, "71 ACTIVE  y"))
        await course.cancel(1, "71", 2.0, (1, "no"), (0, "71 DONE  y"))
        await course.cancel(1, "71", 2.0, (9, "no such job"), (0, ""))
        await asyncio.sleep(60.0)
        course.answers += [(0, "71 ACTIVE  a\n75 WAITING  b")]
        await asyncio.gather(course.describe(1, "71"), course.describe(2, "75"))
        course.answers += [(0, "7 rdzv-k7f2a9c1xy-1-4 x"), (4, "no"), (0, "none")]
        finds = [course.scheduler.find(course.run_of(slot)) for slot in (1, 2, 3)]
        await asyncio.gather(*map(course.tell, finds))

    return work


COURSES = {"submissions": submissions, "afterwards": afterwards}


def _course(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    course = Course(folder, monkeypatch)
    run_virtually(COURSES[name](course)())
    assert course.answers == []
    return course


@pytest.mark.parametrize("name", COURSES)
def test_each_course_is_as_it_was_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert _course(name, tmp_path, monkeypatch).lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    write_down(KNOWN, COURSES, _course)
