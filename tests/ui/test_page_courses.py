"""What the page's process answers is as in `paged.txt`.

Of a run whose slots are not its ranks, on a clock that jumps: it is asked for everything. Who
changes what the page is told writes the file anew (`make reference`), and reads in the diff what
else has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.show import run_list
from launcher.state.state_dir import StateDir
from launcher.ui import runs as runs_module
from launcher.ui import save, viewed
from launcher.ui.clerk import Keys
from launcher.ui.parts import Act, PageRun, Part, View
from launcher.ui.save import saved_of
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.run import EventLine, Phase
from tests.launcher.asked import Asking, driven
from tests.launcher.command import LAUNCH_ID, record_of
from tests.launcher.test_status_courses import (
    OPTIONS,
    REPORT,
    RUNNING,
)
from tests.support.courses import Told, lines_in, text_of
from tests.support.pages import RUN, PageDoor
from tests.support.written import Registry
from tests.ui.test_asked import table

KNOWN = Path(__file__).with_name("paged.txt")
AT = f"/v1/runs/{RUN}"
PAGE = f"/a/prefix/ui-api/runs/{RUN}"
SECRET = bytes(range(32))
ODD = "odd.txt"


class Odd(Part):
    """A feature's part: the numbers of a file, and how often its registry has answered."""

    def __init__(self, run: PageRun) -> None:
        super().__init__(run)
        self.lines: list[tuple[int, int]] = []
        self.answers = (0, 0)

    async def follow(self, client: RegistryClient) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.run.head["state"] == "running":
                await client.status("odd", after=-1, wait=0.0)
                self.answers = (self.run.change(), self.answers[1] + 1)
                await asyncio.sleep(29.0)

    async def read(self) -> None:
        with contextlib.suppress(OSError):
            lines = (self.run.state_dir.path / ODD).read_text().split()[len(self.lines) :]
            if lines:
                n = self.run.change()
                self.lines += [(n, int(line)) for line in lines]

    def since(self, after: int) -> dict[str, Any] | None:
        lines = [line for n, line in self.lines if n > after]
        answers = {"answers": self.answers[1]} if self.answers[0] > after else {}
        return {**({"lines": lines} if lines else {}), **answers} or None

    def views(self) -> Mapping[str, View]:
        return {"odd": self._odd}

    def acts(self) -> Mapping[str, Act]:
        return {"odd": self._acts}

    async def _acts(self, client: RegistryClient) -> dict[str, str]:
        return {"words": (await client.status("odd", after=-1, wait=0.0)).reason}

    async def _odd(self) -> dict[str, Any]:
        report = await self.run.ask(lambda client: client.checks(RUN))
        return {"report": report.run if report is not None else None, "lines": len(self.lines)}


async def _here(work: Callable[..., Any], *args: Any) -> Any:
    """In place of a thread."""
    await asyncio.sleep(0)
    return work(*args)


class Course:
    """A page, and the folder of its runs; see `asked`."""

    def __init__(self, asker: Asking, patch: pytest.MonkeyPatch) -> None:
        self.asker, self.patch = asker, patch

        def clock() -> float:
            with contextlib.suppress(RuntimeError):
                return asyncio.get_running_loop().time()
            return 0.0

        times = SimpleNamespace(
            monotonic=clock,
            monotonic_ns=lambda: int(clock() * 1e9) + 1_000_000,
            time=lambda: 5_000.0 + clock(),
            gmtime=lambda: (2026, 11, 25, 14, 30, 0, 2, 329, 0),
            strftime=time.strftime,
        )
        for module in (viewed, runs_module, run_list, save):
            patch.setattr(module, "time", times)
        walls = SimpleNamespace(monotonic=time.monotonic, sleep=time.sleep, time=times.time)
        patch.setattr("launcher.state.state_dir.time", walls)
        patch.setattr(asyncio, "to_thread", _here)
        patch.setenv("RDZV_STATE_DIR", str(asker.root))
        patch.setattr("launcher.ui.parts._classes", lambda: {"odd": Odd})
        for module_ in ("launcher.ui.app", "launcher.ui.save", "launcher.ui.scraped"):
            patch.setattr(f"{module_}.rdzv_version", lambda: "1.2.3")
        self.held: list[StateDir] = []

    def run(self) -> StateDir:
        """The folder of the run, whose launcher lives."""
        state = StateDir(self.asker.root, RUN)
        state.acquire()
        place = RegistryPlace(("127.0.0.9",), 29_633)
        record = record_of(place, options=OPTIONS, nodes="3", host="login", started_at=4_500.0)
        state.write_record(record)
        state.secret(lambda: SECRET)
        self.held.append(state)
        return state

    def tell(self, mark: str, text: object) -> None:
        """Tell it, with the time."""
        at = asyncio.get_running_loop().time()
        self.asker.lines.append(f"{at:.2f} {mark} {text}".replace(str(self.asker.root), "/state"))

    def release(self) -> None:
        """Their launchers are gone."""
        for state in self.held:
            state.release()


def keys_of(*, acts: bool) -> Keys:
    """What a clerk hands out of the run."""
    keys = RunKeys(SECRET, RUN, LAUNCH_ID)
    some = Keys(read=keys.read, logs=keys.logs)
    return Keys(keys.read, keys.logs, keys.look, keys.admin) if acts else some


def answering(made: Course) -> Registry:
    """A registry that answers everything."""
    registry = Registry({})
    registry.put_in(made.patch, "launcher.ui.viewed")
    registry.answers |= {
        f"GET {AT}": RUNNING,
        "GET /v1/runs/odd": RUNNING,
        f"GET {AT}/report": REPORT,
        f"GET {AT}/tables/{table().digest()}": table(),
        f"DELETE {AT}": RUNNING.model_copy(update={"reason": "it is cancelled"}),
        f"POST {AT}/restart": RUNNING.model_copy(update={"reason": "it starts again"}),
        f"POST {AT}/slots/4/drain": RUNNING.model_copy(update={"reason": "node 1 goes"}),
    }
    return registry


