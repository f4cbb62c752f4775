"""Functions and methods of all kinds, for the tests of what changes them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass


def half(number: int, *, digits: int = 1) -> float:
    return round(number / 2, digits)


def quarter(number: int) -> float:
    return half(int(half(number)), digits=2)


TABLE = {"half": half}


@functools.cache
def squared(number: int) -> int:
    return number * number


async def later(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def half_later(number: int) -> float:
    return half(await later(number))


def counter() -> Callable[[], int]:
    count = [0]

    def step() -> int:
        count[0] += 1
        return count[0]

    return step


step = counter()


@dataclass
class Square:
    side: float

    @property
    def area(self) -> float:
        return self.side * self.side

    @functools.cached_property
    def way_around(self) -> float:
        return self.around()

    @staticmethod
    def corners() -> int:
        return 4

    @classmethod
    def of(cls, side: float) -> Square:
        return cls(side)

    def around(self) -> float:
        return self.side * self.corners()
