"""What a launch meets before its way begins, in memory, with a line for each call to it.

The clock jumps. Of the way itself, and of the registry, `drive` has the outer world.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.plan.plan import HIDDEN, Plan, Submission
from launcher.prepare.environment import Socket
from launcher.prepare.preparation import Preparation, prepare
from launcher.run.command import launch
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.show.board import Board
from launcher.state.state_dir import StateDir
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RdzvError
from tests.launcher.outer import Machine, settings_of
from tests.support.virtual_time import run_virtually

BEGAN = 1_790_000_000.0


@dataclass
class World(Machine):
    """The machine of a launch.

    Attributes:
        lines: What was called, in order.
        unprepared: Why the submission of a slot cannot be prepared.
        unforked: Why nothing is forked next.
        ids: The launch ids that are drawn.
        own: This machine's addresses, where they are not the usual ones.
    """

    root: Path
    lines: list[str] = field(default_factory=list)
    unprepared: dict[int, RdzvError] = field(default_factory=dict)
    unforked: list[RdzvError] = field(default_factory=list)
    ids: list[str] = field(default_factory=lambda: ["k7f2a9c1x3", "b4d8e6g5y1"])
    own: list[str] | None = None

    def tell(self, words: str) -> None:
        """Something was called."""
        text = " ".join(words.replace(str(self.root), "ROOT").split())
        self.lines.append(f"{self._now:.2f} {text}")

    def has(self, words: str) -> bool:
        """Whether a line has these words."""
        return any(words in line for line in self.lines)

    @property
    def _now(self) -> float:
        """The loop's time."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    # --- what a launch asks of it -------------------------------------------------------------

    def addresses(self) -> list[str]:
        return super().addresses() if self.own is None else self.own

    def missing(self, plan: Plan, environ: Mapping[str, str]) -> str:
        return ""

    def launch_id(self) -> str:
        return self.ids.pop(0)

    def scheduler(self, starter: str, context: SchedulerContext) -> Scheduler:
        def prepared(run: Submission, join: str) -> str:
            self.tell(f"{starter}: prepare {run.name} {join == HIDDEN}")
            if run.slot in self.unprepared:
                raise self.unprepared[run.slot]
            return ""

        async def close() -> None:
            self.tell(f"{starter}: close")

        return cast(
            Scheduler,
            SimpleNamespace(
                name=starter,
                loopback=starter == "local",
                prepare=prepared,
                submit_words=lambda run: "",
                close=close,
            ),
        )

    def fork(self, word: str, count: int) -> None:
        self.tell(f"fork {word} {count}")
        if self.unforked:
            raise self.unforked.pop(0)

    def dismiss(self) -> None:
        pass

    def listen(self, port: int, *, address: str, exact: bool) -> Socket:
        self.tell(f"listen {port} of {address!r}, exactly: {exact}")
        bound = port + (0 if exact else 2)
        close = functools.partial(self.tell, f"port {bound} closed")
        return cast(Socket, SimpleNamespace(getsockname=lambda: ("", bound), close=close))

    def configure(self, state: StateDir, secret: bytes, *, tls: bool) -> RegistryPlace:
        return RegistryPlace((), 0, "certificate" if tls else "plain", b"proof")

    def on_signals(self, tell: Callable[[int], None]) -> None:
        pass

    def echo(self, words: str) -> None:
        self.tell(f"| {words}{' (held)' if self.state().is_held() else ''}")

    def board(self, nodes: int, logs: Path, *, json_events: bool, verbose: bool) -> Board:
        say, close = (lambda text: self.tell(f"says {text}")), lambda: self.tell("board closed")
        return cast(Board, SimpleNamespace(say=say, close=close))

    # --- a launch -----------------------------------------------------------------------------

    def state(self, root: Path | None = None, run: str = "r") -> StateDir:
        return StateDir(root or self.root, run)

    def prepared(self, token: str | None = None, **given: Any) -> Preparation:
        """What is launched."""
        settings = settings_of(self.root, **given)
        return prepare(settings, ["true"], {}, group_token=token, make=self.scheduler)

    async def run(self, **settings: Any) -> int:
        """All that `rdzv launch` does, with the group token that it may have; its exit code."""
        token = settings.pop("group_token", None)
        given = settings_of(self.root, **settings)
        return await launch(given, ["true"], {}, world=self, group_token=token)


def virtual(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """What is done on a clock that jumps; what is written of its time depends on no machine."""

    def wall_clock() -> float:
        return BEGAN + asyncio.get_running_loop().time()

    @functools.wraps(work)
    def run(*args: Any, **more: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", wall_clock)
            run_virtually(work(*args, **more))

    return run
