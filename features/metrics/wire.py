"""Messages about metrics. Pure.

JSON has no word for NaN and the infinities, and peers refuse them: `loss` = NaN is told as
`loss/not_finite` = 1, infinity as 2, minus infinity as -2.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import Field, ValidationError

from rendezvous.wire.types import MAX_NODES, Wire

MOST_METRICS = 32
"""Values in one row of metrics."""
MOST_METRIC_ROWS = 256
"""Rows in one batch of metrics; its bytes are bounded as well."""
_NOT_FINITE = "/not_finite"
_CODES = {1.0: math.nan, 2.0: math.inf, -2.0: -math.inf}

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
    """Metrics of the program's processes on this node, which numbers its rows from 1.

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
    at_seconds: float = Field(description="Since the run was created.")


class RunMetrics(Wire):
    """The processes' metrics: the newest row of each, or with `after` the rows above it."""

    session: str = Field(description="A different one means that the numbers start again.")
    newest: int = Field(description="Number of the newest row.")
    dropped: int = Field(0, description="Rows that nodes had to drop before they were sent.")
    elapsed_seconds: float = Field(description="Since the run was created.")
    rows: list[MetricLine] = []


def encoded(values: Mapping[str, object]) -> dict[str, object]:
    """The values as they travel; what is no number stays as it is."""
    return dict(_encoded(name, value) for name, value in values.items())


def decoded(values: Mapping[str, float]) -> dict[str, float]:
    """The values as the process had them."""
    return dict(_decoded(name, value) for name, value in values.items())


def _encoded(name: str, value: object) -> tuple[str, object]:
    if not isinstance(value, float) or math.isfinite(value):
        return name, value
    return name + _NOT_FINITE, 1.0 if math.isnan(value) else math.copysign(2.0, value)


def _decoded(name: str, value: float) -> tuple[str, float]:
    if not name.endswith(_NOT_FINITE) or value not in _CODES:
        return name, value
    return name.removesuffix(_NOT_FINITE), _CODES[value]


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Least, median and largest; what is not a number counts as the largest."""
    ordered = sorted(values, key=lambda value: (math.isnan(value), value))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return ordered[0], low if low == high else (low + high) / 2, ordered[-1]


def rows_in(lines: Iterable[bytes]) -> Iterator[MetricLine]:
    """Rows of a file; a line that was cut off, by a kill or a full disk, is left out."""
    for line in lines:
        with contextlib.suppress(ValidationError):
            yield MetricLine.model_validate_json(line)
