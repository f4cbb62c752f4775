"""When the ranks of a node have called the collectives in which each waits for all. Pure.

Times are microseconds of the registry's clock, as far as a node knows it. Where a node runs several
ranks of a process group, it tells of each call the first of them and the last two: who makes the
others wait is among those.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rendezvous.wire.evidence import Rank
from rendezvous.wire.question import Answer
from rendezvous.wire.types import OutputLine, ShortWords, Wire

PACE = "pace"
"""The topic of the question."""
MAX_PACE_CALLS = 2_000
"""Of a process group: as many as torch's recorder keeps."""
MAX_PACE_GROUPS = 64

Microseconds = Annotated[int, Field(gt=-(1 << 62), lt=1 << 62)]
_Each = Annotated[list[Microseconds], Field(max_length=MAX_PACE_CALLS)]


class Arrivals(Wire):
    """The calls of one process group, the oldest first."""

    group: ShortWords = Field(description="Its name, the same on all of its ranks.")
    members: OutputLine = Field("", description="Global ranks, `0-3,8`; empty: not known.")
    ranks: Annotated[list[Rank], Field(min_length=1, max_length=64)] = Field(
        description="Its ranks on this node."
    )
    number: Annotated[int, Field(ge=0, lt=1 << 62)] = Field(description="Of the first call.")
    steps: _Each = Field([], description="From each call's number to the next one's.")
    kinds: Annotated[str, Field(min_length=1, max_length=MAX_PACE_CALLS)] = Field(
        description="A letter for each: the same for the same operation on the same sizes."
    )
    began: Microseconds = Field(description="When the first of the ranks made the first call.")
    gaps: _Each = Field([], description="From then to when the first of them made the next one.")
    late: _Each = Field([], description="Of each, from its first rank to its last one.")
    second: _Each = Field([], description="To the last but one.")
    last: _Each = Field([], description="Which one was the last, as an index into `ranks`.")

    @model_validator(mode="after")
    def _are_as_many(self) -> Arrivals:
        count = len(self.kinds)
        each = count if len(self.ranks) > 1 else 0
        between = {len(self.steps), len(self.gaps)}
        if between != {count - 1} or {len(self.late), len(self.second), len(self.last)} != {each}:
            raise ValueError("the lists of times do not fit the calls")
        if any(index not in range(len(self.ranks)) for index in self.last):
            raise ValueError("a last one that is not among the ranks")
        if min(self.steps, default=1) < 1:
            raise ValueError("the numbers of calls do not grow")
        return self


class Receives(Wire):
    """A rank that may have waited for a single other one, which gave it something."""

    rank: Rank
    group: ShortWords = Field("", description="In this process group; empty: by a message.")


class Pace(Wire):
    """What one node tells of its ranks."""

    clock_error: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = Field(
        description="By how many seconds the times may be wrong, all of them alike."
    )
    arrivals: Annotated[list[Arrivals], Field(max_length=MAX_PACE_GROUPS)] = []
    receives: Annotated[list[Receives], Field(max_length=512)] = []


class PaceAnswer(Answer):
    """When the ranks of this node called their collectives."""

    pace: Pace | None = None


class ClockReply(Wire):
    """`GET /v1/runs/{run}/nodes/{node}/clock`: a moment of the registry's clock."""

    now: Annotated[float, Field(allow_inf_nan=False)] = Field(description="Seconds.")
