"""What VESSL's API is asked, when, and what is made of each answer, as in `http.txt`.

On a virtual clock, without a network: three worker runs whose slots, generations and ids differ.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launcher.schedulers import vessl_api
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.vessl_http import VesslHttpScheduler
from rendezvous.wire.errors import SchedulerError
from tests.support.bed import join_text, worker_run
from tests.support.courses import lines_in, one_line, write_down
from tests.support.virtual_time import run_virtually

KNOWN = Path(__file__).with_name("http.txt")
ACCOUNT = {
    "VESSL_ACCESS_TOKEN": "t0ken",
    "VESSL_DEFAULT_ORGANIZATION": "acme & co",
    "VESSL_DEFAULT_PROJECT": "llama/7",
    "VESSL_API_HOST": "https://api.example.com/base",
    "HOME": "/nowhere",
}
Answer = tuple[int, Any] | Exception


class Course:
    """A scheduler whose API answers as the course wants.

    Attributes:
        lines: Each request, and what came of what was asked.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.answers: list[Answer] = []
        self.scheduler = VesslHttpScheduler(SchedulerContext(folder, ACCOUNT))
        course = self

        class Exchange:
            def __init__(self, account: object, timeout_seconds: float) -> None:
                self.sent, self.seconds = False, timeout_seconds

            def run(
                self, method: str, path: str, body: Mapping[str, object] | None
            ) -> tuple[int, bytes]:
                words = "" if body is None else f" {len(str(body).splitlines())} {[*body]}"
                course.add(f"{method} {path}{words} within {self.seconds:g} s")
                answer = course.answers.pop(0)
                if isinstance(answer, Exception):
                    self.sent = not isinstance(answer, ConnectionRefusedError)
                    raise answer
                status, found = answer
                return status, found if isinstance(found, bytes) else json.dumps(found).encode()

            def abort(self) -> None:
                pass

        async def at_once(step: Callable[..., Any], *given: Any) -> Any:
            await asyncio.sleep(0.25)
            return step(*given)

        monkeypatch.setattr(vessl_api, "_Exchange", Exchange)
        monkeypatch.setattr(asyncio, "to_thread", at_once)

    def run_of(self, slot: int) -> Any:
        """A worker run."""
        return worker_run("vessl", slot, slot + 3)

    def add(self, words: object) -> None:
        """One line."""
        self.lines.append(f"{asyncio.get_running_loop().time():.2f} {one_line(words)}")

    async def tell(self, what: Coroutine[Any, Any, Any], *answers: Answer) -> None:
        """Tell what came of it."""
        self.answers += answers
        try:
            found = await what
        except SchedulerError as exc:
            self.add(f"! {type(exc).__name__} {exc.message} [{exc.hint}]")
        else:
            if found is not None and not isinstance(found, str):
                found = f"{found.state} {found.detail!r}{' preempted' * found.preempted}"
            self.add(f"= {found}")
        assert self.answers == []

    async def submit(self, slot: int, *answers: Answer) -> None:
        """Submit it, and tell the troubles on the way."""

        async def trouble(words: str) -> None:
            self.add(f"? {words}")

        await self.tell(
            self.scheduler.submit(self.run_of(slot), join_text(slot), trouble=trouble), *answers
        )


def _made(number: object) -> Answer:
    return 201, {"run_execution": {"id": number}}


def _clusters(*names: str) -> Answer:
    return 200, {"clusters": [{"name": name} for name in names]}


def _rows(course: Course, *rows: tuple[int, int, str]) -> Answer:
    return 200, {
        "results": [
            {"id": number, "run_spec": {"title": course.run_of(slot).name}, "status": status}
            for number, slot, status in rows
        ]
    }


