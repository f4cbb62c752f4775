"""What each push tries, and what waits for `make nightly`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")

ROUNDS = int(os.environ.get("RDZV_ROUNDS", "1"))
"""How often a heavy test does its work; 1 is what each push runs."""


def at_night(*cell: object) -> ParameterSet:
    """One cell of a test's parameters, with the mark `nightly`."""
    return pytest.param(*cell, marks=pytest.mark.nightly)


def but_at_night(cells: Iterable[T], *each_push: T) -> list[ParameterSet]:
    """All cells as a test's parameters; those that are not named here have the mark `nightly`."""
    return [pytest.param(cell) if cell in each_push else at_night(cell) for cell in cells]
