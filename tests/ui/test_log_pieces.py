"""Logs for the page: followed to the end of their run, also those that begin meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.show import log_lines
from launcher.show.log_sources import Chosen, Source
from launcher.state.state_dir import StateDir
from launcher.ui import log_pieces as module
from launcher.ui.log_pieces import chosen_of, log_pieces
from launcher.ui.told import End
from rendezvous.wire.errors import BadRequest, NotFound
from rendezvous.wire.log_view import MAX_GREPS, MAX_LINES
from rendezvous.wire.run import Phase
from tests.launcher.test_board import run_status, slot
from tests.support.pages import RUN, kept_run, page_door
from tests.support.waiting import soon
from worker.program.log_index import IndexedLog
from worker.program.wanted import Wanted

OUTPUTS = Path(__file__).parents[1] / "worker" / "launcher_outputs"
TORCHRUN = "W1129 05:35:05.585000 5095 torch/distributed/run.py:874]"


class Following:
    """One who follows the logs of a run that goes on."""

    def __init__(self) -> None:
        self.pieces: list[dict[str, Any]] = []

    async def follow(self, root: Path, chosen: Chosen) -> None:
        async with page_door(root) as door:
            async for piece in log_pieces(door.runs.viewed(RUN), chosen, 200, follow=True):
                self.pieces.append(dict(piece))

    @property
    def lines(self) -> list[str]:
        return [line for piece in self.pieces for line in piece.get("lines", [])]

    @property
    def notes(self) -> list[str]:
        return [piece["note"] for piece in self.pieces if "note" in piece]


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """The folder of a run whose launcher lives."""
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(log_lines, "_LOOK_SECONDS", 0.01)  # within that of the other
    kept_run(tmp_path)
    state = StateDir(tmp_path, RUN)
    state.acquire()
    return state


def add(state: StateDir, name: str, text: str) -> None:
    with (state.logs / f"{name}.log").open("a") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("name", "most"),
    [("node", 1 << 20), ("rank", 1 << 30), ("epoch", (1 << 31) - 1), ("lines", MAX_LINES)],
)
def test_what_is_asked_for_may_be_so_large_and_no_larger(name: str, most: int) -> None:
    chosen, lines, follow = chosen_of({name: ["7", str(most)], "follow": ["1"]})
    found = {"node": chosen.node, "rank": chosen.rank, "epoch": chosen.epoch, "lines": lines}
    assert found == {"node": None, "rank": None, "epoch": None, "lines": 200} | {name: most}
    assert (follow, chosen.everyone) == (True, False)
    for wrong in (str(most + 1), "-1", "1.0", "\u0663", "9" * 40):
        with pytest.raises(BadRequest, match=f"{name} must be a whole number of at most {most}"):
            chosen_of({name: [wrong]})


def test_lines_are_chosen_by_words_and_a_level_of_which_there_are_not_too_many() -> None:
    chosen, lines, follow = chosen_of({"grep": ["a", "", "b" * 100], "level": ["error"]})
    assert chosen.wanted == Wanted(("a", "b" * 100), "error")
    assert (lines, follow) == (200, False)
    assert chosen_of({"all": ["1"]})[0].everyone
    wrong: list[dict[str, list[str]]] = [{"grep": ["b" * 101]}, {"grep": ["a"] * (MAX_GREPS + 1)}]
    for query in (*wrong, {"level": ["loud"]}, {"node": ["0"], "rank": ["0"]}):
        with pytest.raises(BadRequest):
            chosen_of(query)
    assert len(chosen_of({"grep": ["a"] * MAX_GREPS})[0].wanted.grep) == MAX_GREPS


async def test_what_begins_after_the_look_is_followed_to_the_end(
    held: StateDir, tmp_path: Path
) -> None:
    following = Following()
    task = asyncio.create_task(following.follow(tmp_path, Chosen()))
    await soon(lambda: following.notes)
    assert "there is no node-*.log" in following.notes[0]
    add(held, "node-0", "begun\n")
    await soon(lambda: following.lines == ["begun"])
    add(held, "node-1", "begun as well\n")
    await soon(lambda: len(following.lines) == 2)
    assert [piece["source"] for piece in following.pieces if "source" in piece] == [
        "node-0",
        "node-1",
    ]
    add(held, "node-0", "ended\nwithout a last newline")
    held.release()
    await task
    assert following.lines[2] == "ended"
    assert following.pieces[-1] == {"over": True}


async def test_a_filter_holds_for_what_comes(held: StateDir, tmp_path: Path) -> None:
    add(held, "node-0", "loss 1\nother\n")
    following = Following()
    wanted = Chosen(wanted=Wanted(("loss",)))
    task = asyncio.create_task(following.follow(tmp_path, wanted))
    await soon(lambda: following.lines)
    add(held, "node-0", "other\nloss 2\n")
    await soon(lambda: len(following.lines) == 2)
    held.release()
    await task
    assert following.lines == ["loss 1", "loss 2"]


async def test_who_does_not_read_has_what_was_said_when_it_does(
    held: StateDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the end of the run takes nothing from it, however many pieces wait for their turn."""
    monkeypatch.setattr(module, "_MOST_QUEUED", 2)
    monkeypatch.setattr(module, "_MOST_LINES", 3)
    monkeypatch.setattr(module, "_GATHER_SECONDS", 0.005)
    monkeypatch.setattr(log_lines, "_LOOK_SECONDS", 0.01)
    text = "".join(f"step {number}\n" for number in range(40))
    add(held, "node-0", "begun\n")
    async with page_door(tmp_path) as door:
        pieces = log_pieces(door.runs.viewed(RUN), Chosen(), 200, follow=True)
        assert (await anext(pieces)).get("lines") == ["begun"]
        add(held, "node-0", text)
        await asyncio.sleep(0.2)  # it is read by now
        held.release()
        await asyncio.sleep(0.15)  # its end would be said by now
        rest = [line async for piece in pieces for line in piece.get("lines", [])]
    assert rest == text.splitlines()


