"""Logs for the page: followed to the end of their run, also those that begin meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from launcher.show import log_lines
from launcher.show.log_sources import Chosen
from launcher.state.state_dir import StateDir
from launcher.ui import log_pieces as module
from launcher.ui.log_pieces import chosen_of, log_pieces
from rendezvous.wire.errors import BadRequest
from rendezvous.wire.log_view import MAX_GREPS, MAX_LINES
from tests.support.pages import RUN, kept_run, page_door
from tests.support.waiting import soon
from worker.program.wanted import Wanted


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
