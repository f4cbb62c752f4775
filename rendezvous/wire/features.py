"""What features say, which a run does not need to start: bounded JSON by name. Pure.

The core carries and keeps them, and reads none.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

MOST_FEATURES = 16
MOST_BYTES = 8 << 10
"""Of all features of one message together, as JSON."""
MOST_NOTED_BYTES = 6 << 10
"""Of what one of them notes of a run."""

FeatureName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


def _check_json(value: JsonValue, most: int) -> None:
    """Raise ValueError for more bytes than this, and for what reads back as something else."""
    if not value:
        return
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as exc:
        raise ValueError("what a feature says has no NaN and no infinity: JSON has none") from exc
    if len(text.encode()) > most:
        raise ValueError(f"what a feature says is at most {most} bytes of JSON")


def _check_features(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _check_json(value, MOST_BYTES)
    return value


def _check_data(value: JsonValue) -> JsonValue:
    _check_json(value, MOST_NOTED_BYTES)
    return value


NotedData = Annotated[JsonValue, AfterValidator(_check_data)]
Notes = Annotated[dict[FeatureName, NotedData], Field(max_length=MOST_FEATURES)]
Features = Annotated[
    dict[FeatureName, JsonValue], Field(max_length=MOST_FEATURES), AfterValidator(_check_features)
]
