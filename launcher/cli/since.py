"""The value of --since: how long ago, or a date and time."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import click

_AGO = re.compile(r"(?:\d{1,6}[smhd])+")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def moment(text: str, now: float) -> float | None:
    """The time that is meant, as `time.time()`; None where it is none.

    A date and time without a zone is of the zone of this machine.

    Args:
        text: 10m, 1h30m, or as ISO 8601 has it.
        now: As `time.time()`.
    """
    if _AGO.fullmatch(text):
        return now - sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+)(\w)", text))
    try:
        zoned = f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text  # for Python 3.10
        return datetime.fromisoformat(zoned).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class Since(click.ParamType[float]):
    """A moment in the past, as `time.time()` has it."""

    name = "since"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See the base class."""
        now = time.time()  # noqa: TID251 (that of a log's index)
        at = moment(str(value).strip(), now)
        if at is None:
            self.fail(
                f"it takes how long ago (90s, 10m, 2h, 1d or 1h30m) or a date and time "
                f"(2026-11-25T14:30, 2026-11-25T14:30:00+01:00); {str(value)!r} is neither",
                param,
                ctx,
            )
        if at > now:
            self.fail(f"{str(value)!r} is in the future", param, ctx)
        return at
