"""A run that somebody looks at: what is read of it, the second time as well, and when no longer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.plan.plan import WorkerRun
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir, recorded_runs
from launcher.ui import runs as runs_module
from launcher.ui import scraped
from launcher.ui import viewed as module
from launcher.ui.clerk import Keys
from launcher.ui.runs import Runs
from launcher.ui.viewed import Viewed
from rendezvous.wire.errors import NotFound, UsageError
from rendezvous.wire.run import Phase, Result
from tests.launcher.command import launched
from tests.launcher.drive import slot, status
from tests.support.pages import METRICS_KEY, RUN, Holds, kept_run, page_door
from tests.support.waiting import soon
from tests.ui.test_asked import keys_of

OK = Result(status="ok", exit_code=0, message="all 3 nodes ended", hint="")


@pytest.fixture(autouse=True)
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "_SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(module, "_FLUSH_SECONDS", 0.0)


@contextlib.asynccontextmanager
async def looked_at(state: StateDir, keys: Keys | None = None) -> AsyncIterator[Viewed]:
    viewed = Viewed(StateDir(state.path.parent, RUN), Holds(keys or Keys()))
    before = asyncio.all_tasks()
    try:
        yield viewed
    finally:
        await viewed.close()
        await asyncio.sleep(0)
        assert viewed._task.done()
        assert viewed._beats.cancelled()
        assert {one for one in asyncio.all_tasks() - before if not one.done()} == set()


def head(viewed: Viewed) -> tuple[str, str, str]:
    shown = viewed.told.head
    return shown["state"], shown["sentence"], shown["next_step"]


async def test_the_end_is_what_its_launcher_has_left(tmp_path: Path) -> None:
    state = kept_run(tmp_path)
    async with looked_at(state) as viewed:
        assert (await viewed.state())["head"]["over"]
        assert head(viewed) == ("killed", "its launcher was killed", "")
    state.ledger.begin(LedgerEntry(WorkerRun(4, 2, "rdzv-k7f2-4-2", {}, "w.sh"), "slurm"))
    async with looked_at(state) as viewed:
        await viewed.state()
        assert head(viewed)[2] == f"rdzv cancel {RUN}, to clean up"
    state.write_result(OK.model_copy(update={"hint": "see the logs"}))
    async with looked_at(state) as viewed:
        await viewed.state()
        assert head(viewed) == ("ok", "all 3 nodes ended", "see the logs")


async def test_another_launch_is_shown_anew_and_every_viewer_is_told_so(tmp_path: Path) -> None:
    state = kept_run(tmp_path)
    state.write_result(OK)
    async with looked_at(state) as viewed:
        first, seen = viewed.told, (await viewed.state())["n"]
        record = state.record()
        assert record is not None
        await asyncio.sleep(0.05)
        assert viewed.told is first
        state.write_record(record.model_copy(update={"launch_id": "another1xy", "nodes": "5"}))
        await soon(lambda: viewed.told is not first and viewed.told.head["over"])
        assert viewed.told.facts.launch_id == "another1xy"
        line = viewed.line(seen)
        assert line is not None
        assert line.is_last
        assert json.loads(line.data) == {"n": line.n, "reset": True}
        assert (await viewed.changes(seen, 5.0)) == {"n": viewed.told.n, "reset": True}


async def test_a_launch_that_is_taken_up_again_goes_on(tmp_path: Path) -> None:
    state = kept_run(tmp_path)
    async with looked_at(state) as viewed:
        await viewed.state()
        first = viewed.told
        state.acquire()
        await soon(lambda: viewed.told is not first)
        assert viewed.told.head["state"] == "starting"
        await asyncio.sleep(0.05)
        assert not viewed.told.head["over"]
        state.write_result(OK)
        state.release()
        await soon(lambda: viewed.told.head["over"])
        assert head(viewed)[0] == "ok"


class Reader:
    """In the place of what follows a registry."""

    made: list[Reader]

    def __init__(self, client: Any, told: Any, publish: Any, lives: Any) -> None:
        self.told, self.publish, self.lives = told, publish, lives
        self.goes_on = asyncio.Event()
        self.made.append(self)

    async def read(self) -> None:
        self.told.status(status(slot(4, node=1), phase=Phase.RUNNING, reason="it trains"))
        self.publish()
        await self.goes_on.wait()


async def test_while_it_lives_its_registry_is_followed_and_its_end_read_once_it_has_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Reader.made = []
    monkeypatch.setattr(module, "LiveReader", Reader)
    state = launched(tmp_path, command=["train.py"])
    state.acquire()
    async with looked_at(state, keys_of(state)) as viewed:
        shown = await viewed.state()
        assert [(row["slot"], row["node"]) for row in shown["slots"]] == [(4, 1)]
        assert shown["head"]["sentence"] == "it trains"
        (reader,) = Reader.made
        assert reader.lives()
        reader.goes_on.set()
        await asyncio.sleep(0.05)
        assert not viewed.told.head["over"]  # its result is being written
        state.write_result(OK)
        state.release()
        await soon(lambda: viewed.told.head["over"])
        assert head(viewed)[:2] == ("ok", "all 3 nodes ended")
        assert len(Reader.made) == 1


async def test_who_waits_is_woken_by_what_changes_and_by_a_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.02)
    async with looked_at(kept_run(tmp_path)) as viewed:
        await viewed.state()
        at = viewed.told.n
        assert viewed.line(at) is None
        for _ in range(3):  # each beat, not the first one alone
            await asyncio.wait_for(viewed.turn(at), 5)
        await viewed.turn(at - 1)  # what is new already is not waited for
        assert await viewed.changes(at, 0.01) is None
        viewed.told.say("see this")
        viewed._publish()
        first = viewed.line(at)
        assert first is not None
        assert first is viewed.line(at)  # the same bytes for all who know the same
        assert (first.n, first.is_last) == (viewed.told.n, False)
        assert json.loads(first.data)["head"]["next_step"].endswith("see this")
        viewed.told.say("see that")
        viewed._publish()
        later = viewed.line(at)
        assert later is not None
        assert json.loads(later.data)["head"]["next_step"].endswith("see that")


async def test_it_is_idle_once_the_last_one_has_not_looked_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], monotonic_ns=lambda: int(now[0] * 1e9))
    monkeypatch.setattr(module, "time", clock)
    async with looked_at(kept_run(tmp_path)) as viewed:
        now[0] += module.IDLE_SECONDS
        assert not viewed.is_idle
        now[0] += 1.0
        assert viewed.is_idle
        with viewed.looking():
            with viewed.looking():
                assert not viewed.is_idle
            now[0] += 1_000.0
            assert not viewed.is_idle  # one still looks
        assert not viewed.is_idle
        now[0] += module.IDLE_SECONDS + 1.0
        assert viewed.is_idle
        with pytest.raises(KeyError), viewed.looking():
            raise KeyError
        assert viewed._viewers == 0


async def test_a_farewell_is_for_those_who_look_and_has_what_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = kept_run(tmp_path / "a folder")
    command = f"rdzv ui {RUN} --state-dir '{tmp_path}/a folder', to see this again"
    async with looked_at(state) as viewed:
        await viewed.state()
        at = viewed.told.n
        await viewed.say_farewell()
        assert viewed.told.n == at
        with viewed.looking():
            await viewed.say_farewell()
        assert head(viewed) == ("killed", "its launcher was killed", command)
    state.acquire()
    async with looked_at(state) as viewed:  # its launch ends, and has written its result
        state.write_result(OK)
        with viewed.looking():
            await viewed.say_farewell()
        assert head(viewed) == ("ok", "all 3 nodes ended", command)
        assert viewed.told.head["over"]
    state.release()
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path / "a folder"))
    async with looked_at(state) as viewed:
        with viewed.looking():
            await viewed.say_farewell()
        assert head(viewed)[2] == f"rdzv ui {RUN}, to see this again"


async def test_a_farewell_is_shown_before_the_last_events_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them may take longer than there is."""
    state = kept_run(tmp_path)
    state.acquire()
    seen: list[Any] = []
    async with looked_at(state) as viewed:
        state.write_result(OK)

        async def read_slowly(*_: Any) -> None:
            line = viewed.line(at)
            assert line is not None
            seen.append(json.loads(line.data)["head"]["state"])

        monkeypatch.setattr(module, "read_journal", read_slowly)
        woken = viewed._turn
        with viewed.looking():
            at = viewed.told.n
            await viewed.say_farewell()
        assert seen == ["ok"]
        assert woken.is_set()
    state.release()