async def _ask(made: Course, door: PageDoor, session: str | None, *asked: tuple[Any, ...]) -> None:
    names = ("content-type", "x-accel-buffering", "retry-after", "content-encoding")
    for method, path, *rest in asked:
        body = rest[0] if rest else b""
        shown = rest[1] if len(rest) > 1 else {}
        answer = await door.ask(method, path, session, body, **shown)
        heads = {name: answer.headers[name] for name in names if name in answer.headers}
        heads = {name: one for name, one in heads.items() if one != "application/json"}
        made.tell("ask", f"{method} {path} {body or ''!r}: {answer.status} {heads or ''}".rstrip())
        text = answer.body.decode("utf-8", "replace")
        if path.endswith(("app.js", "app.css", "/")):
            text = f"{len(text) > 1_000}"
        for line in text.splitlines():
            made.asker.tell(" ", f"  {line}")


ACTS: tuple[Any, ...] = (
    {"act": "odd"},
    {"act": "cancel", "reason": "enough"},
    {"act": "cancel"},
    {"act": "restart", "reason": "again"},
    {"act": "drain"},
    {"act": "drain", "node": 1, "seconds": 12.5, "reason": "its fan"},
    {"act": "drain", "node": 3},
    {"act": "drain", "node": -1},
    {"act": "sing"},
    b"{",
)


async def it_is_asked_everything(made: Course) -> None:
    """With acts while it lives, without once it was killed."""
    state = made.run()

    async def nothing(*_: Any) -> AsyncIterator[EventLine]:
        await asyncio.sleep(1e6)
        yield EventLine(1, 1.0, "joined", "", Phase.RUNNING, 1)

    made.patch.setattr(RegistryClient, "events", nothing)
    registry = answering(made)
    (state.path / ODD).write_text("1\n2\n")
    views = ("state", "checks", "matrix", "odd", "environment?node=2")
    asked: list[tuple[Any, ...]] = [("GET", f"{PAGE}/{view}") for view in views]
    door = PageDoor(made.asker.root, keys=keys_of(acts=True), key="a key of sixteen letters")
    session = door.session()
    await _ask(made, door, None, ("GET", "/"), ("GET", "/x/app.css"), ("GET", "/app.jsx"))
    ticket = door.sessions.ticket(asyncio.get_running_loop().time())
    logins: tuple[Any, ...] = (
        *({"ticket": ticket}, {"ticket": ticket}, {"key": "a key of sixteen letters"}),
        *({"key": "wrong"}, {}, {"what": 1}),
    )
    await _ask(made, door, None, *(("POST", "/ui-api/session", one) for one in logins))
    await _ask(made, door, "no session", ("GET", "/ui-api/runs"))
    await _ask(made, door, session, ("GET", "/ui-api/runs"), *asked)
    await _ask(made, door, session, *(("POST", f"{PAGE}/acts", one) for one in ACTS))
    n = door.runs.viewed(RUN).told.n
    wrong: list[tuple[Any, ...]] = [
        ("GET", f"{PAGE}/{one}")
        for one in (
            *("changes", f"changes?after={n}", f"changes?after={n - 1}", "changes?after=x"),
            *("events?before=9", "environment?node=9", "environment", "nothing", "acts"),
            *("stream?after=-1", "logs?node=1&rank=2", "state?" + "&".join("abcdefghijklmnop" * 3)),
        )
    ]
    await _ask(made, door, session, *wrong, ("GET", "/ui-api/runs/nosuch/state"), ("PUT", PAGE))
    await _ask(made, door, session, ("GET", "/ui-api/runs/a/b/c"), ("POST", f"{PAGE}/state"))
    names = {
        getattr(keys_of(acts=True), name).text(): name for name in ("read", "logs", "look", "admin")
    }
    calls = zip(registry.asked, registry.credentials, strict=True)
    told = [f"asked {names.get(of or '')}: {call} {sent or ''}" for (call, sent), of in calls]
    made.asker.lines += [one for one, _ in itertools.groupby(told)]
    made.patch.setattr(door.runs.viewed(RUN), "keys", keys_of(acts=False))
    await _ask(made, door, session, *(("POST", f"{PAGE}/acts", one) for one in ACTS[:2]))
    for answer in registry.answers:
        registry.answers[answer] = Unavailable("nobody answers")
    await _ask(made, door, session, *asked[1:])
    state.write("report.json", REPORT.model_dump_json().encode())
    state.write("table.json", table().model_dump_json().encode())
    state.write("status.json", RUNNING.model_dump_json().encode())
    state.release()
    await _ask(made, door, session, *asked[1:], ("GET", "/ui-api/runs"))
    whole = await saved_of(door.runs.viewed(RUN))
    of_views = whole["views"]
    for name, part in (*whole.items(), *of_views.items()):
        made.tell("saved", f"{name} {json.dumps(part)[:400]}")
    record = state.record()
    assert record is not None
    state.write_record(record.model_copy(update={"options": {}}))
    await _ask(made, door, session, asked[4])
    await door.runs.close()


ASKED = "it is asked everything"
COURSES: dict[str, Callable[[], Told]] = {
    ASKED: driven(Course, lambda made: made.asker.asks(ASKED, it_is_asked_everything(made)))
}


def test_what_the_page_is_answered() -> None:
    assert COURSES[ASKED]().lines == lines_in(KNOWN, ASKED)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