async def submissions(course: Course) -> None:
    """They are tried, looked for, and tried again, or refused; a cluster comes later."""
    known = _clusters("old", "gpu-cluster")
    none = _rows(course)
    refusal = {"code": "no_preset", "message": "none", "fields": [{"name": "p", "message": "x"}]}
    await course.submit(1, _clusters("old"))
    await course.submit(1, known, _made(71))
    await course.submit(2, _made(75))
    await course.submit(3, ConnectionRefusedError("refused"), (429, b""), _made(76))
    await course.submit(3, *[ConnectionRefusedError("refused")] * 3)
    await course.submit(3, (503, b"later"), none, none, none, _made(77))
    await course.submit(3, (500, refusal), none, _rows(course, (78, 3, "running"), (74, 3, "x")))
    await course.submit(2, *[(502, b""), none, none, none] * 3)
    await course.submit(2, TimeoutError(), none, none, none)
    await course.submit(1, OSError(104, "reset"), *[(503, b"")] * 3)
    for status in (400, 401, 403, 404):
        await course.submit(1, (status, refusal))
    for answer in ({}, {"run_execution": {"id": True}}, b"<html>", {"run_execution": {"id": "7"}}):
        await course.submit(1, (200, answer), _rows(course, (79, 1, "pending")))


async def afterwards(course: Course) -> None:
    """They are found page by page, described, ended with all of their name, and read."""
    scheduler, one, two = course.scheduler, course.run_of(1), course.run_of(2)
    page = _rows(course, *[(number, 3, "x") for number in range(100)])
    other = _rows(course, *[(number, 3, "x") for number in range(100, 200)])
    await course.tell(scheduler.find(two), page, other, _rows(course, (7, 1, "x"), (9, 2, "x")))
    await course.tell(scheduler.find(one), page, page)
    await course.tell(scheduler.find(one), (503, b""), OSError(104, "reset"), _rows(course))
    await course.tell(scheduler.find(one), *[(503, b"")] * 3)
    await course.tell(scheduler.find(one), (403, b"{"))
    for status in ("pending", "initializing", "running", "completed", "failed", "odd"):
        said = {"status": status, "status_reason": None if status == "pending" else "was Evicted"}
        await course.tell(scheduler.describe(one, "71"), (200, said))
    await course.tell(scheduler.describe(one, "71"), (404, {}))
    await course.tell(scheduler.describe(two, "75x"), (404, {}))
    await course.tell(scheduler.describe(two, "75"), (401, {}))
    rows = _rows(course, (75, 2, "running"), (76, 2, "failed"), (77, 2, "pending"), (78, 1, "x"))
    end = partial(scheduler.cancel, two, "75", grace_seconds=7.25)
    await course.tell(end(), (200, {}), rows, (200, b""))
    await course.tell(scheduler.describe(two, "75"), (404, {}))
    await course.tell(end(), (400, {}), (200, {"status": "stopped"}), _rows(course))
    await course.tell(end(), (400, {}), (200, {"status": "running"}))
    await course.tell(end(), TimeoutError(), (404, {}), _rows(course))
    course.add(scheduler.cancel_words(one, "71"))
    course.add(scheduler.cancel_words(one, None))
    await course.tell(_logs(course, follow=False, lines=17), _log(3.5, "a\nb\\nc"))
    await course.tell(
        _logs(course, follow=True, lines=19),
        *((200, {"status": "running"}), _log(7.5, "d"), (200, {"status": "running"}), (200, {})),
        *((200, {"status": "completed"}), _log(9.0, "last")),
    )


def _log(at: float, *messages: str) -> Answer:
    return 200, {"logs": [{"timestamp": at, "message": words} for words in messages]}


async def _logs(course: Course, *, follow: bool, lines: int) -> str:
    shown = course.scheduler.logs(course.run_of(1), "71", lines=lines, follow=follow)
    return str([line async for line in shown])


COURSES = {"submissions": submissions, "afterwards": afterwards}


def _course(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    course = Course(folder, monkeypatch)
    run_virtually(COURSES[name](course))
    return course


@pytest.mark.parametrize("name", COURSES)
def test_each_course_is_as_it_was_written_down(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _course(name, tmp_path, monkeypatch).lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    write_down(KNOWN, COURSES, _course)
