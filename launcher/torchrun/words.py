"""What a torchrun and its helper say to each other: one JSON object per line. Pure."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rendezvous.version import rdzv_version
from rendezvous.wire.errors import UsageError
from rendezvous.wire.protocol import PROTOCOL, Speaker, other_protocol


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True)


class Begin(_Said):
    """The first line.

    Attributes:
        protocol: See `rendezvous.wire.protocol`; `rdzv.torchrun` has the same number.
        version: Of the rdzv that it is part of.
        endpoint: Of `--rdzv-endpoint`.
        run: Of `--rdzv-id`.
        nodes: MIN and MAX of `--nnodes`.
        conf: Of `--rdzv-conf`.
        pid: Of the torchrun.
        python: Its interpreter.
    """

    kind: Literal["begin"]
    protocol: int
    version: str
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


class _Opening(_Said):
    """A first line as far as that of every protocol is read."""

    protocol: int | None = None
    version: str = ""
    python: str = ""


def read(line: bytes) -> Begin | Word:
    """Read what was said. Raises UsageError for what is not of this protocol."""
    try:
        said = _ANY.validate_json(line)
    except ValidationError as exc:
        raise _other_protocol(line) from exc
    if isinstance(said, Begin) and said.protocol != PROTOCOL:
        raise _other_protocol(line)
    return said


def _other_protocol(line: bytes) -> UsageError:
    """The refusal of a plug-in that is of another rdzv than its helper."""
    try:
        said = _Opening.model_validate_json(line)
    except ValidationError:
        said = _Opening()
    them = Speaker(f"the rdzv of torchrun's Python ({said.python})", said.protocol, said.version)
    us = Speaker(f"the rdzv that it has started ({sys.executable})", PROTOCOL, rdzv_version())
    return UsageError(
        other_protocol(them, us).message,
        hint="install the same rdzv in both, or set RDZV_PYTHON to the Python that has it",
    )


def line_of(kind: str, **words: Any) -> bytes:
    """What the helper says."""
    return json.dumps({"kind": kind, **words}).encode() + b"\n"
