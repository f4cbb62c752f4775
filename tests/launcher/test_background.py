"""Tasks beside a launch: the first error interrupts it, once, and the first fault is kept."""

from __future__ import annotations

import asyncio

import pytest

from launcher.launch.background import Background
from rendezvous.wire.errors import RegistryLost

FIRST, SECOND = KeyError("first"), KeyError("second")
LOST = RegistryLost("the registry is gone")


async def fails(error: BaseException) -> None:
    raise error


async def test_of_several_errors_the_first_interrupts_and_none_does_so_twice() -> None:
    background = Background()
    background.fail(LOST)
    background.fail(FIRST)
    with pytest.raises(RegistryLost):
        await background.attend(asyncio.sleep(60.0))
    assert background.error is None
    assert await background.attend(asyncio.sleep(0.01, "done")) == "done"
    background.fail(SECOND)
    with pytest.raises(KeyError, match="second"):
        await background.attend(asyncio.sleep(60.0))


async def test_of_several_faults_the_first_is_kept_and_no_refusal_is_one() -> None:
    background = Background()
    for error in (LOST, FIRST, SECOND):
        await asyncio.wait({background.start(fails(error))})
        await asyncio.sleep(0)
    assert (background.error, background.fault) == (LOST, FIRST)
    await background.close()
