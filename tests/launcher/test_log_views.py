"""`rdzv logs` of what nodes send: what is asked of the registry, and what is said of its answer."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.show.log_sources import Chosen, Source, _only
from launcher.show.log_views import view_lines
from launcher.show.logs import show_logs
from launcher.state.last_words import RankWords
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import NotFound, RdzvError, RunOver, Unavailable
from rendezvous.wire.log_view import RunView, ViewCall, ViewNode, ViewPart, ViewPiece, ViewRequest
from rendezvous.wire.run import Phase
from tests.launcher.test_board import run_status, slot
from worker.program.wanted import Wanted


class Registry:
    """One that answers with what the nodes of a test have sent."""

    credential: str = ""

    def __init__(self) -> None:
        self.asked: list[ViewRequest] = []
        self.pieces: list[ViewPiece] = []
        self.missing: list[ViewNode] = []
        self.page, self.pages = 1 << 10, list[int]()
        self.gone: RdzvError | None = None
        """What is answered once all has been sent, in place of the end."""

    async def __aenter__(self) -> Registry:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def ask(
        self, model: Any, method: str, path: str, body: Any = None, **options: Any
    ) -> object:
        assert path == "/v1/runs/llama/views"
        if method == "POST":
            assert self.credential == "o.key"
            self.asked.append(body)
            return ViewCall(view=7)
        newer = [piece for piece in self.pieces if piece.seq > options["params"]["after"]]
        if self.gone is not None and not newer:
            raise self.gone
        self.pages.append(len(newer))
        over = len(newer) <= self.page and self.gone is None
        missing = self.missing if over else []
        return RunView(view=7, over=over, nodes=missing, pieces=newer[: self.page])

    def sends(self, node: int, rank: int, *lines: str) -> None:
        part = ViewPart(rank=rank, lines=list(lines))
        seq = len(self.pieces) + 1
        self.pieces.append(ViewPiece(seq=seq, node=node, hostname=f"host{node}", parts=[part]))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry()
    keys = SimpleNamespace(logs=SimpleNamespace(text=lambda: "o.key"))
    monkeypatch.setattr("launcher.show.log_views.registry_of", lambda _: made)
    monkeypatch.setattr(StateDir, "keys", lambda _: keys)
    return made


@pytest.fixture
def state(tmp_path: Path, registry: Registry) -> StateDir:
    """Of a run that goes on two nodes elsewhere, with two ranks each."""
    made = StateDir(tmp_path, "llama")
    made.acquire()
    slots = [slot(number, node=number, nproc_per_node=2) for number in range(2)]
    status = run_status(*slots, phase=Phase.RUNNING)
    made.write("status.json", status.model_dump_json().encode())
    return made


async def show(state: StateDir, **which: Any) -> int:
    return await show_logs(state, os.environ, **{"follow": False, "lines": 20, **which})


async def test_lines_come_rank_by_rank_and_who_sent_none_is_named(
    state: StateDir, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.sends(1, 2, "c")
    registry.sends(0, 1, "b")
    registry.sends(1, 2, "d")
    registry.missing = [ViewNode(node=1, hostname="host1", words="it did not answer")]
    assert await show(state, everyone=True) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["[rank 1] b", "[rank 2] c", "[rank 2] d"]
    assert shown.err == "rdzv: node 1 (host1): it did not answer\n"
    state.release()


async def test_what_comes_in_many_answers_is_shown_once_and_in_its_order(
    state: StateDir, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(7):
        registry.sends(1, 3, f"line {number}")
    registry.page = 2
    assert await show(state, rank=3) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"line {number}" for number in range(7)]
    assert registry.pages == [7, 5, 3, 1]
    state.release()


async def test_where_a_node_is_gone_its_last_words_follow(
    state: StateDir, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    state.last_words.write([RankWords(1, 1, 3, "end of 1"), RankWords(2, 1, 3, "end of 2")])
    registry.missing = [ViewNode(node=1, hostname="host1", words="it ran rank 3 in epoch 1")]
    assert await show(state, rank=3, epoch=1) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "==> rank 3, by way of the registry",
        f"==> {state.last_words.path}/epoch-1/rank-3.txt",
        "end of 1",
    ]
    assert shown.err == "rdzv: node 1 (host1): it ran rank 3 in epoch 1\n"
    state.release()


async def test_of_an_older_epoch_the_registry_knows_the_ranks(
    state: StateDir, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.sends(2, 5, "then")
    assert await show(state, rank=5, epoch=1) == 0
    assert (registry.asked[0].rank, registry.asked[0].epoch) == (5, 1)
    assert capsys.readouterr().out.splitlines()[-1] == "then"
    registry.pieces.clear()
    registry.missing = [ViewNode(node=2, words="it has left")]
    state.last_words.write([RankWords(1, 2, 5, "last")])
    assert await show(state, rank=5, epoch=1) == 1
    shown = capsys.readouterr()
    assert (shown.out.splitlines()[-1], shown.err) == ("last", "rdzv: node 2: it has left\n")
    state.release()


async def test_a_time_is_asked_for_as_seconds(state: StateDir, registry: Registry) -> None:
    assert await show(state, rank=0, since=time.time() - 600, lines=None) == 0
    [asked] = registry.asked
    assert asked.since == pytest.approx(600, abs=5)
    assert asked.lines == 10_000
    state.release()


@pytest.mark.parametrize("gone", [Unavailable("nobody"), RunOver("it is over"), NotFound("none")])
async def test_who_follows_reads_on_until_the_registry_has_gone_and_who_does_not_is_told(
    registry: Registry, gone: RdzvError
) -> None:
    registry.sends(1, 2, "c", "d")
    registry.sends(0, 1, "b")
    registry.gone = gone
    connect = cast(Any, lambda: registry)
    registry.credential = "o.key"

    async def lines(*, follow: bool) -> list[str]:
        found = view_lines(connect, "llama", {}, lines=5, follow=follow, prefix=True)
        return [line async for line in found]

    assert await lines(follow=True) == ["[rank 2] c", "[rank 2] d", "[rank 1] b"]
    assert [(asked.follow, asked.lines) for asked in registry.asked] == [(True, 5)]
    with pytest.raises(type(gone), match=gone.message):
        await lines(follow=False)


@pytest.mark.parametrize("follow", [True, False])
async def test_of_a_schedulers_log_the_wanted_lines_are_shown_as_many_as_are_asked_for(
    *, follow: bool
) -> None:
    asked: list[tuple[int, bool]] = []

    async def read(lines: int, *, follow: bool) -> AsyncIterator[str]:
        asked.append((lines, follow))
        for number in range(9):
            yield f"loss {number}" if number % 2 else "noise"

    source = _only(Source("job", "", read), Chosen(wanted=Wanted(("loss",))))
    found = [line async for line in source.read(2, follow=follow)]
    assert found == (["loss 1", "loss 3", "loss 5", "loss 7"] if follow else ["loss 5", "loss 7"])
    assert asked == [(100_000, follow)]
    assert not source.timeless
    assert _only(Source("job", "", read), Chosen(since=5.0)).timeless
