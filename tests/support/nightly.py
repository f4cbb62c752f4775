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

_FEW = os.environ.get("RDZV_EXAMPLES") == "few"


def examples(number: int) -> int:
    """How many examples a property is tried with: of so many, `make test` tries a third.

    `make coverage`, which the nights run, and whoever runs a test by itself, try all.
    """
    return max(5, number // 3) if _FEW else number


def at_night(*cell: object) -> ParameterSet:
    """One cell of a test's parameters, with the mark `nightly`."""
    return pytest.param(*cell, marks=pytest.mark.nightly)


def but_at_night(cells: Iterable[T], *each_push: T) -> list[ParameterSet]:
    """All cells as a test's parameters; those that are not named here have the mark `nightly`."""
    return [pytest.param(cell) if cell in each_push else at_night(cell) for cell in cells]
