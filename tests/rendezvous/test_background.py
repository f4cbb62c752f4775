"""Work in threads that nobody has to wait for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from rendezvous.background import in_background

_HANGS = """
import asyncio, threading
from rendezvous.background import in_background

async def main():
    hangs = asyncio.create_task(in_background(threading.Event().wait))
    await asyncio.sleep(0)
    hangs.cancel()
    print("the end")

asyncio.run(main())
"""


async def test_what_the_work_answers_or_raises_comes_back() -> None:
    assert await in_background(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_background(divmod, 7, 0)


async def test_the_work_of_somebody_who_is_cancelled_goes_on() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait()
        done.set()

    task = asyncio.create_task(in_background(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await asyncio.to_thread(done.wait, 30)


@pytest.mark.real_time
def test_a_process_ends_though_its_work_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=50
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")
