"""How a metric's NaN and infinities travel: JSON has no word for them, and older peers refuse them.

`loss` = NaN is told as `loss/not_finite` = 1, infinity as 2, minus infinity as -2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

SUFFIX = "/not_finite"
_CODES = {1.0: math.nan, 2.0: math.inf, -2.0: -math.inf}


def encoded(values: Mapping[str, object]) -> dict[str, object]:
    """The values as they travel; what is no number stays as it is."""
    return dict(_encoded(name, value) for name, value in values.items())


def decoded(values: Mapping[str, float]) -> dict[str, float]:
    """The values as the process had them."""
    return dict(_decoded(name, value) for name, value in values.items())


def _encoded(name: str, value: object) -> tuple[str, object]:
    if not isinstance(value, float) or math.isfinite(value):
        return name, value
    return name + SUFFIX, 1.0 if math.isnan(value) else math.copysign(2.0, value)


def _decoded(name: str, value: float) -> tuple[str, float]:
    if not name.endswith(SUFFIX) or value not in _CODES:
        return name, value
    return name.removesuffix(SUFFIX), _CODES[value]
