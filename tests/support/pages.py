"""The page's application without a process, and without a socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.types import Message

from launcher.state.state_dir import StateDir
from launcher.ui.app import Served, make_app
from launcher.ui.clerk import Keys
from launcher.ui.page import load
from launcher.ui.runs import Runs
from launcher.ui.sessions import Sessions
from tests.launcher.command import launched
from tests.support.served import Answer, scope_of

HOST = "localhost:29610"
RUN = "llama"
METRICS_KEY = "k" * 43


class Holds:
    """What stands in for the clerk."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def keys(self, run: str) -> Keys:
        """The same of every run."""
        return self._keys


class PageDoor:
    """The application of a page, and one who asks."""

    def __init__(
        self, root: Path, *, keys: Keys | None = None, key: str = "", hosts: Sequence[str] = ()
    ) -> None:
        numbers = iter(range(1 << 20))
        self.sessions = Sessions(lambda count: f"{count}-{next(numbers):040}", key)
        self.runs = Runs(root, Holds(keys or Keys()))
        self.served = Served(
            self.runs,
            self.sessions,
            load(),
            METRICS_KEY,
            RUN,
            keys is not None and keys.admin is not None,
        )
        self.app = make_app(self.served, hosts)

    def session(self) -> str:
        """An open one."""
        now = asyncio.get_running_loop().time()
        session = self.sessions.open_by_ticket(self.sessions.ticket(now), now)
        assert session is not None
        return session

    async def ask(
        self,
        method: str,
        path: str,
        session: str | None = None,
        body: Any = b"",
        *,
        source: str = "127.0.0.1",
        enough: Callable[[bytes], bool] = lambda body: False,
        **headers: str,
    ) -> Answer:
        """Send one request; once what has come is enough, the one who asks goes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        shown = {} if session is None else {"x-rdzv-session": session}
        named = {"host": HOST, "content-length": str(len(data))} | shown
        named |= {name.replace("_", "-"): text for name, text in headers.items()}
        pairs = [(name.encode(), text.encode("latin-1")) for name, text in named.items()]
        requests: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]
        answers: list[Message] = []
        gone = asyncio.Event()

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            answers.append(message)
            if enough(b"".join(one.get("body", b"") for one in answers)):
                gone.set()
                await asyncio.sleep(0)

        await self.app(scope_of(method, path, pairs, source), receive, send)
        start = answers[0]
        names = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], names, b"".join(a.get("body", b"") for a in answers[1:]))


def kept_run(root: Path, **files: str) -> StateDir:
    """Run 'llama', whose launcher was killed, with these files of one node's programs."""
    state = launched(root, command=["train.py"])
    for name, text in files.items():
        (state.logs / f"{name}.log").write_text(text)
    return state


@contextlib.asynccontextmanager
async def page_door(root: Path, **known: Any) -> AsyncIterator[PageDoor]:
    """A page of the runs of a folder."""
    door = PageDoor(root, **known)
    try:
        yield door
    finally:
        await door.runs.close()
