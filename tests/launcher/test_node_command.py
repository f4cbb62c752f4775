"""A command that becomes a node: what it is told, whom it tells that it cannot, how it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from launcher import cli
from launcher.cli import of_group
from launcher.cli.process import AT_WORK, exit_with
from launcher.run import group_refusal
from launcher.symmetric import platforms
from launcher.symmetric.claim import Claim, Host
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.wire.errors import ExitCode, RdzvError, Unauthorized, UsageError
from rendezvous.wire.run import DEFAULT_PORT
from tests.launcher.command import rdzv
from worker import agent
from worker.offer import refusal
from worker.settings import WorkerSettings

JOIN = JoinString.of(RunKeys(bytes(32), "r", "k7f2a9c1xy"), RegistryPlace(("10.0.0.4",), 7), 4)


class World:
    """What is done, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.ends: Any = 0
        root = logging.getLogger()
        monkeypatch.setattr(root, "handlers", [])
        monkeypatch.setattr(root, "level", root.level)
        monkeypatch.setattr("worker.program.hidden.hide_memory", lambda: self.done.append("hides"))
        monkeypatch.setattr(
            "worker.program.process.die_with_parent",
            lambda number, parent: self.done.append((number, parent)),
        )
        monkeypatch.setattr(agent, "run_agent", self._run)
        monkeypatch.setattr(refusal, "refuse_alone", self._refuse)
        monkeypatch.setattr(cli, "log_to_stderr", lambda *how: self.done.append(how))
        monkeypatch.setattr("launcher.cli.process.begin_work", lambda: self.done.append("begins"))
        for name in ("RDZV_JOIN", "RDZV_JOIN_FILE"):
            monkeypatch.delenv(name, raising=False)

    async def _run(self, settings: WorkerSettings, join: JoinString, command: Any) -> int:
        self.done.append((join.slot, settings.framework, command))
        if isinstance(self.ends, BaseException):
            raise self.ends
        return int(self.ends)

    async def _refuse(self, join: JoinString, error: RdzvError) -> None:
        self.done.append(("refuses", join.slot, error.message))
        raise RdzvError("nobody hears it")

    def work(self, *command: str, join: JoinString | None = None, **settings: Any) -> Any:
        """Be a node."""
        with pytest.raises((SystemExit, Exception)) as caught:
            cli._work(WorkerSettings(framework="command", **settings), command, join)
        return caught.value


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield World(monkeypatch)
    for handler in logging.getLogger().handlers:
        handler.close()


