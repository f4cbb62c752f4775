"""The former launches of a run: how each ended, kept when the next one begins."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from launcher.state.launch_record import KeptResult, LaunchRecord

FORMER_LAUNCHES = "former-launches.jsonl"
_MOST = 20


class FormerLaunch(BaseModel):
    """A launch that another one of the same run has followed.

    Attributes:
        result: None where its launcher was killed.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    record: LaunchRecord
    result: KeptResult | None


def former_launches(run: Path) -> list[FormerLaunch]:
    """Those in the folder of a run, the newest first; a line that cannot be read is passed over."""
    found = []
    with contextlib.suppress(OSError):
        for line in (run / FORMER_LAUNCHES).read_bytes().splitlines():
            with contextlib.suppress(ValidationError):
                found.append(FormerLaunch.model_validate_json(line))
    return found


def with_former(run: Path, launch: FormerLaunch) -> bytes:
    """What the file holds once this launch is a former one, too."""
    older = [one for one in former_launches(run) if one.record.launch_id != launch.record.launch_id]
    lines = [one.model_dump_json() for one in [launch, *older[: _MOST - 1]]]
    return "".join(f"{line}\n" for line in lines).encode()
