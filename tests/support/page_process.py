"""The real `rdzv ui`, and one who looks at it without a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.launching import RDZV, environment
from tests.support.terminals import ESCAPE
from tests.support.waiting import until

LINK = re.compile(r"(http://\S+/)#t=([\w-]{22})")


class Looker:
    """Somebody who has opened a link.

    Args:
        base: The page's address.
        login: What opens a session.
    """

    def __init__(self, base: str, run: str = "r", **login: str) -> None:
        self.base = base
        self.run = run
        self._watching: list[threading.Thread] = []
        self.client = httpx.Client(base_url=base, timeout=40)
        opened = self.client.post("ui-api/session", json=login)
        assert opened.status_code == 200, opened.text
        self.opened = opened.json()
        self.client.headers["x-rdzv-session"] = self.opened["session"]

    def get(self, what: str) -> httpx.Response:
        """Of the run."""
        return self.client.get(f"ui-api/runs/{self.run}/{what}")

    def state(self) -> dict[str, Any]:
        """Everything."""
        answer = self.get("state")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait(self, state: str) -> dict[str, Any]:
        """Until the run is so; its head."""

        def look() -> dict[str, Any] | None:
            head: dict[str, Any] = self.state()["head"]
            return head if head["state"] == state else None

        return until(look)

    def act(self, **act: Any) -> httpx.Response:
        """Ask for an act."""
        return self.client.post(f"ui-api/runs/{self.run}/acts", json=act)

    def lines(self, what: str) -> Iterator[dict[str, Any]]:
        """A stream, line by line, until it or the page ends."""
        try:
            with self.client.stream("GET", f"ui-api/runs/{self.run}/{what}") as answer:
                assert answer.status_code == 200
                for line in answer.iter_lines():
                    yield json.loads(line)
        except httpx.TransportError:
            return

    def watch(self) -> list[dict[str, Any]]:
        """What the stream says from now on, in a list that grows; its state at first."""
        found: list[dict[str, Any]] = [self.state()]
        thread = threading.Thread(target=self._watch, args=(found,), daemon=True)
        self._watching.append(thread)
        thread.start()
        return found

    def close(self) -> None:
        """Look no longer; the page has ended, or soon does."""
        for thread in self._watching:
            thread.join(20)
        self.client.close()

    def _watch(self, found: list[dict[str, Any]]) -> None:
        for change in self.lines(f"stream?after={found[0]['n']}"):
            found.append(change)


def heads(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a stream."""
    return [change["head"] for change in changes if "head" in change]


class Page:
    """A page that is served by a process."""

    def __init__(self, process: subprocess.Popen[str], run: str) -> None:
        self.process = process
        self.run = run
        self.lookers: list[Looker] = []
        assert process.stdout is not None
        said = process.stdout.readline()
        found = LINK.search(said)
        assert found, said
        self.base, self.ticket = found.groups()

    def looker(self) -> Looker:
        """Who has its link."""
        self.lookers.append(Looker(self.base, self.run, ticket=self.ticket))
        return self.lookers[-1]


@contextmanager
def page_of(
    state: Path, *words: str, run: str = "r", env: dict[str, str] | None = None
) -> Iterator[Page]:
    """`rdzv ui`, until the test is over."""
    argv = [RDZV, "ui", run, *words]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(state, **(env or {})),
        start_new_session=True,
    )
    page = None
    try:
        page = Page(process, run)
        yield page
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
            for looker in page.lookers if page is not None else ():
                looker.close()


@contextmanager
def launch_on_terminal(
    state: Path, *words: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], tuple[str, str]]]]:
    """`rdzv launch` on a terminal, and what waits for its link: the address and the ticket."""
    ours, its = os.openpty()
    process = subprocess.Popen(
        [RDZV, "launch", "--rdzv-id", "r", *words],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        env=environment(state),
        start_new_session=True,
    )
    os.close(its)
    said = bytearray()
    reading = threading.Thread(target=_read, args=(ours, said), daemon=True)
    reading.start()

    def link() -> tuple[str, str]:
        found = until(lambda: LINK.search(re.sub(r"\r?\n *", "", _plain(said))))
        return found[1], found[2].split("rdzv")[0]

    try:
        yield process, link
    finally:
        process.kill()
        process.wait()
        reading.join(20)
        os.close(ours)


def _plain(said: bytearray) -> str:
    return ESCAPE.sub("", said.decode(errors="replace"))


def _read(terminal: int, said: bytearray) -> None:
    try:
        while data := os.read(terminal, 65_536):
            said += data
    except OSError:  # that is how a terminal ends
        return
