"""`rdzv restart`: what it says of a run, by how the run stands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as Done

from launcher.run.restart import what_happens
from rendezvous.wire.errors import ExitCode, RdzvError
from rendezvous.wire.run import EpochEnd, Phase, Result
from tests.launcher.command import LAUNCH_ID, launched, rdzv
from tests.launcher.drive import status
from tests.support.registry import Launch, Node, running

ENDED = [EpochEnd(epoch=1, message="node 1 failed", then="restart 1 of 3 after 4 s")]


@pytest.mark.parametrize(
    ("stands", "words"),
    [
        ({"phase": Phase.RUNNING}, "run 'llama': waiting"),
        (
            {"phase": Phase.ARMING, "ended": ENDED},
            "run 'llama': its programs are starting again: waiting",
        ),
        (
            {"phase": Phase.GATHERING, "ended": ENDED},
            "run 'llama': its programs are starting again: waiting",
        ),
    ],
)
def test_what_comes_of_it_is_said(stands: dict[str, Any], words: str) -> None:
    assert what_happens(status(**stands)) == words


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_where_no_program_has_started_nothing_restarts(phase: Phase) -> None:
    with pytest.raises(RdzvError) as caught:
        what_happens(status(phase=phase))
    words = "no program of run 'llama' has started yet, so nothing restarts: waiting"
    assert (caught.value.message, caught.value.exit_code) == (words, ExitCode.FAILED)


def test_a_run_that_has_ended_cannot_restart(tmp_path: Path) -> None:
    state = launched(tmp_path)
    state.write_result(Result(status="ok", exit_code=0, message="all 2 nodes ended"))
    done = rdzv("restart", "llama", state=tmp_path)
    words = "rdzv: run 'llama' has ended, so its programs cannot start again\n"
    assert (done.stderr, done.exit_code) == (words, ExitCode.FAILED)


def test_a_run_whose_registry_is_gone_cannot_restart(tmp_path: Path) -> None:
    launched(tmp_path, owns_registry=False)
    done = rdzv("restart", "llama", state=tmp_path)
    assert done.stderr.startswith("rdzv: run 'llama' cannot be restarted because its registry")
    assert done.exit_code == ExitCode.REGISTRY_LOST


async def test_the_registry_is_asked(tmp_path: Path) -> None:
    async def ask(*words: str) -> Done:
        return await asyncio.to_thread(rdzv, "restart", *words, "llama", state=tmp_path / "state")

    with running(tmp_path) as registry:
        state = launched(tmp_path / "state", registry.place)
        launch = Launch("llama", LAUNCH_ID, state.secret())
        await registry.create(launch, 2)
        early = await ask()
        async with (
            Node(registry.place, launch, 0, restarts=True) as first,
            Node(registry.place, launch, 1, restarts=True) as second,
        ):
            await asyncio.gather(first.run(), second.run())
            done = await ask("--reason", "new data")
            view = await registry.status(launch)
    assert (early.exit_code, early.stdout) == (ExitCode.FAILED, "")
    assert early.stderr.startswith("rdzv: no program of run 'llama' has started yet")
    words = "run 'llama': restarted by hand: new data; the programs are being stopped\n"
    assert (done.stdout, done.exit_code) == (words, ExitCode.OK)
    assert (view.phase, view.reason) == (Phase.RUNNING, words.partition(": ")[2].strip())
