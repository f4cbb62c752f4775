"""What the page's process answers, and what those who look are sent, is as in `paged.txt`.

Of a run whose slots are not its ranks, on a clock that jumps: it is asked for everything, and it is
looked at from before its launch to after its end, taken up again, and launched anew. Who changes
what the page is told writes the file anew (`make reference`), and reads in the diff what else has
changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.show import run_list
from launcher.state.state_dir import StateDir, recorded_runs
from launcher.ui import runs as runs_module
from launcher.ui import save, scraped, viewed
from launcher.ui.app import _changes
from launcher.ui.clerk import Keys
from launcher.ui.parts import Act, PageRun, Part, Sample, View
from launcher.ui.prometheus import metrics_text
from launcher.ui.runs import Runs
from launcher.ui.save import saved_of, without_secrets
from launcher.ui.scraped import metrics_key
from launcher.ui.shapes import State
from launcher.ui.viewed import Viewed
from rendezvous.prometheus import Family
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RdzvError, Unavailable
from rendezvous.wire.run import EventLine, NodeState, Phase, Result, RunReport, RunStatus, SlotState
from tests.launcher.asked import Asking, driven
from tests.launcher.command import LAUNCH_ID, record_of
from tests.launcher.drive import slot
from tests.launcher.test_status_courses import (
    OPTIONS,
    REPORT,
    RUNNING,
)
from tests.support.courses import Told, lines_in, said, text_of
from tests.support.pages import METRICS_KEY, RUN, Holds, PageDoor
from tests.support.written import Registry
from tests.ui.test_asked import table

KNOWN = Path(__file__).with_name("paged.txt")
AT = f"/v1/runs/{RUN}"
PAGE = f"/a/prefix/ui-api/runs/{RUN}"
SECRET = bytes(range(32))
OK = Result(status="ok", exit_code=0, message="all 3 nodes ended", hint="see the logs")


ODD = "odd.txt"


def _odd(name: str, *labels: str) -> tuple[Family, Callable[[State], list[Sample]]]:
    family = Family(name, "gauge", "The newest line.", ("run", *labels))
    more = labels and ("7",)
    return family, lambda state: [
        ((state["head"]["run"], *more), one["lines"][-1])
        for one in state["parts"].values()
        if "lines" in one
    ]


class Odd(Part):
    """A feature's part: the numbers of a file, and how often its registry has answered."""

    series = (_odd("rdzv_odd"),)
    series_by_rank = (_odd("rdzv_rank_odd", "rank"),)

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
        self.now = 5_000.0

        def clock() -> float:
            with contextlib.suppress(RuntimeError):
                return asyncio.get_running_loop().time()
            return 0.0

        times = SimpleNamespace(
            monotonic=clock,
            monotonic_ns=lambda: int(clock() * 1e9) + 1_000_000,
            time=lambda: self.now + clock(),
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

    def run(self, name: str, launch: str = LAUNCH_ID, *, held: bool = True) -> StateDir:
        """The folder of a run."""
        state = StateDir(self.asker.root, name)
        state.acquire()
        place = RegistryPlace(("127.0.0.9",), 29_633)
        record = record_of(place, options=OPTIONS, nodes="3", host="login", started_at=4_500.0)
        state.write_record(record.model_copy(update={"run": name, "launch_id": launch}))
        state.secret(lambda: SECRET)
        if held:
            self.held.append(state)
        else:
            state.release()
        return state

    def tell(self, mark: str, text: object) -> None:
        """Tell it, with the time."""
        at = asyncio.get_running_loop().time()
        self.asker.lines.append(f"{at:.2f} {mark} {text}".replace(str(self.asker.root), "/state"))

    def release(self) -> None:
        """Their launchers are gone."""
        for state in self.held:
            state.release()


def course(drive: Callable[[Course], Any]) -> Callable[[], Told]:
    """Give one that is asked by its name."""
    what = drive.__name__.replace("_", " ")
    return driven(Course, lambda made: made.asker.asks(what, drive(made)))


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
    state = made.run(RUN)

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


class Client:
    """A run's registry as the page's reader asks it: what it says is given step by step."""

    def __init__(self) -> None:
        self.status_: RunStatus = RUNNING.model_copy(update={"version": 1})
        self.away: RdzvError | None = None
        self.lines: list[EventLine] = []
        self.asked: list[str] = []
        self.turn = asyncio.Event()

    def news(self, **changes: Any) -> None:
        """It stands otherwise."""
        version = self.status_.version + 1
        self.status_ = self.status_.model_copy(update={"version": version, **changes})
        self.wake()

    async def checks(self, run: str) -> RunReport:
        """As the client's."""
        self.asked.append(f"checks of {run}")
        return REPORT

    def line(self, kind: str, **more: Any) -> None:
        """Something happens."""
        number = len(self.lines) + 1
        line = EventLine(number, number * 2.5, kind, f"why {number}", self.status_.phase, 3, **more)
        self.lines.append(line)
        self.wake()

    def wake(self) -> None:
        """Whoever waits looks again."""
        self.turn.set()
        self.turn = asyncio.Event()

    async def status(self, run: str, *, after: int, wait: float) -> RunStatus:
        """As the client's."""
        clock = asyncio.get_running_loop().time
        self.asked.append(f"{clock():.2f} {run} after {after} wait {wait:g}")
        until = clock() + wait
        while self.away is None and self.status_.version <= after and clock() < until:
            waits = asyncio.ensure_future(self.turn.wait())
            await asyncio.wait([waits], timeout=until - clock())
            waits.cancel()
        if self.away is not None:
            raise self.away
        return self.status_

    async def events(self, run: str, after: int) -> AsyncIterator[EventLine]:
        """As the client's."""
        self.asked.append(f"events of {run} after {after}")
        while True:
            turn = self.turn
            if self.away is not None:
                raise self.away
            for line in self.lines:
                if line.number > after:
                    after = line.number
                    yield line
            if self.status_.phase is Phase.FINISHED:
                return
            await turn.wait()


async def it_is_looked_at(made: Course) -> None:
    """By one from the start, and one who comes later; it is killed, taken up again, ends, and is
    launched anew; then nobody looks any more."""
    made.patch.setattr("launcher.ui.kept.os.path.isfile", lambda _: False)  # no journal
    state, client = made.run(RUN), Client()
    opened: list[Any] = []

    @contextlib.asynccontextmanager
    async def registry_at(_: Any, credential: Any, seconds: float) -> AsyncIterator[Client]:
        opened.append((credential == keys_of(acts=False).read, seconds))
        yield client

    made.patch.setattr(viewed, "registry_at", registry_at)
    runs = Runs(made.asker.root, Holds(keys_of(acts=False)))
    closing = asyncio.create_task(runs.close_idle())
    one = runs.viewed(RUN)
    known: dict[str, dict[str, Any]] = {}

    async def look(name: str, after: int) -> None:
        while True:
            async for data in _changes(one, after):
                change = json.loads(data)
                shown, before = {}, known.setdefault(name, {})
                for key, value in change.items():
                    if key == "head":
                        old = before.get("head", {})
                        value = {k: v for k, v in value.items() if old.get(k) != v}
                        value.pop("elapsed", None)
                        before["head"] = change["head"]
                    shown[key] = value
                n = shown.pop("n") - one.told._first
                made.tell(name, f"+{n if abs(n) < 10**6 else 'old'} {json.dumps(shown)}")
                after = change["n"]
            state_ = await one.state()
            after = state_["n"]
            made.tell(name, f"anew {state_['head']['state']} {len(state_['slots'])} slots")

    async def until(seconds: float) -> None:
        await asyncio.sleep(seconds)

    first = asyncio.create_task(look("first", one.told.n))
    await until(0.35)
    client.line("slot", slot=4, state=SlotState.RUNNING)
    client.line("joined", slot=4)
    await until(0.5)
    second = asyncio.create_task(look("second", (await one.state())["n"]))
    await until(1.0)
    (state.path / ODD).write_text("1\n2\n")
    client.line("progressed", slot=0, progress="step 9", usual=True)
    await until(3.0)
    client.news(finding="nothing has moved for 2 min")
    await until(12.0)
    client.away = Unavailable("nobody answers")
    client.wake()
    await until(8.0)
    client.away = None
    await until(3.0)
    second.cancel()
    rows = RUNNING.slots
    client.news(
        phase=Phase.RESTARTING,
        remaining_seconds=4.0,
        finding="",
        slots=[rows[0], rows[1].model_copy(update={"node_state": NodeState.LOST}), slot(9)],
    )
    client.line("lost", slot=1)
    await until(2.0)
    state.release()  # its launcher is killed
    client.away = Unavailable("nobody answers")
    client.wake()
    state.write("status.json", client.status_.model_dump_json().encode())
    await until(4.0)
    state.acquire()
    client.away = None
    client.news(phase=Phase.RUNNING, remaining_seconds=None, slots=rows)
    await until(4.0)
    with (state.path / ODD).open("a") as file:
        file.write("3\n")
    failed = Result(status="failed", exit_code=7, message="node 1 failed", slot=4, node=1, hint="h")
    client.news(phase=Phase.FINISHED, result=failed, reason="node 1 failed")
    client.line("finished")
    await until(1.5)
    state.write_result(failed)
    await until(0.5)
    state.release()
    await until(3.0)
    settled = asyncio.create_task(one.settled())
    await until(1.0)
    made.tell("settled", settled.done())
    made.tell("idle", f"{one.is_idle} {one._viewers}")
    client.status_ = RUNNING.model_copy(update={"version": 1, "launch_id": "another1xy"})
    made.held.remove(state)
    (state.path / "result.json").unlink()
    state = made.run(RUN, "another1xy")
    client.lines.clear()
    client.asked.append("launched anew")
    await until(5.0)
    client.line("joined", slot=0)
    await until(2.0)
    state.write_result(OK)
    farewell = asyncio.create_task(runs.say_farewell())
    await until(3.0)
    made.tell("farewell", farewell.done())
    first.cancel()
    await until(1.0)
    client.news(phase=Phase.FINISHED, result=OK)
    state.release()
    await until(58.0)
    made.tell("idle", f"{one.is_idle} {runs.viewed(RUN) is one}")
    await until(20.0)
    made.tell("idle", f"{one.is_idle} {one._task.done()} {one._beats.cancelled()}")
    again = runs.viewed(RUN)
    made.tell("again", f"{again is one} {(await again.state())['head']['state']}")
    settles = asyncio.create_task(again.settled())
    await until(1.0)
    made.tell("settled", settles.done())
    await runs.close()
    made.tell("closed", f"{again._task.done()} {again._beats.cancelled()}")
    closing.cancel()
    asked = [one for one, _ in itertools.groupby(client.asked)]
    made.asker.lines += [f"asked {call}" for call in asked]
    made.asker.lines.append(f"opened {opened}")


async def all_runs_of_a_folder(made: Course) -> None:
    """The list, and Prometheus: of runs that live, or have ended just now or long ago."""
    root, registry = made.asker.root, answering(made)
    made.patch.setattr("launcher.ui.kept.os.path.isfile", lambda _: False)
    for name, held, ended in (
        *(("llama", True, None), ("silent", True, None), ("killed", False, None)),
        *(("just", False, 4_401.0), ("long", False, 4_399.5), ("gone", False, 4_900.0)),
    ):
        state = made.run(name, held=held)
        if ended is not None:
            state.write_result(OK if name != "gone" else OK.model_copy(update={"status": "failed"}))
            kept = state.result()
            assert kept is not None
            kept = kept.model_copy(update={"ended_at": ended})
            state.write("result.json", kept.model_dump_json().encode())
        number = len(list(root.iterdir()))
        os.utime(state.path / "launch.json", (9_000 + number, 9_000 + number))
    registry.answers["GET /v1/runs/silent"] = Unavailable("nobody answers")
    door = PageDoor(root, keys=keys_of(acts=False))
    session, looked = door.session(), [0]
    known = recorded_runs

    def counted(folder: Path) -> Any:
        looked[0] += 1
        return known(folder)

    made.patch.setattr(runs_module, "recorded_runs", counted)
    await asyncio.gather(*(door.runs.rows() for _ in range(3)))
    await asyncio.sleep(1.9)
    await _ask(made, door, session, ("GET", "/ui-api/runs"))
    made.tell("looked", looked)
    await asyncio.sleep(0.2)
    await door.runs.rows()
    made.tell("looked", looked)
    made.patch.setattr(runs_module, "MOST_ROWS", 2)
    await asyncio.sleep(3.0)
    made.tell("rows", [row["run"] for row in await door.runs.rows()])
    made.tell("recent", door.runs.recent())
    key: dict[str, Any] = {"authorization": f"Bearer {METRICS_KEY}"}
    for shown in ({}, {"authorization": METRICS_KEY}, key):
        await _ask(made, door, None, ("GET", "/metrics", b"", shown))
    recent = door.runs.recent
    made.patch.setattr(door.runs, "recent", lambda: ["went", *recent()])
    made.patch.setattr(scraped, "MOST_RUNS", 2)
    answer = await door.ask("GET", "/x/metrics", **key)
    told = answer.body.decode().splitlines()
    made.tell("runs", [line.partition(",")[0] for line in told if "run_info{" in line])
    await _ask(made, door, None, ("POST", "/metrics", b"", key))
    one = door.runs.viewed("llama")
    made.tell("viewers", one._viewers)
    (one.state_dir.path / ODD).write_text("4\n5\n6\n")
    await one.parts.read()
    for line in metrics_text([one.told.state()], "b", by_rank=True).splitlines():
        if "rank" in line or "rdzv_odd" in line or "nodes{" in line:
            made.asker.tell(" ", line)
    await door.runs.close()


async def the_key_of_a_folder(made: Course) -> None:
    """Made, found again, damaged, and where there is no folder, or no leave to read it."""
    root = made.asker.root
    drawn = (f"{number}{'k' * 42}" for number in itertools.count())
    made.patch.setattr(secrets, "token_urlsafe", lambda count: f"{next(drawn)}/{count}")

    def key() -> None:
        try:
            made.tell("key", metrics_key(root))
        except RdzvError as exc:
            made.tell("!", f"{exc.message} [{exc.hint}]".replace(str(root), "/state"))

    path = root / scraped.KEY_FILE
    key()
    key()
    made.tell("file", f"{path.stat().st_mode & 0o777:o} {path.read_text()}")
    for text in (b"x" * 31, b" " + b"x" * 32 + b"\n", b"\xff" * 40, b""):
        path.write_bytes(text)
        key()
    path.unlink()
    path.mkdir()
    key()
    made.tell("nowhere", metrics_key(root / "none"))
    made.tell("nowhere", (root / "none").exists())


async def secrets_in_a_saved_page(made: Course) -> None:
    """What may be one is hidden, whatever it stands in."""
    await asyncio.sleep(0)
    for text in (
        "train.py --api-key abc --lr 0.1",
        "--api-key 'a b' --token=abc --lr 1",
        "API_KEY='a b' PASSWORD=\"c d\" LR=3",
        "sh -c '--api-key=a b' -x",
        "--password --lr 3",
        "it says: token=abc, and more",
        "'MY_SECRET=it'\"'\"'s' --lr 2",
        "x.api-key='q' api_keys='r'",
    ):
        made.tell(text, without_secrets(text))
    value = {
        "variables": [
            {"name": "HF_TOKEN", "value": "abc", "reason": "yours"},
            {"name": "LR", "value": "--password x", "reason": "yours"},
            {"name": "API_KEY", "value": "", "reason": 3},
        ],
        "API_KEY": "kept as it is no name",
        "n": [1, None, 2.5, True, "PASSWORD='z'"],
    }
    made.tell("whole", json.dumps(without_secrets(value)))
    made.tell("named", without_secrets("abc", "API_KEY"))


async def they_settle(made: Course) -> None:
    """A page that is asked for a run which changes all the time, or of which nothing is known."""
    state = made.run(RUN)
    one = Viewed(state, Holds(Keys()))
    clock = asyncio.get_running_loop().time
    before = clock()
    await one.state()
    made.tell("waited", f"{clock() - before:.2f} {one.told.head['sentence']}")

    async def changes() -> None:
        for number in range(1_000):
            await asyncio.sleep(0.1)
            one.told.silent(float(number), "it is silent")

    changing = asyncio.create_task(changes())
    before = clock()
    await one.settled()
    made.tell("settled after", f"{clock() - before:.2f}")
    changing.cancel()
    before = clock()
    await one.settled()
    made.tell("settled after", f"{clock() - before:.2f}")
    n = one.told.n
    before = clock()
    made.tell("changes", await one.changes(n, 2.5))
    made.tell("after", f"{clock() - before:.2f}")
    made.tell("row", said({"line": one.line(n), "older": one.line(n - 1)}))
    waits = [asyncio.create_task(one.turn(n)) for _ in range(2)]
    await asyncio.sleep(0.1)
    one.told.say("news")
    one._publish()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    made.tell("woken", [wait.done() for wait in waits])
    await one.say_farewell()
    made.tell("nobody looks", one.told.head["next_step"])
    with one.looking():
        before = clock()
        await one.say_farewell()
        made.tell("farewell after", f"{clock() - before:.2f} {one.told.head['next_step']}")
    made.patch.delenv("RDZV_STATE_DIR")
    with one.looking():
        await one.say_farewell()
        made.tell("farewell", one.told.head["next_step"])
    await one.close()
    made.tell("closed", f"{one._task.cancelled()} {one._beats.cancelled()}")


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: course(one)
    for one in (
        *(it_is_asked_everything, it_is_looked_at, all_runs_of_a_folder, the_key_of_a_folder),
        *(secrets_in_a_saved_page, they_settle),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_the_page_is_told(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
