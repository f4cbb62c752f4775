"""`rdzv look` of a run that goes on, of whose nodes no slot is the rank: what it asks its registry,
and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from features.hang import view
from features.hang.wire import Frame, LookReport, NodeLook, RankLook, RunLook, Stack
from launcher.state.state_dir import StateDir
from rendezvous.wire.question import QuestionCall
from rendezvous.wire.run import Result
from tests.launcher.command import rdzv
from tests.launcher.test_asks import RUN, said, state
from tests.support.written import Registry

__all__ = ["state"]


def look(cpu: float = 0.0, numbers: tuple[int, ...] = (3, 5)) -> RunLook:
    stacks = [
        Stack(frames=[Frame(function=name, file="t.py", line=7)]) for name in ("reduce", "load")
    ]
    ranks = [
        RankLook(rank=rank, pid=rank, state="S", stack=int(rank == 5), cpu=cpu) for rank in numbers
    ]
    seen = LookReport(number=9, epoch=2, ranks=ranks, stacks=stacks)
    nodes = [
        NodeLook(slot=0, node=2, hostname="gpu-9"),
        NodeLook(slot=4, node=1, hostname="gpu-7", report=seen),
    ]
    return RunLook(number=9, epoch=2, over=True, nodes=nodes)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    one = Registry({f"POST {RUN}/looks": QuestionCall(number=9), f"GET {RUN}/looks": look(0.0)})
    one.put_in(monkeypatch)
    return one


def test_a_run_that_lives_is_looked_at_though_a_former_launch_has_ended(
    registry: Registry, state: StateDir
) -> None:
    state.write_result(Result(status="ok", exit_code=0, message="both nodes ended"))
    assert "rank 5 (node 1, gpu-7)" in said(state, "look", "llama")


def test_a_look_is_printed_saved_and_may_be_made_twice(
    registry: Registry, state: StateDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, path = state.keys(), tmp_path / "look.json"
    assert keys is not None
    shown = said(state, "look", "llama", "--save", str(path))
    lines = shown.splitlines()
    assert lines[-2:] == ["node 2 (gpu-9, slot 0): it has not answered", f"saved: {path}"]
    assert "rank 5 (node 1, gpu-7), state S:" in lines
    assert lines.index("    load (t.py:7)") == lines.index("rank 5 (node 1, gpu-7), state S:") + 1
    assert set(registry.credentials) == {keys.look.text()}
    assert path.stat().st_mode & 0o777 == 0o600
    kept = json.loads(path.read_text())
    assert (kept["run"], kept["look"], kept["verdict"]["sentence"]) == ("llama", 9, lines[0])
    assert json.loads(said(state, "look", "llama", "--json")) == kept
    assert "logs RUN" not in shown
    state.write_result(Result(status="ok", exit_code=0, message="ended"))
    state.release()
    done = rdzv("look", "llama", state=state.path.parent)
    assert done.stderr == "rdzv: run 'llama' has ended, so there is no rank to look at\n"
    state.acquire()
    done = rdzv("look", "llama", "--save", "/dev/full/x", state=state.path.parent)
    assert "/dev/full/x cannot be written: Not a directory" in done.stderr


async def test_two_looks_are_so_far_apart_and_the_second_is_shown(
    registry: Registry, state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(len(registry.asked) + seconds)

    looks = iter([look(0.0), look(2.0)])
    registry.answers[f"GET {RUN}/looks"] = lambda: next(looks)
    monkeypatch.setattr("features.hang.view.asyncio.sleep", sleep)
    before, found = await view._look(state, 0.25)
    assert before == look(0.0)
    assert found == look(2.0)
    assert slept == [2.25]  # between the two calls of each
