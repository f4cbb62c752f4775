"""What somebody who looks at the output of a run is sent, and what its nodes are asked for. Pure.

A request names a run, ranks and an epoch, never a file; what it looks for are substrings. Lines are
text as a person may see it: a node leaves out what moves a terminal's cursor, and cuts long ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rendezvous.wire.evidence import Rank
from rendezvous.wire.types import Seconds, ShortWords, SlotIndex, Wire, Words, check_printable

MAX_GREPS = 8
MAX_LINES = 10_000
MAX_POST_LINES = 4_096
MAX_PARTS = 65
"""Of one post: 64 ranks, and the node itself."""
LINE_LETTERS = 16_384
_CUT_LETTERS = 60
POST_BYTES = 48 << 10
"""What the lines of one post have, as JSON."""

Level = Literal["warning", "error"]
ViewNumber = Annotated[int, Field(ge=1, lt=1 << 53)]
Epoch = Annotated[int, Field(ge=0, lt=1 << 31)]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Pause = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]


Text = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(check_printable)]
LogLine = Annotated[
    str, Field(max_length=LINE_LETTERS + _CUT_LETTERS), AfterValidator(check_printable)
]


class ViewRequest(Wire):
    """`POST /v1/runs/{run}/views`: which lines somebody wants to see. Of all ranks, if none is
    named; of a rank without a log of its own, those of its node."""

    rank: Rank | None = Field(None, description="Of this global rank alone.")
    node: SlotIndex | None = Field(None, description="The log of this node, whole.")
    epoch: Annotated[int, Field(ge=1, lt=1 << 31)] | None = Field(
        None, description="Of the program of this epoch; none: of the one that was started last."
    )
    grep: Annotated[list[Text], Field(max_length=MAX_GREPS)] = Field(
        [], description="Only lines that have one of these texts in them."
    )
    level: Level | None = Field(None, description="Only lines that look so, or worse.")
    lines: Annotated[int, Field(ge=0, le=MAX_LINES)] = Field(
        20, description="How many of each log, at most: the newest."
    )
    since: Seconds | None = Field(
        None, description="Nothing that is known to be written longer ago than these seconds."
    )
    follow: bool = Field(False, description="Also what comes, until the program has ended.")


class ViewCall(Wire):
    """What was opened: its number. It ends 30 s after its reader has last asked."""

    view: ViewNumber


class ViewOrder(ViewRequest):
    """A view that nodes serve: those that have the rank, or the node that is named, or all."""

    view: ViewNumber


class ViewPart(Wire):
    """Lines of one log, in their order."""

    rank: Rank | None = Field(None, description="None: of the node's log.")
    lines: Annotated[list[LogLine], Field(max_length=MAX_POST_LINES)] = []
    skipped: Count = Field(0, description="Lines before these that came too fast to be sent.")


class ViewPost(Wire):
    """`POST /v1/runs/{run}/nodes/{node}/views`: what a node has for one view."""

    view: ViewNumber
    number: Annotated[int, Field(ge=1, lt=1 << 53)] = Field(
        description="Counts those of this node and view: one that is sent again counts once."
    )
    parts: Annotated[list[ViewPart], Field(max_length=MAX_PARTS)] = []
    done: bool = Field(False, description="Nothing more comes.")
    words: Words = Field("", description="Why there is nothing; empty: there may be something.")


class ViewReply(Wire):
    """What a node does next."""

    goes_on: bool = Field(description="False: the view has ended.")
    taken: bool = Field(True, description="False: there is no room; send it again.")
    wait: Pause = Field(0.0, description="Seconds until the next post, for the rate of all views.")


class ViewPiece(Wire):
    """What one node has sent."""

    seq: Count
    node: int
    hostname: ShortWords = ""
    parts: list[ViewPart]


class ViewNode(Wire):
    """A node that has nothing to show, or does not answer."""

    node: int
    hostname: ShortWords = ""
    words: Words


class RunView(Wire):
    """`GET /v1/runs/{run}/views`: what has come since the piece that the reader knows."""

    view: ViewNumber
    over: bool = Field(description="Nothing more comes.")
    nodes: list[ViewNode] = Field([], description="At the end: those that have shown nothing.")
    pieces: list[ViewPiece] = []
