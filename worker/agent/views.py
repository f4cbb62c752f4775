"""Serves the views of output: reads this node's logs in steps, and sends what somebody looks at.

The logs are files: the program's output is read and written as if nobody looked. Each step takes a
few milliseconds in a thread, and the registry says how fast lines may be sent.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.log_views import serve_view
from rendezvous.tasks import wait_for
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.log_view import ViewPost, ViewReply
from worker.agent.actions import ServeView
from worker.agent.environment import AgentEnvironment
from worker.agent.reading import Reading
from worker.agent.viewing import MOST_VIEWS

LOOK_SECONDS = 0.25
"""How often a log is looked at in which nothing was new."""
BEAT_SECONDS = 5.0
"""How often a node says that it is there, and hears whether somebody still looks."""
_REST_SECONDS = 0.02
"""Between two steps that have found something: a view takes a fifth of a core at most."""
_FLUSH_SECONDS = 1.0
_TRIES = 5


class Views:
    """Those that one agent serves.

    Args:
        client: Of the registry.
        join: What this node joined with.
        environment: The outer world.
        folder: Where the logs are.
    """

    def __init__(
        self, client: RegistryClient, join: JoinString, environment: AgentEnvironment, folder: Path
    ) -> None:
        self._client = client
        self._join = join
        self._in_thread = environment.in_thread
        self._folder = folder
        self._served: set[int] = set()
        self._flushes = 0
        self._behind: set[int] = set()
        """Those that have not read all since the last flush was asked for."""
        self._hurry = asyncio.Event()
        self._caught_up = asyncio.Event()

    async def serve(self, asked: ServeView) -> None:
        """Send lines until nobody looks any more, or all that there is was sent."""
        await asyncio.sleep(asked.delay)
        if len(self._served) >= MOST_VIEWS:
            return
        reading, view = Reading(asked, self._folder), asked.order.view
        self._served.add(view)
        try:
            await self._serve(reading, view)
        finally:
            self._served.discard(view)
            self._catches_up(view)
            reading.close()

    async def _serve(self, reading: Reading, view: int) -> None:
        clock = asyncio.get_running_loop().time
        number, sent_at = 0, clock()
        while True:
            flushes, reading.hurries = self._flushes, self._hurry.is_set()
            await self._in_thread(reading.step)
            done = reading.is_done
            parts = reading.backlog.take()
            if parts or done or clock() - sent_at >= BEAT_SECONDS:
                number += 1
                words = reading.words if done else ""
                post = ViewPost(view=view, number=number, parts=parts, done=done, words=words)
                reply = await self._send(post)
                if reply is None or not reply.goes_on:
                    return
                sent_at = clock()
                await self._read_on(reading, reply.wait)
            elif not reading.is_idle:
                await asyncio.sleep(_REST_SECONDS)
            else:
                if flushes == self._flushes:
                    self._catches_up(view)
                await self._rest()

    async def _rest(self) -> None:
        if self._hurry.is_set():
            await asyncio.sleep(_REST_SECONDS)
            return
        await wait_for(self._hurry, LOOK_SECONDS)

    async def _read_on(self, reading: Reading, seconds: float) -> None:
        """Until more may be sent; what comes too fast for that is left out meanwhile."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0 and not self._hurry.is_set():
            if reading.drops:
                await self._in_thread(reading.step)
            await wait_for(self._hurry, min(left, LOOK_SECONDS))

    async def _send(self, post: ViewPost) -> ViewReply | None:
        """Send it, again where there was no room for it; None: the registry does not answer."""
        failed = 0
        while failed < _TRIES:
            try:
                reply = await serve_view(self._client, self._join.run, self._join.slot, post)
            except RdzvError as exc:
                if not exc.retryable:
                    return None
                failed += 1
                await asyncio.sleep(self._client.pause())
                continue
            if reply.taken:
                return reply
            await asyncio.sleep(reply.wait)
        return None

    def _catches_up(self, view: int) -> None:
        self._behind.discard(view)
        if not self._behind:
            self._caught_up.set()

    async def flush(self) -> None:
        """The program has ended: send its last lines now, where somebody looks at them."""
        if not self._served:
            return
        self._flushes += 1
        self._behind = set(self._served)
        self._caught_up.clear()
        self._hurry.set()
        await wait_for(self._caught_up, _FLUSH_SECONDS)
        self._hurry.clear()