def test_a_node_hides_its_memory_before_it_reads_a_secret_and_has_its_agents_code(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RDZV_JOIN", JOIN.text())
    world.ends = 83
    error = world.work("true", parent=4711, log_level="warning", log_dir=tmp_path)
    assert (type(error), error.code) == (SystemExit, 83)
    log = ("warning", "rdzv[slot 4]")
    ran = (4, "command", ("true",))
    assert world.done == ["hides", (signal.SIGTERM, 4711), log, "begins", ran]
    world.done.clear()
    monkeypatch.delenv("RDZV_JOIN")
    assert world.work("true", join=JOIN).code == 83
    assert world.done == ["hides", ("info", "rdzv[slot 4]"), "begins", ran]
    error = world.work("true")
    assert "RDZV_JOIN is not set" in error.message
    assert "set" in error.hint


@pytest.mark.parametrize("own", [False, True])
def test_what_an_agent_ends_with_is_in_its_own_log_and_a_limit_is_told(
    world: World, tmp_path: Path, *, own: bool
) -> None:
    world.ends = RdzvError("the registry refused it") if own else OSError(24, "Too many open files")
    error = world.work("true", join=JOIN, log_dir=tmp_path)
    assert isinstance(error, RdzvError)
    last = (tmp_path / "agent-4.log").read_text().splitlines()[-1]
    assert last.endswith(f" ERROR {error.message}")
    told = [one for one in world.done if one[0] == "refuses"]
    assert told == ([] if own else [("refuses", 4, error.message)])
    assert (error if own else error.__cause__) is world.ends
    world.ends = ZeroDivisionError("ours")
    assert world.work("true", join=JOIN, log_dir=tmp_path) is world.ends
    assert (tmp_path / "agent-4.log").read_text().count(" ERROR ") == 1


def test_a_command_that_cannot_be_started_is_told_unless_a_group_does_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDZV_JOIN", JOIN.text())
    error = world.work("sh")
    assert isinstance(error, UsageError)
    assert world.done == ["hides", ("refuses", 4, error.message)]
    world.done.clear()
    assert isinstance(world.work("sh", join=JOIN), UsageError)
    assert world.done == ["hides"]


def test_a_ctrl_c_behind_the_end_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr("launcher.cli.process.begin_work", lambda: None)
    monkeypatch.setattr(logging, "shutdown", lambda: closed.append(1))

    async def work(code: int) -> int:
        return code

    def run(after: bool) -> Any:
        def run(coroutine: Coroutine[Any, Any, Any]) -> None:
            if after:
                with pytest.raises(StopIteration):
                    coroutine.send(None)
            coroutine.close()
            raise KeyboardInterrupt

        return run

    one = work(5)
    monkeypatch.setattr(asyncio, "run", run(after=True))
    with pytest.raises(SystemExit) as caught:
        exit_with(one)
    assert (caught.value.code, closed) == (5, [1])
    one = work(5)
    monkeypatch.setattr(asyncio, "run", run(after=False))
    with pytest.raises(SystemExit) as caught:
        exit_with(one)
    one.close()
    assert (caught.value.code, closed) == (130, [1])


# ---- a symmetric start --------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the other nodes are told."""
    told: list[Any] = []

    def tell(error: UsageError, environ: Any, given: Any, token: str, **how: Any) -> None:
        told.append((error.message, given, token, {**how, "say": None}))

    monkeypatch.setattr(group_refusal, "tell_group", tell)
    for name in ("RDZV_REGISTRY", "RDZV_REGISTRY_FILE", "RDZV_TOKEN", "RDZV_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return told


def test_what_one_node_refuses_the_others_are_told_with_all_that_was_given(
    told: list[Any], world: World
) -> None:
    env = {"RDZV_TOKEN": "token", "RDZV_NODE_RANK": "3", "RDZV_SPARES": "2", "RDZV_NNODES": "5"}
    line: tuple[str, ...] = (
        "launch",
        "--rdzv-id",
        "r",
        "--standby",
        "4",
        "--port",
        "7000",
        "--nnodes",
        "6",
    )
    line += ("--framework", "command")
    assert rdzv(*line, "--", "sh", env=env).exit_code == ExitCode.USAGE
    ((message, given, token, how),) = told
    assert ("needs MASTER_ADDR" in message, token, world.done) == (True, "token", ["hides"])
    assert how == {"port": 7_000, "extra": 6, "has_slot": True, "say": None}
    assert {name: (value.text, value.source) for name, value in given.items()} == {
        "nnodes": ("6", "--nnodes"),
        "node_rank": ("3", "RDZV_NODE_RANK"),
        "rdzv_id": ("r", "--rdzv-id"),
    }
    told.clear()
    assert rdzv("launch", "--port", "x", "--", "true", env=env).exit_code == ExitCode.USAGE
    ((message, given, token, how),) = told  # without its options: from the environment
    assert {name: (value.text, value.source) for name, value in given.items()} == {
        "nnodes": ("5", "RDZV_NNODES"),
        "node_rank": ("3", "RDZV_NODE_RANK"),
    }
    assert (how["extra"], how["port"], message.count("--port")) == (2, DEFAULT_PORT, 1)
    told.clear()
    for more in ({"RDZV_REGISTRY": "x"}, {"RDZV_REGISTRY_FILE": "/x"}, {"RDZV_TOKEN": ""}):
        assert rdzv("launch", "--port", "x", "--", "true", env={**env, **more}).exit_code != 0
    assert rdzv(*line, "--dry-run", "--", "sh", env=env).exit_code != 0
    assert told == []


@pytest.mark.parametrize("at_work", [False, True])
@pytest.mark.parametrize("error", [Unauthorized("no"), UsageError("wrong"), RdzvError("other")])
def test_of_work_that_has_begun_only_a_missing_slot_is_told(
    told: list[Any], monkeypatch: pytest.MonkeyPatch, error: RdzvError, *, at_work: bool
) -> None:
    monkeypatch.setattr(of_group, "_given", lambda ctx: {})
    ctx = click.Context(click.Command("x"))
    ctx.meta[of_group._TOKEN] = "token"
    if at_work:
        ctx.meta[AT_WORK] = True
    with pytest.raises(type(error)), of_group._others_told(ctx):
        raise error
    expected = {
        (Unauthorized, True): [(of_group._NO_SLOT, False)],
        (UsageError, False): [("wrong", True)],
    }.get((type(error), at_work), [])
    assert [(one[0], one[3]["has_slot"]) for one in told] == expected


# ---- small ones ---------------------------------------------------------------------------------


def test_a_platform_that_gives_no_rank_says_what_to_start() -> None:
    host = Host(hostname="h0", hosts="")
    for environ, name in (
        ({"TORCHX_RANK0_HOST": "n7"}, "TORCHX_RANK0_HOST"),
        ({"PET_RDZV_ENDPOINT": "n7:29500"}, "PET_RDZV_ENDPOINT"),
    ):
        (claim,) = platforms.claims(environ, host, None)
        assert isinstance(claim, Claim)
        assert (claim.numbered, claim.values["master_addr"].text) == (False, "n7")
        assert f"the platform ({name}) gives a node no number" in claim.advice["node_rank"]
        assert "torchrun --rdzv-backend=rdzv" in claim.advice["node_rank"]
