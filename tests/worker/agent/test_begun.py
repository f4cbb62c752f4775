"""What a node begins before its go, and what it says of it when it joins."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rendezvous.wire.run import RestartFacts
from tests.worker.test_table import join
from worker.agent.arming import NodeSpec
from worker.agent.begun import Begun
from worker.agent.early import changes
from worker.agent.environment import AgentEnvironment
from worker.agent.warm import FIRST_FAILED, OTHER_NEEDS_TORCHRUN
from worker.program.terminal import size_variables
from worker.settings import WorkerSettings


class Fake:
    """A warm start, or a torchrun that is begun early, and all that was done with it."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.done: list[str] = []

    async def begin(self) -> None:
        self.done.append("begin")

    async def disarm(self) -> None:
        self.done.append("disarm")

    async def end(self) -> None:
        self.done.append("end")

    def give_up(self, why: str) -> None:
        self.done.append(why)

    async def why_torchrun(self) -> str:
        return self.why


class World:
    """A node with these settings."""

    size: os.terminal_size | None = None

    def __init__(self, why: str = "", **settings: Any) -> None:
        self.warm, self.early = Fake(why), Fake()
        values = WorkerSettings(**{"framework": "torchrun", "warm": "on", **settings})
        spec = NodeSpec(values, join(1), ["train.py"], remote=False)
        self.given: list[dict[str, str]] = []

        def make(made: Fake) -> Any:
            def begun_in(_: object, environ: dict[str, str], *more: object) -> Fake:
                self.given.append(environ)
                return made

            return begun_in

        answers: dict[str, Any] = {
            "warm": make(self.warm),
            "early": make(self.early),
            "terminal": lambda *fds: self.size if fds == (1, 2) else None,
        }
        environment = AgentEnvironment(environ={}, **answers)
        self.begun = Begun(spec, environment, lambda said: None)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("why", "settings", "warm", "needs"),
    [
        ("", {}, True, False),
        ("PET_LOG_DIR is set", {}, True, True),
        ("", {"warm": "off"}, False, True),
        ("", {"warm": "on", "framework": "env"}, False, True),
    ],
)
async def test_a_torchrun_is_begun_where_nothing_else_will_start_the_ranks(
    why: str, settings: dict[str, str], warm: bool, needs: bool, cold: bool
) -> None:
    world = World(why, **settings)
    assert await world.begun.needs_torchrun() is needs
    await world.begun.begin(cold=cold)
    by_torchrun = needs or cold
    program: Any = world.begun.program
    assert program is (world.early if by_torchrun else world.warm)
    assert world.early.done == ["begin"] * by_torchrun
    assert world.warm.done == [FIRST_FAILED if cold else "begin"] * warm


@pytest.mark.parametrize(
    ("facts", "done"),
    [
        (RestartFacts(), ["disarm"]),
        (RestartFacts(cold=True), ["disarm", FIRST_FAILED, "end"]),
        (RestartFacts(mixed=True), ["disarm", OTHER_NEEDS_TORCHRUN, "end"]),
        (RestartFacts(mixed=True, cold=True), ["disarm", FIRST_FAILED, "end"]),
    ],
)
async def test_where_torchrun_starts_the_ranks_nothing_is_ready_to_be_forked(
    facts: RestartFacts, done: list[str]
) -> None:
    world = World()
    await world.begun.disarm(facts)
    assert world.warm.done == done


@pytest.mark.parametrize("warm", ["on", "off"])
def test_what_is_begun_on_a_terminal_fits_the_program_though_that_was_made_narrower(
    warm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "size", os.terminal_size((80, 24)))
    world = World(warm=warm, prefix=True)
    [given] = world.given
    at_the_go = size_variables({}, os.terminal_size((80, 24)), "[1] ")
    assert given == at_the_go
    assert changes(given, at_the_go).seen == frozenset()
    narrower = size_variables({}, os.terminal_size((60, 20)), "[10] ")
    assert changes(given, narrower).seen == frozenset()
    assert changes(given, narrower).set == narrower