async def test_what_goes_on_is_settled_after_a_moment_in_which_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Reader.made = []
    monkeypatch.setattr(module, "LiveReader", Reader)
    state = launched(tmp_path, command=["train.py"])
    state.acquire()
    sleep, news = asyncio.sleep, ["one", "two", "three"]

    async def slept(seconds: float) -> None:
        await sleep(0 if seconds == 77.0 else seconds)
        if seconds == 77.0 and news:
            viewed.told.say(news.pop(0))

    monkeypatch.setattr(module, "_SETTLE_SECONDS", 77.0)
    async with looked_at(state, keys_of(state)) as viewed:
        await viewed.state()
        monkeypatch.setattr(asyncio, "sleep", slept)
        await viewed.settled()
        assert news == []
        assert viewed.told.head["next_step"].endswith("three")
        monkeypatch.undo()
    state.release()


async def test_a_reader_that_fails_is_told_to_who_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(state: StateDir) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(module, "end_of", broken)
    viewed = Viewed(kept_run(tmp_path), Holds(Keys()))
    await soon(lambda: viewed._task.done())
    assert viewed.told.head["trouble"].startswith("the page cannot read this run any more")
    assert f"reading run '{RUN}' failed" in caplog.text
    viewed._beats.cancel()


# --- all of a folder ------------------------------------------------------------------------------


