"""The options of a launch that are about stalls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from rendezvous.wire.errors import UsageError
from worker.options import LIMITS, OUTPUT, Settings, option


class Options(Settings):
    """`--stall` and `--stall-timeout`."""

    stall: Literal["warn", "end", "off"] = option(
        "warn",
        "What to do when nothing moves any more on any node: say which rank the others wait for, "
        "also end the programs after --stall-timeout, or do nothing. Unless off, each node also "
        "reports every 30 s how its machine is. See 'rdzv docs look'.",
        group=OUTPUT,
    )
    stall_timeout: Annotated[float, Field(ge=1, le=1_000_000)] | None = option(
        None,
        "With --stall end: for how long nothing may move on any node.",
        group=LIMITS,
        metavar="SECONDS",
    )


def spec(settings: Any) -> JsonValue:
    """When a stall ends the run; None: it does not.

    Raises UsageError where a run would be ended without a time, or a time has no use.
    """
    if settings.stall == "end" and settings.stall_timeout is None:
        raise UsageError(
            "--stall end needs --stall-timeout: for how long nothing may move on any node",
            hint="more than your longest checkpoint, evaluation or compilation takes, "
            "such as --stall-timeout 1800",
        )
    if settings.stall != "end" and settings.stall_timeout is not None:
        raise UsageError(
            f"--stall-timeout has no use with --stall {settings.stall}", hint="add --stall end"
        )
    return None if settings.stall != "end" else {"timeout_seconds": settings.stall_timeout}
