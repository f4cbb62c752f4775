"""Reads one run from what its launch has kept on this machine, after it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from launcher.show.run_list import KILLED
from launcher.state.state_dir import StateDir
from launcher.ui.told import End, LaunchFacts, Told
from rendezvous.door import own_command
from rendezvous.wire.run import EventLine, RunStatus

_EVENT: TypeAdapter[EventLine] = TypeAdapter(EventLine)
_LINE_BYTES = 64 << 20
"""Of a status of very many nodes."""


def facts_of(state: StateDir) -> LaunchFacts:
    """What the newest launch's record says."""
    record = state.record()
    if record is None:
        return LaunchFacts(state.run)
    return LaunchFacts(
        run=state.run,
        launch_id=record.launch_id,
        command=record.command,
        nodes=record.nodes,
        scheduler=record.scheduler,
        host=record.host,
        started_at=record.started_at,
    )


async def read_journal(state: StateDir, told: Told) -> None:
    """Tell what happened in a run, and how it stood at last; where its journal cannot be read, what
    its launcher has kept of it."""
    if await _replayed(state.journal, told):
        return
    kept = state.read("status.json", RunStatus)
    if kept is not None and told.head["state"] == "starting":  # else something newer is known
        told.status(kept)


async def _replayed(journal: Path, told: Told) -> bool:
    """By a process of its own: what a journal means is the registry's to know."""
    if not os.path.isfile(journal):
        return False
    reader = await asyncio.create_subprocess_exec(
        *own_command("_replay", str(journal), "--json", "--status"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_BYTES,
    )
    assert reader.stdout is not None
    status: RunStatus | None = None
    try:
        async for text in reader.stdout:
            if (line := _event(text)) is not None:
                told.event(line)
            else:
                with contextlib.suppress(ValidationError):
                    status = RunStatus.model_validate_json(text)
    finally:
        with contextlib.suppress(ProcessLookupError):
            reader.kill()
        await reader.wait()
    if status is not None:
        told.status(status)
    return status is not None


def _event(text: bytes) -> EventLine | None:
    try:
        return _EVENT.validate_json(text)
    except ValidationError:
        return None


def end_of(state: StateDir) -> End:
    """How a launch has ended that holds its folder no longer."""
    result, run = state.result(), state.run
    if result is None:
        left = f"rdzv cancel {run}, to clean up" if state.ledger.left() else ""
        return End("killed", KILLED, left)
    took = result.took_seconds(state.record())
    return End(result.status, result.message, result.hint, result, took)