async def test_a_node_of_which_there_is_no_log_is_said_once(held: StateDir, tmp_path: Path) -> None:
    following = Following()
    task = asyncio.create_task(following.follow(tmp_path, Chosen(node=7)))
    await soon(lambda: following.notes)
    held.release()
    await task
    assert len(following.notes) == 1
    assert "node-7.log" in following.notes[0]


async def test_a_log_that_cannot_be_read_is_said_beside_the_others(tmp_path: Path) -> None:
    state = kept_run(tmp_path, **{"node-0": "fine\n"})
    (state.logs / "node-1.log").mkdir()
    async with page_door(tmp_path) as door:
        found = log_pieces(door.runs.viewed(RUN), Chosen(), 200, follow=False)
        pieces = [dict(piece) async for piece in found]
    assert {"source": "node-0", "lines": ["fine"]} in pieces
    assert {"source": "node-1", "note": "it cannot be read: Is a directory"} in pieces
    assert pieces[-1] == {"over": True}


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (NotFound("it is gone", hint="look"), "it is gone; look"),
        (OSError(5, "Input/output error"), "it cannot be read: Input/output error"),
    ],
)
@pytest.mark.parametrize("follow", [False, True])
async def test_what_was_read_before_an_error_is_shown_before_it(
    error: Exception, note: str, held: StateDir, monkeypatch: pytest.MonkeyPatch, *, follow: bool
) -> None:
    async def read(*, lines: int, follow: bool) -> AsyncIterator[str]:
        yield "step 1"
        yield "step 2"
        raise error

    monkeypatch.setattr(
        "launcher.ui.log_pieces.Which.sources", lambda self: [Source("rank-0.log", "", read)]
    )
    async with page_door(held.path.parent) as door:
        found = log_pieces(door.runs.viewed(RUN), Chosen(), 200, follow=follow)
        pieces = [dict(await anext(found)), dict(await anext(found))]
        await found.aclose()  # type: ignore[attr-defined]
    held.release()
    assert pieces == [
        {"source": "rank-0", "lines": ["step 1", "step 2"]},
        {"source": "rank-0", "note": note},
    ]


async def test_nothing_reads_on_once_nobody_looks_any_more(held: StateDir, tmp_path: Path) -> None:
    add(held, "node-0", "begun\n")
    before = asyncio.all_tasks()
    async with page_door(tmp_path) as door:
        pieces = log_pieces(door.runs.viewed(RUN), Chosen(), 200, follow=True)
        assert (await anext(pieces)).get("lines") == ["begun"]
        assert asyncio.all_tasks() - before
        await pieces.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        names = [getattr(one.get_coro(), "__qualname__", "") for one in asyncio.all_tasks()]
        assert [name for name in names if name.startswith(("_read", "flush", "log_pieces"))] == []
        assert [name for name in names if "flush" in name] == []
    held.release()


# ---- all ranks, each log a source of its own ---------------------------------------------------

SEPARATE = Chosen(everyone=True, separate=True)


def with_nodes(state: StateDir, *, phase: Phase = Phase.RUNNING, **more: Any) -> None:
    """Two nodes of two ranks each have their numbers."""
    slots = [slot(number, node=number, nproc_per_node=2) for number in range(2)]
    status = run_status(*slots, phase=phase, **more)
    state.write("status.json", status.model_dump_json().encode())


async def pieces_of(root: Path, chosen: Chosen = SEPARATE) -> list[dict[str, Any]]:
    async with page_door(root) as door:
        viewed = door.runs.viewed(RUN)
        await viewed.settled()
        return [dict(one) async for one in log_pieces(viewed, chosen, 200, follow=False)]


