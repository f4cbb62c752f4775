"""`rdzv restart` and `rdzv drain`: what they say of a run, by how the run stands."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from launcher.run import requests
from launcher.run.requests import after_drain, after_restart, slot_of
from launcher.state import find_run
from launcher.state.port_holder import user_name
from rendezvous.wire.asked import DrainRequest, RestartRequest
from rendezvous.wire.errors import ExitCode, RdzvError, Unavailable
from rendezvous.wire.run import (
    EpochEnd,
    Phase,
    Result,
    RunStatus,
)
from tests.launcher.command import LAUNCH_ID, launched, rdzv
from tests.launcher.drive import slot, status
from tests.support.registry import Launch, running

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
    assert after_restart(status(**stands)) == words


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.VERIFYING, Phase.ARMING])
def test_where_no_program_has_started_nothing_restarts(phase: Phase) -> None:
    with pytest.raises(RdzvError) as caught:
        after_restart(status(phase=phase))
    words = "no program of run 'llama' has started yet, so nothing restarts: waiting"
    assert (caught.value.message, caught.value.exit_code) == (words, ExitCode.FAILED)


def test_a_run_that_has_ended_cannot_restart(tmp_path: Path) -> None:
    state = launched(tmp_path)
    state.write_result(Result(status="ok", exit_code=0, message="both nodes ended"))
    done = rdzv("restart", "llama", state=tmp_path)
    words = "rdzv: run 'llama' has ended, so its programs cannot start again\n"
    assert (done.stderr, done.exit_code) == (words, ExitCode.FAILED)


def test_a_run_whose_registry_is_gone_cannot_restart(tmp_path: Path) -> None:
    launched(tmp_path, owns_registry=False)
    done = rdzv("restart", "llama", state=tmp_path)
    message, hint = done.stderr.splitlines()
    assert message.startswith("rdzv: run 'llama' cannot be restarted because its registry")
    assert hint.strip() == "it has probably ended; check with 'rdzv status'"
    assert done.exit_code == ExitCode.REGISTRY_LOST


async def test_a_registry_that_is_started_again_is_asked_again(tmp_path: Path) -> None:
    """As long as its launcher lives: where that is gone, nobody starts it again."""
    with running(tmp_path) as registry:
        state = launched(tmp_path / "state", registry.place)
        launch = Launch("llama", LAUNCH_ID, state.secret())
        await registry.create(launch, 2)
        registry.end(signal.SIGKILL)
        state.acquire()
        asked = asyncio.create_task(
            asyncio.to_thread(rdzv, "cancel", "llama", state=tmp_path / "state")
        )
        try:
            _, waits = await asyncio.wait({asked}, timeout=3.5)  # a request's time and more
            assert waits
            await asyncio.to_thread(registry.start)
            done = await asked
        finally:
            state.release()
    by = f"{user_name(os.getuid())} on {socket.gethostname()}"
    told = f"run 'llama' was cancelled with 'rdzv cancel' by {by}\n"
    assert (done.stderr, done.stdout) == ("", told)


def test_a_launcher_that_lives_is_not_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_run, "AWAY_SECONDS", 0.0)
    state = launched(tmp_path, owns_registry=False)
    state.acquire()
    try:
        done = rdzv("cancel", "llama", state=tmp_path)
    finally:
        state.release()
    assert "cannot be cancelled because its registry does not answer" in done.stderr
    assert "its launcher still runs; try again" in done.stderr
    assert done.exit_code == ExitCode.REGISTRY_LOST


async def test_a_restart_whose_answer_was_lost_is_not_asked_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Client:
        """Of a registry whose first answer is lost, and which then goes on without it."""

        epoch, restarts = 1, 0

        async def status(self, run: str) -> RunStatus:
            return status(phase=Phase.RUNNING, epoch=self.epoch)

        async def restart(self, run: str, reason: str) -> RunStatus:
            self.restarts += 1
            raise Unavailable("no answer")

    client = Client()

    async def asks_again(_: object, __: str, ask: Any) -> RunStatus:
        with pytest.raises(Unavailable):
            await ask(client)
        with pytest.raises(Unavailable):  # it may not have been heard
            await ask(client)
        client.epoch = 2
        answer: RunStatus = await ask(client)
        return answer

    launched(tmp_path)
    monkeypatch.setattr(requests, "ask_registry", asks_again)
    assert await requests.restart_run(tmp_path, "llama", "new data") == 0
    assert (client.restarts, capsys.readouterr().out) == (2, "run 'llama': waiting\n")


@pytest.mark.parametrize("command", ["restart llama", "drain llama 1"])
def test_a_reason_that_the_registry_does_not_take_is_refused(command: str, tmp_path: Path) -> None:
    launched(tmp_path)
    done = rdzv(*command.split(), "--reason", "x" * 301, state=tmp_path)
    words = "rdzv: Invalid value for '--reason': it has 301 characters, and 300 is the most\n"
    assert (done.stderr.startswith(words), done.exit_code) == (True, ExitCode.USAGE), done.stderr


def test_a_reason_may_be_as_long_as_the_registry_takes_it() -> None:
    assert RestartRequest(reason=(long := "x" * 300)).reason == long
    assert DrainRequest(reason=long, seconds=86_400.0).reason == long


# --- rdzv drain -----------------------------------------------------------------------------------


def test_a_node_is_found_by_its_rank() -> None:
    view = status(slot(0, node=1), slot(1, node=0), slot(2, node=None))
    assert [slot_of(view, node) for node in (0, 1)] == [1, 0]
    with pytest.raises(RdzvError, match=r"^run 'llama' has no node 2: its nodes are 0 to 1$"):
        slot_of(view, 2)
    with pytest.raises(RdzvError, match="none of its nodes has a number yet"):
        slot_of(status(slot(0, node=None)), 0)


def test_what_comes_of_a_drain_is_said() -> None:
    assert after_drain(status(phase=Phase.RUNNING)) == "run 'llama': waiting"
    with pytest.raises(
        RdzvError, match="is arming, and only a node whose program runs can be"
    ) as e:
        after_drain(status(phase=Phase.ARMING))
    assert "a node that is lost before the start is replaced" in e.value.hint


@pytest.mark.parametrize("phase", [Phase.RESTARTING, Phase.ARMING, Phase.GATHERING])
def test_between_two_epochs_a_node_is_drained_later(phase: Phase) -> None:
    with pytest.raises(RdzvError, match="whose program runs can be drained") as caught:
        after_drain(status(phase=phase, ended=ENDED))
    assert caught.value.hint == "try again once the programs run"


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "86401", "soon"])
def test_a_time_that_is_none_is_refused(given: str, tmp_path: Path) -> None:
    launched(tmp_path)
    done = rdzv("drain", "llama", "1", f"--in={given}", state=tmp_path)
    words = (
        f"rdzv: --in takes a number of seconds from 0 to 86400, such as 120; '{given}' is not one"
    )
    assert (done.stderr.startswith(words), done.exit_code) == (True, ExitCode.USAGE), done.stderr
