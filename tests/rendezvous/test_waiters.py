"""Those who wait for a run's news, and the answers that all of them get."""

from __future__ import annotations

import asyncio

from rendezvous.compat import TaskGroup
from rendezvous.server.answers import Body
from rendezvous.server.waiters import Waiters


async def _wait(waiters: Waiters, name: str, woken: list[str]) -> None:
    await waiters.wait(60.0)
    woken.append(name)


async def test_who_makes_the_news_and_who_comes_meanwhile_goes_on_before_the_last_who_wait() -> (
    None
):
    waiters, woken = Waiters(), list[str]()
    async with TaskGroup() as group:
        for number in range(5_000):
            group.create_task(_wait(waiters, f"waiter {number}", woken))
        await asyncio.sleep(0)
        waiters.wake_all()
        await asyncio.sleep(0)
        woken.append("caller")
        await asyncio.sleep(0)
        woken.append("request")
    assert woken[0] == "caller"
    assert woken.index("request") < 200
    assert len(set(woken)) == 5_002


def test_a_whole_answer_says_whether_it_is_compressed() -> None:
    body = Body.of(b'{"a": "' + bytes(20_000).replace(b"\0", b"a") + b'"}')
    assert body.zipped is not None
    plain, zipped = body.answer(zipped=False), body.answer(zipped=True)
    assert plain.endswith(b"\r\n\r\n" + body.plain)
    assert zipped.endswith(b"\r\n\r\n" + body.zipped)
    assert (b"content-encoding" in plain, b"content-encoding: gzip" in zipped) == (False, True)
    assert b"content-length: %d\r\n" % len(body.zipped) in zipped
    assert body.answer(zipped=True) is zipped  # made once for everyone
