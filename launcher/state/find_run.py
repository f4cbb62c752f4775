"""Runs that were launched here: found by their state folder, and asked at their registry."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from launcher.state.port_holder import user_name
from launcher.state.run_names import runs_meant
from launcher.state.state_dir import StateDir, known_runs, recorded_runs
from rendezvous.wire.errors import NotFound, RdzvError, Unavailable, UsageError
from rendezvous.wire.words import did_you_mean, listed, printable

if TYPE_CHECKING:
    from rendezvous.talk.client import RegistryClient

T = TypeVar("T")

AWAY_SECONDS = 15.0
"""How long a registry may be away whose launcher lives: it starts it again within 2 s."""


def find_run(root: Path, run: str) -> StateDir:
    """The state of a run that was launched here; raises UsageError."""
    state = StateDir(root, run)
    if state.keys() is None:
        raise unknown_run(root, run)
    return state


def cancel_reason(words: str) -> str:
    """Return the reason of a cancel: who asks for it, and their own words."""
    by = f"rdzv cancel by {user_name(os.getuid())} on {socket.gethostname()}"
    return f"{by}: {words}" if words else by


def full_id(root: Path, word: str, *, whole: bool) -> str:
    """The ID of the run that a person means; the word itself where there is none.

    Args:
        root: The folder of all runs.
        word: The ID of a run, its beginning or end, or a launch id.
        whole: See `runs_meant`.

    Raises:
        UsageError: It may be several.
    """
    if os.path.exists(root / word / "launch.json"):
        return word
    known = {state.run: record.launch_id if record else "" for state, record in recorded_runs(root)}
    found = runs_meant(word, known, whole=whole)
    if len(found) > 1:
        raise UsageError(
            f"'{printable(word, 63)}' may be {len(found)} runs here: {listed(found, 8)}",
            hint="give the whole ID, or more of it",
        )
    return found[0] if found else word


def unknown_run(root: Path, run: str) -> UsageError:
    """The refusal of a run that was not launched here, with those that were."""
    names = [other.run for other in known_runs(root)]
    close = did_you_mean(run, names)
    hint = close or (f"the newest runs here: {', '.join(names[:5])}" if names else "")
    return UsageError(f"no run '{run}' was launched here (looked in {root})", hint=hint)


@contextlib.asynccontextmanager
async def registry_of(state: StateDir, seconds: float = 3.0) -> AsyncIterator[RegistryClient]:
    """The registry of a run that was launched here; its launch is on record.

    A request may take so many seconds. Where that launch was killed, its registry is gone, and
    whoever has the port now is a stranger.
    """
    from rendezvous.talk.client import RegistryClient  # a launch comes by here, and needs none

    record, keys = state.record(), state.keys()
    assert record is not None
    assert keys is not None
    async with RegistryClient(
        record.registry_place(), keys.admin, request_seconds=seconds
    ) as client:
        try:
            yield client
        except (Unavailable, NotFound) as exc:
            if not was_killed(state):
                raise
            end = f"; clean up with: rdzv cancel {state.run}"
            raise Unavailable(
                f"the launcher of run '{state.run}' was killed, and its registry no longer answers",
                hint=f"to see what happened: rdzv replay {state.journal}"
                + (end if state.ledger.left() else ""),
            ) from exc


async def ask_registry(
    state: StateDir, cannot: str, ask: Callable[[RegistryClient], Awaitable[T]]
) -> T:
    """Ask something of a run that was launched here, and again while its launcher lives: a
    registry that was killed is started again, and a busy machine may answer late.

    Args:
        state: The run's.
        cannot: What is not done without an answer: "cannot be cancelled".
        ask: Asks once; an answer to it may have been lost before.

    Raises:
        RdzvError: It refuses, or does not answer.
    """
    from rendezvous.talk.retry import until_answered

    def failed(error: RdzvError) -> None:
        if not state.is_held():
            raise error

    async with registry_of(state) as client:
        try:
            return await until_answered(lambda: ask(client), seconds=AWAY_SECONDS, failed=failed)
        except Unavailable as exc:
            ended = "it has probably ended; check with 'rdzv status'"
            lives = f"its launcher still runs; try again, or check with 'rdzv status {state.run}'"
            raise Unavailable(
                f"run '{state.run}' {cannot} because its registry does not answer: {exc.message}",
                hint=lives if state.is_held() else ended,
            ) from exc


def was_killed(state: StateDir) -> bool:
    """Whether its launcher was killed, and the registry of its own with it."""
    record = state.record()
    owned = record is not None and record.owns_registry
    return owned and not state.is_held() and state.result() is None