async def test_each_rank_and_each_launcher_is_a_source_with_kinds_and_times(tmp_path: Path) -> None:
    state = kept_run(tmp_path, **{f"rank-{rank}": f"step of {rank}\n" for rank in range(4)})
    with_nodes(state)
    log = IndexedLog(state.logs / "launcher-1.log", 0, lambda: 1_764_081_000.0)
    log.write(f"{TORCHRUN} \nUserWarning: of the launcher\nError: of the launcher\n".encode())
    log.close()
    add(state, "node-0", "all of node 0\n")
    add(state, "node-1", "all of node 1\n")
    pieces = await pieces_of(tmp_path)
    assert pieces[-1] == {"over": True}
    found = {piece["source"]: piece for piece in pieces[:-1]}
    assert sorted(found) == ["launcher-1", "rank-0", "rank-1", "rank-2", "rank-3"]
    assert found["rank-2"] == {"source": "rank-2", "lines": ["step of 2"]}
    launcher = found["launcher-1"]
    assert launcher["kinds"] == "nwe"
    assert len(launcher["at"]) == len(launcher["lines"]) == 3
    assert launcher["at"][0] == 1_764_081_000.0
    its = await pieces_of(tmp_path, replace(SEPARATE, node=1))
    assert [one.get("source") for one in its] == ["rank-2", "rank-3", "launcher-1", None]


async def test_the_report_of_a_rank_is_noise_unless_it_alone_has_the_exception(
    tmp_path: Path,
) -> None:
    printed = (OUTPUTS / "torchrun-failed.txt").read_text("utf-8").replace("<N/A>", "/tmp/e.json")
    for words, noise in (("Traceback (most recent call last):\n", True), ("killed\n", False)):
        state = kept_run(tmp_path, **{"rank-3": words, "launcher-1": printed})
        with_nodes(state)
        (piece,) = [one for one in await pieces_of(tmp_path) if one.get("source") == "launcher-1"]
        assert ("e" not in piece.get("kinds", "")) is noise


async def test_a_rank_that_writes_later_is_followed_and_not_its_node_s_log(
    held: StateDir, tmp_path: Path
) -> None:
    """Nothing of a node is shown twice, however early somebody looks."""
    following = Following()
    task = asyncio.create_task(following.follow(tmp_path, SEPARATE))
    await soon(lambda: following.notes)
    assert following.notes == ["no program has printed a line yet"]
    with_nodes(held, phase=Phase.ARMING)
    await asyncio.sleep(0.2)
    add(held, "node-0", "")
    add(held, "node-1", "")
    with_nodes(held)
    await asyncio.sleep(0.2)
    for rank in range(4):
        add(held, f"rank-{rank}", f"begun {rank}\n")
        add(held, f"node-{rank // 2}", f"begun {rank}\n")
    await soon(lambda: len(following.lines) == 4)
    held.release()
    await task
    assert sorted(following.lines) == [f"begun {rank}" for rank in range(4)]


async def test_a_node_whose_ranks_have_no_logs_is_shown_whole(tmp_path: Path) -> None:
    state = kept_run(tmp_path, **{"node-0": "of both\n", "rank-2": "two\n", "node-1": "all\n"})
    with_nodes(state)
    pieces = await pieces_of(tmp_path)
    assert [one.get("source") for one in pieces] == ["node-0", "rank-2", None]


async def test_lines_by_way_of_the_registry_have_the_names_that_are_in_front_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*, lines: int, follow: bool) -> AsyncIterator[str]:
        for line in ("[rank 1] a", "[rank 1] [node 9] b", "[node 0] Error: c", "odd", "[rank 0] d"):
            yield line

    source = Source("view of node None", "", read, prefixed=True)
    monkeypatch.setattr("launcher.ui.log_pieces.Which.sources", lambda self: [source])
    kept_run(tmp_path)
    assert [one for one in await pieces_of(tmp_path) if "source" in one] == [
        {"source": "rank 1", "lines": ["a", "[node 9] b"]},
        {"source": "node 0", "lines": ["Error: c"], "kinds": "e"},
        {"source": "view of node None", "lines": ["odd"]},
        {"source": "rank 0", "lines": ["d"]},
    ]


async def test_what_waits_for_more_is_given_out_once_the_run_is_over(
    held: StateDir, tmp_path: Path
) -> None:
    """Also while its launcher lives, whose page ends with it and waits for that."""
    with_nodes(held)
    add(held, "rank-0", "step\n")
    add(held, "rank-2", "")
    add(held, "launcher-0", f"{TORCHRUN} a record that may belong to more\n")
    pieces: list[dict[str, Any]] = []
    async with page_door(tmp_path) as door:
        viewed = door.runs.viewed(RUN)

        async def follow() -> None:
            async for piece in log_pieces(viewed, SEPARATE, 200, follow=True):
                pieces.append(dict(piece))

        task = asyncio.create_task(follow())
        await soon(lambda: [one.get("source") for one in pieces] == ["rank-0"])
        assert len(viewed.followers) == 1
        viewed.told.ended(End("failed", "node 1 failed"))
        with viewed.looking():
            await viewed.say_farewell()
        assert viewed.followers == set()
        await task
    assert [one.get("source") for one in pieces] == ["rank-0", "launcher-0", None]
    assert pieces[1]["kinds"] == "w"
    assert pieces[-1] == {"over": True}
