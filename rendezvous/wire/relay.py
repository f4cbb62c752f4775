"""Remote commands on their way between nodes. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rendezvous.wire.types import Base64, Digest, SlotIndex, Wire, Words, base64_length

MAX_COMMAND_BYTES = 128 * 1024 - 1
"""Of a remote command; the kernel takes no longer one."""
COMMAND_PIECE_BYTES = 32 * 1024
COMMAND_WINDOW_BYTES = 128 * 1024
"""So much of a remote command's output may be on its way; then it waits for its reader."""
_FRAME_BYTES = 300
RELAY_POLL_SECONDS = 10.0


CommandNumber = Annotated[int, Field(ge=1, lt=1 << 53)]
OutputOffset = Annotated[int, Field(ge=0, lt=1 << 60)]


class CommandStart(Wire):
    """Caller to target: run this. Idempotent.

    `mac` is the caller's proof that it is a node of the run; see `rendezvous.talk.macs`.
    """

    kind: Literal["start"] = "start"
    number: CommandNumber = Field(description="Counts the caller's commands for this target.")
    command: Annotated[Base64, Field(max_length=base64_length(MAX_COMMAND_BYTES))] = Field(
        description="For `sh -c`."
    )
    mac: Digest


class CommandOutput(Wire):
    """Target to caller: a piece of what it printed."""

    kind: Literal["output"] = "output"
    number: CommandNumber
    offset: OutputOffset = Field(description="Bytes of both streams before this piece.")
    stream: Literal["stdout", "stderr"]
    data: Annotated[Base64, Field(max_length=base64_length(COMMAND_PIECE_BYTES))]


class CommandTaken(Wire):
    """Caller to target: so many bytes of output are where they belong; more may come."""

    kind: Literal["taken"] = "taken"
    number: CommandNumber
    offset: OutputOffset


class CommandExit(Wire):
    """Target to caller: it ended, or was not run and `message` says why."""

    kind: Literal["exit"] = "exit"
    number: CommandNumber
    offset: OutputOffset = Field(0, description="Bytes of both streams in all.")
    code: Annotated[int, Field(ge=0, le=255)]
    message: Words = ""


class CommandEnd(Wire):
    """Caller to target: nobody waits for it any more; what is left of it ends."""

    kind: Literal["end"] = "end"
    number: CommandNumber


CommandFrame = Annotated[
    CommandStart | CommandOutput | CommandTaken | CommandExit | CommandEnd,
    Field(discriminator="kind"),
]


def size_of(frame: CommandFrame) -> int:
    """Estimate the bytes of a frame on the wire."""
    if isinstance(frame, CommandStart):
        return len(frame.command) + _FRAME_BYTES
    if isinstance(frame, CommandOutput):
        return len(frame.data) + _FRAME_BYTES
    return _FRAME_BYTES


class Parcel(Wire):
    """One frame on its way from node to node."""

    peer: SlotIndex = Field(
        description="The receiver when it is sent, the sender when it is fetched."
    )
    frame: CommandFrame


class RelayPost(Wire):
    """`POST /v1/runs/{run}/nodes/{node}/relay`: frames for other nodes, in order."""

    parcels: Annotated[list[Parcel], Field(min_length=1, max_length=256)]


class RelayReply(Wire):
    """They are taken in."""

    session: str = Field(description="Changes when the registry restarts.")


class RelayMail(Wire):
    """`GET /v1/runs/{run}/nodes/{node}/relay`: the frames for this node numbered above `after`."""

    session: str = Field(description="Frames of an older one that were not fetched are lost.")
    seq: int = Field(description="The number of the last frame.")
    parcels: list[Parcel] = []
