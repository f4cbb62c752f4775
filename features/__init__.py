"""The features of rdzv, one folder each. The core names none of them; delete one, and its line."""

from __future__ import annotations

from features.hang import FEATURE as HANG
from features.machines import FEATURE as MACHINES
from features.metrics import FEATURE as METRICS
from rendezvous.feature import Feature

FEATURES: tuple[Feature, ...] = (
    METRICS,
    MACHINES,
    HANG,
)
