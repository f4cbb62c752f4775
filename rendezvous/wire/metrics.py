"""How a program's processes get on. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rendezvous.wire.types import MAX_NODES, Wire

MOST_METRICS = 32
"""Values in one row of metrics."""
MOST_METRIC_ROWS = 256
"""Rows in one batch of metrics; its bytes are bounded as well."""


MetricName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,64}$")]
ProcessRank = Annotated[int, Field(ge=0, lt=MAX_NODES * 4096)]


class MetricRow(Wire):
    """What one process of the program says of its progress."""

    rank: ProcessRank = Field(description="Of the process, as the program counts them.")
    step: Annotated[int, Field(ge=0, lt=2**53)]
    values: Annotated[
        dict[MetricName, Annotated[float, Field(allow_inf_nan=False)]],
        Field(max_length=MOST_METRICS),
    ] = Field({}, description="NAME/not_finite is 1 for a NaN, 2 and -2 for the infinities.")


class MetricBatch(Wire):
    """`POST /v1/runs/{run}/nodes/{node}/metrics`. A node numbers its rows from 1.

    What was taken in before is left out, and where numbers are missing, rows were dropped.
    """

    first: Annotated[int, Field(ge=1, lt=2**53)] = Field(description="Number of the first row.")
    rows: Annotated[list[MetricRow], Field(max_length=MOST_METRIC_ROWS)]


class MetricReply(Wire):
    """The number of the row that is expected next."""

    expected: int


class MetricLine(MetricRow):
    """A row as the registry keeps it."""

    number: int = Field(description="Counts the rows of the run, from 1.")
    slot: int
    at_seconds: float = Field(description="Since the run was made.")


class RunMetrics(Wire):
    """`GET /v1/runs/{run}/metrics`: the newest row of each process, or the rows above `after`."""

    session: str = Field(description="Another one: the numbers have begun anew.")
    newest: int = Field(description="Number of the newest row.")
    dropped: int = Field(0, description="Rows that nodes had to drop before they were sent.")
    elapsed_seconds: float = Field(description="Since the run was made.")
    rows: list[MetricLine] = []