async def test_a_run_is_read_once_for_all_and_let_go_when_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "_CLOSE_SECONDS", 0.01)
    kept_run(tmp_path)
    runs = Runs(tmp_path, Holds(Keys()))
    one = runs.viewed(RUN)
    assert runs.viewed(RUN) is one
    for wrong in ("nosuch", "../llama", ""):
        with pytest.raises(NotFound):
            runs.viewed(wrong)
    closing = asyncio.create_task(runs.close_idle())
    with one.looking():
        await asyncio.sleep(0.05)
        assert runs.viewed(RUN) is one
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    await soon(lambda: one._task.done())
    monkeypatch.setattr(module, "IDLE_SECONDS", 60.0)
    again = runs.viewed(RUN)
    assert again is not one
    closing.cancel()
    await runs.close()
    assert again._task.done()


async def test_prometheus_is_told_of_what_lives_or_has_just_ended(tmp_path: Path) -> None:
    state = kept_run(tmp_path)
    async with page_door(tmp_path) as door:
        key = f"Bearer {METRICS_KEY}"
        none = await door.ask("GET", "/metrics", authorization=key)
        assert (none.status, f'run="{RUN}"' in none.body.decode()) == (200, False)
        state.write_result(OK)
        told = (await door.ask("GET", "/metrics", authorization=key)).body.decode()
        assert f'run="{RUN}"' in told
        state.write(
            "result.json", b'{"status": "ok", "exit_code": 0, "message": "", "ended_at": 9}'
        )
        assert (
            f'run="{RUN}"'
            not in (await door.ask("GET", "/metrics", authorization=key)).body.decode()
        )
        state.acquire()
        assert (
            f'run="{RUN}"' in (await door.ask("GET", "/metrics", authorization=key)).body.decode()
        )
        state.release()
        assert (await door.ask("GET", "/metrics", authorization="Bearer x")).status == 401
        assert (await door.ask("GET", "/metrics")).status == 401


async def test_prometheus_is_told_of_the_newest_runs_and_of_none_that_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_run(tmp_path).write_result(OK)
    monkeypatch.setattr(scraped, "MOST_RUNS", 2)
    async with page_door(tmp_path) as door:
        monkeypatch.setattr(door.runs, "recent", lambda: ["went", RUN, "../no run"])
        told = await door.ask("GET", "/metrics", authorization=f"Bearer {METRICS_KEY}")
        assert told.body.decode().count("rdzv_run_info{") == 1
        monkeypatch.setattr(door.runs, "recent", lambda: ["went", "went", RUN])
        told = await door.ask("GET", "/metrics", authorization=f"Bearer {METRICS_KEY}")
        assert "rdzv_run_info{" not in told.body.decode()


def test_the_key_of_a_folder_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / scraped.KEY_FILE
    key = scraped.metrics_key(tmp_path)
    assert scraped.metrics_key(tmp_path) == key == path.read_text()
    assert (len(key), path.stat().st_mode & 0o777) == (43, 0o600)
    path.write_bytes(b" " + b"x" * 32 + b"\n")
    assert scraped.metrics_key(tmp_path) == "x" * 32
    for damaged in (b"x" * 31, b""):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="is damaged"):
            scraped.metrics_key(tmp_path)
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(UsageError, match="cannot be used"):
        scraped.metrics_key(tmp_path)
    nowhere = tmp_path / "none"
    assert scraped.metrics_key(nowhere) != scraped.metrics_key(nowhere)
    assert not nowhere.exists()


async def test_the_runs_are_listed_anew_now_and_then_and_not_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        kept_run(tmp_path / f"r{number}")
    listed: list[Path] = []

    def recorded(root: Path) -> list[Any]:
        listed.append(root)
        return [one for number in range(3) for one in recorded_runs(tmp_path / f"r{number}")]

    monkeypatch.setattr(runs_module, "recorded_runs", recorded)
    monkeypatch.setattr(runs_module, "MOST_ROWS", 2)
    runs = Runs(tmp_path, Holds(Keys()))
    for seconds, times in ((60.0, 1), (60.0, 1), (0.0, 2)):
        monkeypatch.setattr(runs_module, "_LIST_SECONDS", seconds)
        assert [row["run"] for row in await runs.rows()] == [RUN] * 2
        assert len(listed) == times
