"""What a torchrun and its helper say to each other: one JSON object per line. Pure."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rendezvous.wire.errors import UsageError

TALKS = 1
"""Of this form; `rdzv.torchrun` has the same number."""


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True)


class Begin(_Said):
    """The first line.

    Attributes:
        talks: The form that is spoken.
        endpoint: Of `--rdzv-endpoint`.
        run: Of `--rdzv-id`.
        nodes: MIN and MAX of `--nnodes`.
        conf: Of `--rdzv-conf`.
        pid: Of the torchrun.
        python: Its interpreter.
    """

    kind: Literal["begin"]
    talks: int
    endpoint: str
    run: str
    nodes: tuple[int, int]
    conf: dict[str, str]
    pid: int
    python: str


class Worker(_Said):
    """A worker that has failed; `code` is 128 + n for signal n."""

    rank: int
    local_rank: int
    pid: int
    code: Annotated[int, Field(ge=0, le=255)]


class Next(_Said):
    """It waits for a table: no worker of the one before is left, and one may have failed first."""

    kind: Literal["next"]
    failure: Worker | None = None
    processes: Annotated[int, Field(ge=1, le=4096)]
    role: Annotated[str, Field(min_length=1, max_length=200)]


class Ended(_Said):
    """Its workers have ended well."""

    kind: Literal["ended"]


class Failed(_Said):
    """It gives up: its workers have failed, and it starts them no more."""

    kind: Literal["failed"]
    failure: Worker | None = None


class Leaves(_Said):
    """It ends before it has started a worker."""

    kind: Literal["leaves"]


Word = Next | Ended | Failed | Leaves
_ANY: TypeAdapter[Begin | Word] = TypeAdapter(Annotated[Begin | Word, Field(discriminator="kind")])


def read(line: bytes) -> Begin | Word:
    """What was said. Raises UsageError for what this version does not know."""
    try:
        return _ANY.validate_json(line)
    except ValidationError as exc:
        raise other_version() from exc


def other_version() -> UsageError:
    """The plug-in and the helper are of different versions."""
    return UsageError(
        "the rdzv of torchrun's Python and the rdzv that it has started do not understand each "
        "other",
        hint="install the same version in both, or set RDZV_PYTHON to the Python that has it",
    )


def line_of(kind: str, **words: Any) -> bytes:
    """What the helper says."""
    return json.dumps({"kind": kind, **words}).encode() + b"\n"
