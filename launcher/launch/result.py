"""The result of a launch: the registry's, or that of an error which kept it from one."""

from __future__ import annotations

import signal
from typing import Final

from rendezvous.wire.errors import RdzvError, RunCancelled
from rendezvous.wire.run import Result, RunStatus
from rendezvous.wire.words import reason_clause

SIGNALS: Final = 128
"""What a shell adds to a signal's number, for an exit code."""


def never_began(run: str) -> RunCancelled:
    """Return the error of a launch that a signal ended before its run was created."""
    return RunCancelled(f"run '{run}' was stopped before it started")


def result_of_error(error: RdzvError, status: RunStatus | None) -> Result:
    """Return the result of a launch that could not continue.

    Args:
        error: Why.
        status: The newest one of its run.
    """
    return Result(
        status="cancelled" if error.code == RunCancelled.code else "failed",
        exit_code=int(error.exit_code),
        code=error.code,
        message=error.message or repr(error),
        hint=error.hint,
        epochs=list(status.ended) if status is not None else [],
    )


def by_signal(result: Result, run: str, number: int) -> Result:
    """Return the result of a launch that got this signal: a cancelled one exits like a shell."""
    if result.status != "cancelled":
        return result
    message = result.message
    if number == signal.SIGINT:
        stopped = f"you stopped run '{run}' with Ctrl-C"
        why = reason_clause(signal_reason(number))
        message = {
            f"run '{run}' was cancelled{why}": stopped,
            never_began(run).message: f"{stopped}, before it started",
        }.get(message, message)
    return result.model_copy(update={"exit_code": SIGNALS + number, "message": message})


def signal_reason(number: int) -> str:
    """Return why a run is cancelled that a signal ends, for its nodes."""
    return f"{signal.Signals(number).name} at the launcher"
