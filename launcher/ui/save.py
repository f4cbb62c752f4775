"""All of a run in one file: what `rdzv ui RUN --save FILE` writes, to be sent to somebody else.

Whatever may be a secret is hidden in it: the file is sent on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

from launcher.show.log_sources import Chosen
from launcher.ui import asked
from launcher.ui.log_pieces import log_pieces
from launcher.ui.shapes import Environment, LogPiece, Saved
from launcher.ui.viewed import Viewed
from rendezvous.talk.secret_words import HIDDEN, is_secret, lines_without_secrets
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import RdzvError

Part = TypeVar("Part")

LOG_LINES = 200
MOST_ENVIRONMENTS = 64
_MOST_LOG_LETTERS = 4 << 20


async def saved_of(viewed: Viewed) -> Saved:
    """Everything that the page shows of a run, as it is now."""
    await viewed.settled()
    state = await viewed.state()
    now = time.gmtime()  # noqa: TID251 (for people: when it was saved)
    whole: Saved = {
        "saved_at": time.strftime("%Y-%m-%d %H:%M UTC", now),
        "version": rdzv_version(),
        "state": state,
        "views": await _views(viewed),
        "environments": await _environments(viewed),
        "logs": [piece async for piece in _logs(viewed)],
    }
    return await asyncio.to_thread(without_secrets, whole)


async def _views(viewed: Viewed) -> dict[str, object]:
    """By name; without those that cannot be had."""
    found = {}
    for name, view in asked.views_of(viewed).items():
        with contextlib.suppress(RdzvError):
            found[name] = await view()
    return found


async def _environments(viewed: Viewed) -> dict[str, Environment]:
    """By node; of very many nodes the first ones, as they differ in their number alone."""
    found = {}
    for node in range(MOST_ENVIRONMENTS):
        try:
            found[str(node)] = await asked.environment_of(viewed, node)
        except RdzvError:
            break
    return found


async def _logs(viewed: Viewed) -> AsyncIterator[LogPiece]:
    """The end of each log, as far as there is room."""
    left = _MOST_LOG_LETTERS
    chosen = Chosen(everyone=True, separate=True)
    async for piece in log_pieces(viewed, chosen, LOG_LINES, follow=False):
        left -= sum(map(len, piece.get("lines", ())))
        if left < 0:
            yield {"note": "there is more output, for which this file has no room"}
            return
        if "over" not in piece:
            yield piece


def without_secrets(value: Part, name: str = "") -> Part:
    """The same without what may be a secret in any of its texts."""
    found: Any = value
    if isinstance(found, str):
        return cast(Part, HIDDEN if found and is_secret(name) else lines_without_secrets(found))
    if isinstance(found, list):
        return cast(Part, [without_secrets(one) for one in found])
    if isinstance(found, dict):
        named = str(found.get("name", "")) if "value" in found else ""
        return cast(
            Part,
            {
                key: without_secrets(one, named if key == "value" else "")
                for key, one in found.items()
            },
        )
    return value
