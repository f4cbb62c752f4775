"""What the ranks of a failed program printed last: it outlives their machines. Pure.

A node sends the last lines of each of its ranks, and the newest 64 KiB of the one rank that the
registry asks for: that of the first cause.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from rendezvous.wire.types import MAX_NODES, Wire
from rendezvous.wire.words import PRINTABLE

WHOLE_BYTES = 64 << 10
"""Of the rank of the first cause."""
LAST_LINES = 20
"""Of every other rank."""
PIECE_BYTES = 40 << 10
"""Of text in one message, as JSON: a request has 64 KiB."""
MOST_PIECES = 8
"""Of one rank; quotes and backslashes take twice their room."""
MOST_TEXTS = 512
"""In one message."""


def clean_text(text: str) -> str:
    """Lines without what could turn, hide or break them; it has as many characters as before."""
    if PRINTABLE.match(text.replace("\n", "")):
        return text
    return "".join(c if c == "\n" or PRINTABLE.match(c) else "?" for c in text.replace("\t", " "))


ProcessRank = Annotated[int, Field(ge=0, lt=MAX_NODES * 4096)]
Text = Annotated[str, Field(max_length=PIECE_BYTES), AfterValidator(clean_text)]


class RankText(Wire):
    """The newest output of one rank, or a piece of it."""

    rank: ProcessRank | None = Field(
        None, description="The global rank; none: of a node's ranks that share their output."
    )
    text: Text = Field(description="Lines, the oldest first.")
    whole: bool = Field(False, description="All that its node has kept, not only the last lines.")
    part: Annotated[int, Field(ge=0, lt=MOST_PIECES)] = Field(
        0, description="Of a text in several messages: its place among them."
    )


class LastWords(Wire):
    """`POST /v1/runs/{run}/nodes/{node}/words`: before a node of a failed run leaves."""

    epoch: Annotated[int, Field(ge=1)] = Field(description="Whose program it was.")
    node: Annotated[int, Field(ge=0, lt=MAX_NODES)] = Field(description="The node's number then.")
    texts: Annotated[list[RankText], Field(max_length=MOST_TEXTS)]


class LastWordsReply(Wire):
    """They are taken in, as far as there is room."""

    wants: bool = Field(False, description="The first cause is on this node: send its whole text.")
    rank: ProcessRank | None = Field(None, description="Whose; none: the registry knows no rank.")


class KeptText(RankText):
    """A text as the registry keeps it."""

    number: int = Field(description="Counts what is kept of the run, from 1.")
    epoch: int
    slot: int
    node: int = Field(description="The node's number in that epoch.")


class RunLastWords(Wire):
    """`GET /v1/runs/{run}/words`: what is kept and numbered above `after`, part by part."""

    session: str = Field(description="A different one means that the numbers start again.")
    newest: int = Field(description="Number of the newest text.")
    left_out: int = Field(0, description="Texts for which there was no room.")
    texts: list[KeptText] = []
