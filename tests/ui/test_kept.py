"""What the page reads of a run without its launcher: of its journal, and of a run elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from launcher.run import elsewhere as elsewhere_module
from launcher.run.elsewhere import Elsewhere
from launcher.ui.kept import facts_of, read_journal
from launcher.ui.told import Told
from launcher.ui.view_keys import ViewKeys
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace, ViewString
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.run import Phase, Result, RunStatus
from tests.launcher.drive import slot, status
from tests.support.pages import RUN, kept_run
from tests.support.virtual_time import run_virtually
from tests.support.written import Registry

STANDS = status(slot(4, node=1), slot(0, node=2), phase=Phase.RUNNING, reason="it trains")
EVENT = (
    b'{"number": 7, "at_seconds": 2.5, "kind": "joined", "reason": "gpu-7 joined", '
    b'"phase": "gathering", "epoch": 1}\n'
)


class Reader:
    """The process that reads a journal."""

    def __init__(self, lines: list[bytes]) -> None:
        self.stdout = self._lines(lines)
        self.done: list[str] = []

    async def _lines(self, lines: list[bytes]) -> Any:
        for line in lines:
            if line == b"broken":
                raise ValueError("a line that is too long")
            yield line

    def kill(self) -> None:
        self.done.append("killed")
        raise ProcessLookupError

    async def wait(self) -> int:
        self.done.append("waited for")
        return 0


@pytest.mark.parametrize(
    ("journal", "lines", "state", "events", "rows"),
    [
        (True, [EVENT, b"noise\n", STANDS.model_dump_json().encode()], "running", [7], [0, 4]),
        (True, [EVENT], "running", [7], [3]),  # without a status the kept one has to do
        (True, [], "running", [], [3]),
        (False, [], "running", [], [3]),
    ],
)
async def test_a_journal_is_told_of_and_else_what_the_launcher_has_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[bytes],
    state: str,
    events: list[int],
    rows: list[int],
    *,
    journal: bool,
) -> None:
    reader, asked = Reader(lines), list[Any]()

    async def start(*words: str, **how: Any) -> Reader:
        asked.append(words)
        return reader

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    run = kept_run(tmp_path)
    run.write("status.json", status(slot(3), phase=Phase.RUNNING).model_dump_json().encode())
    if journal:
        run.journal.write_bytes(b"x")
    told = Told(facts_of(run), 1, "reading")
    await read_journal(run, told)
    shown = told.state()
    assert shown["head"]["state"] == state
    assert [event["number"] for event in shown["events"]] == events
    assert [row["slot"] for row in shown["slots"]] == rows
    assert reader.done == (["killed", "waited for"] if journal else [])
    assert [words[-4:] for words in asked] == (
        [("_replay", str(run.journal), "--json", "--status")] if journal else []
    )


async def test_a_reader_of_a_journal_does_not_outlive_its_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader([EVENT, b"broken"])

    async def start(*words: str, **how: Any) -> Reader:
        return reader

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    run = kept_run(tmp_path)
    run.journal.write_bytes(b"x")
    with pytest.raises(ValueError, match="too long"):
        await read_journal(run, Told(facts_of(run), 1, "reading"))
    assert reader.done == ["killed", "waited for"]


# --- a run elsewhere ---

KEYS = RunKeys(bytes(range(32)), RUN, "k7f2a9c1xy")
THERE = RegistryPlace(("10.0.0.4",), 29_700, "certificate", b"proof")
NEAR = RegistryPlace(("localhost",), 29_701, "certificate", b"proof")
VIEW = ViewString(THERE, RUN, KEYS.launch_id, KEYS.read, KEYS.logs)
OVER = status(phase=Phase.FINISHED, result=Result(status="ok", exit_code=0, message="ended"))


async def features(port: Any) -> None:
    """In the place of their parts."""
    await asyncio.Event().wait()


async def tick_last(port: Any) -> None:
    """In the place of parts that have something to fetch at the end."""
    await port.parted.wait()
    await asyncio.sleep(1.0)
    port.woken.append("last")


class Port:
    """In the place of what they see of it."""

    woken: list[Any]

    def __init__(self, client: Any, state: Any, say: Any) -> None:
        assert state.run == RUN

        self.parted = asyncio.Event()

    def part(self) -> None:
        self.parted.set()

    def wake(self) -> None:
        self.woken.append(asyncio.get_running_loop().time())


def test_a_run_elsewhere_is_kept_up_to_date_until_its_registry_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, dict[str, Any]]] = []
    answers: list[RunStatus | Unavailable] = [
        status(version=3),
        Unavailable("busy"),
        STANDS.model_copy(update={"version": 5}),
        STANDS.model_copy(update={"version": 6}),
        OVER,
        OVER,
        Unavailable("gone"),
    ]

    def answer() -> RunStatus:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Unavailable):
            raise found
        return found

    class Noted(Registry):
        def client(self, *args: Any, **how: Any) -> Any:
            assert args == (NEAR, KEYS.read)
            client = super().client(*args, **how)
            ask = client.status

            async def noted(run: str, **more: Any) -> RunStatus:
                asked.append((asyncio.get_running_loop().time(), more))
                return await ask(run, **more)

            client.status = noted  # type: ignore[method-assign]
            return client

    Port.woken = []
    registry = Noted({f"GET /v1/runs/{RUN}": answer})
    registry.put_in(monkeypatch, "launcher.run.elsewhere")
    monkeypatch.setattr(elsewhere_module, "LauncherPort", Port)
    monkeypatch.setattr(elsewhere_module, "run_features", features)
    one = Elsewhere(tmp_path, VIEW, NEAR)
    record = one.state.record()
    assert record is not None
    assert (record.run, record.launch_id, record.owns_registry) == (RUN, KEYS.launch_id, False)
    assert record.registry_place() == NEAR
    assert one.state.is_held()
    run_virtually(one.follow())
    pause = 2 * elsewhere_module._PAUSE_A_SLOT
    at = [0.0, 2.0, 4.0, 4.0 + pause, 4.0 + 2 * pause]
    assert [when for when, _ in asked[:5]] == pytest.approx(at)
    first, again = {"after": -1, "wait": 0.0}, {"after": 5, "wait": 2.0}
    assert [more for _, more in asked[:5]] == [first, first, first, again, again | {"after": 6}]
    assert [more for _, more in asked[5:]] == [first] * (len(asked) - 5)
    last_answer = asked[5][0]
    assert last_answer + 3.0 < asked[-1][0] <= last_answer + 3.0 + 2.0
    assert len(Port.woken) == 5
    assert not one.state.is_held()
    kept = one.state.result()
    assert kept is not None
    assert (kept.status, kept.message) == ("ok", "ended")
    assert one.state.read("status.json", RunStatus) == OVER


@pytest.mark.parametrize(("part", "seconds"), [(features, 5.0), (tick_last, 1.0)])
def test_one_whose_registry_stays_is_kept_until_the_last_node_has_left(
    part: Any, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = OVER.model_copy(update={"everyone_left": True})
    answers = [OVER.model_copy(update={"everyone_left": False})] * 5 + [left]
    registry = Registry({f"GET /v1/runs/{RUN}": lambda: answers.pop(0)})
    registry.put_in(monkeypatch, "launcher.run.elsewhere")
    monkeypatch.setattr(elsewhere_module, "LauncherPort", Port)
    monkeypatch.setattr(elsewhere_module, "run_features", part)
    one = Elsewhere(tmp_path, VIEW, NEAR)

    async def work() -> float:
        await one.follow(stays=True)
        return asyncio.get_running_loop().time()

    Port.woken = []
    assert run_virtually(work()) == pytest.approx(10.0 + seconds)
    assert Port.woken[6:] == (["last"] if part is tick_last else [])
    assert answers == []
    assert not one.state.is_held()


def test_of_a_view_only_its_own_run_is_seen_and_nothing_done() -> None:
    found = ViewKeys(VIEW).keys(RUN)
    assert (found.read, found.logs, found.look, found.admin) == (KEYS.read, KEYS.logs, None, None)
    assert ViewKeys(VIEW).keys("other").read is None
