"""Which cells of a parametrized test each push tries, and which wait for `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def but_at_night(cells: Iterable[T], *each_push: T) -> list[ParameterSet]:
    """All cells as a test's parameters; those that are not named here have the mark `nightly`."""
    return [
        pytest.param(cell, marks=() if cell in each_push else pytest.mark.nightly) for cell in cells
    ]
