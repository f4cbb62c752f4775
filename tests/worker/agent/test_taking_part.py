"""One node's part of a run, whatever comes of it: its signals, its parent, and its connections."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import worker.agent
from rendezvous.wire.errors import Fenced, UsageError
from tests.worker.agent.drive import at_once
from tests.worker.test_table import join
from worker.agent import AgentEnvironment, run_agent, take_part, with_log_folder
from worker.agent.inputs import SignalCame
from worker.preflight.own_environment import Completed
from worker.settings import WorkerSettings


class Bench:
    """What a node's part is made of, and what was done with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ends: Callable[[], int]) -> None:
        self.done: list[Any] = []
        self.handlers: dict[int, Callable[[], None]] = {}
        self.asked: list[int] = []
        self.lives = True
        monkeypatch.setattr(worker.agent, "NodeShell", self._shell)
        self._ends = ends

    def _shell(self, spec: Any, environment: Any, client: Any) -> Any:
        self.spec, self.client = spec, client

        async def run() -> int:
            for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1):
                self.handlers[number]()
            return self._ends()

        return SimpleNamespace(run=run, feed=self.done.append)

    async def part(self, parent: int | None = None) -> int:
        def parent_lives(number: int) -> bool:
            self.asked.append(number)
            return self.lives

        async def close() -> None:
            self.done.append("closed")
            raise OSError("it is gone")

        def dial(place: Any, token: str) -> Any:
            self.done.append((place, token))
            return SimpleNamespace(close=close)

        loop: Any = asyncio.get_running_loop()
        loop.add_signal_handler = lambda number, call, *args: self.handlers.setdefault(
            number, lambda: call(*args)
        )
        environment: Any = SimpleNamespace(dial=dial, parent_lives=parent_lives)
        settings = WorkerSettings(framework="command", log_dir=Path("/logs"))
        settings = settings.model_copy(update={"parent": parent})
        return await take_part(settings, join(), ["train"], environment, any_slot=True)


SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1)


@pytest.mark.parametrize(
    ("parent", "lives", "told"), [(None, False, True), (77, True, True), (77, False, False)]
)
async def test_a_signal_is_told_with_whether_the_parent_lives(
    monkeypatch: pytest.MonkeyPatch, parent: int | None, lives: bool, told: bool
) -> None:
    bench = Bench(monkeypatch, lambda: 3)
    bench.lives = lives
    assert await bench.part(parent) == 3
    place = (join().place, join().token)
    assert bench.done == [place, *(SignalCame(number, told) for number in SIGNALS), "closed"]
    assert bench.asked == ([] if parent is None else [parent] * 3)
    assert (bench.spec.command, bench.spec.any_slot) == (["train"], True)
    assert {signal.SIGINT, *SIGNALS} <= bench.handlers.keys()


async def test_the_connections_are_closed_whatever_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise ValueError("not this way")

    bench = Bench(monkeypatch, fails)
    with pytest.raises(ValueError, match="not this way"):
        await bench.part()
    assert bench.done[-1] == "closed"


@pytest.mark.parametrize(
    ("ends", "code"),
    [(4, 4), (Fenced("another has its place"), Fenced("x").exit_code), (UsageError("no"), None)],
)
async def test_a_node_adopts_and_sweeps_as_long_as_it_takes_part(
    monkeypatch: pytest.MonkeyPatch, ends: Any, code: int | None
) -> None:
    """How a run of others ended is an exit code; what this node cannot do is an error."""
    done, reaping = list[Any](), asyncio.Event()

    async def reap() -> None:
        done.append("reaps")
        try:
            await asyncio.Event().wait()
        finally:
            reaping.set()

    async def part(*given: Any) -> int:
        await asyncio.sleep(0.01)
        done.append(given)
        if isinstance(ends, Exception):
            raise ends
        return int(ends)

    monkeypatch.setattr(worker.agent, "become_subreaper", lambda: done.append("adopts"))
    monkeypatch.setattr(worker.agent, "reap_orphans", reap)
    monkeypatch.setattr(worker.agent, "take_part", part)
    monkeypatch.setattr(
        worker.agent, "shim_places", lambda environ: iter([f"{environ['TMPDIR']}/a"])
    )
    environment = AgentEnvironment(
        environ={"TMPDIR": "/t"},
        in_thread=at_once,
        remove_left=lambda folders: done.append(folders),
    )
    settings = WorkerSettings(log_dir=Path("/logs"))
    given = (settings, join(), ["train"])
    if code is None:
        with pytest.raises(UsageError):
            await run_agent(*given, environment=environment)
    else:
        assert await run_agent(*given, environment=environment) == code
    assert done == ["adopts", "reaps", ["/t/a"], (*given, environment)]
    assert reaping.is_set()


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_node_runs_with_the_path_and_logs_that_it_can_have(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """Of a disk that hangs it asks nothing more, and goes on with what it has."""
    monkeypatch.setattr(worker.agent, "_PATH_SECONDS", 0.01)

    async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.Event().wait() if hangs else work(*given)

    plain = AgentEnvironment(environ={"PATH": "/bin"}, in_thread=in_thread)
    full = Completed({"PATH": "/bin:/env/bin"}, "/env/bin", "torchrun")
    monkeypatch.setattr(worker.agent, "AgentEnvironment", lambda: plain)
    monkeypatch.setattr(worker.agent, "complete_path", lambda needs, environ: full)
    monkeypatch.setattr(worker.agent, "why_elsewhere", lambda environ: f"no room for {environ}")
    monkeypatch.setattr(worker.agent, "state_home", lambda environ: Path("/tmp/state"))
    settings = WorkerSettings(framework="torchrun")
    found = await worker.agent._own_environment(settings, join(), ["train.py"])
    assert found.environ == (plain if hangs else full).environ
    logs = (await with_log_folder(settings, join(), plain)).log_dir
    assert logs == (None if hangs else Path(f"/tmp/state/{join().run}/logs"))
    named = settings.model_copy(update={"log_dir": Path("/own")})
    assert await with_log_folder(named, join(), plain) == named
