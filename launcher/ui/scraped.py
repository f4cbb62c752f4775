"""`/metrics` of the page's process: the runs of its folder, for Prometheus.

It has a key of its own, which opens nothing else: Prometheus reads it from a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
from pathlib import Path

from starlette.responses import Response
from starlette.types import Scope

from launcher.ui.prometheus import metrics_text
from launcher.ui.runs import Runs
from launcher.ui.shapes import State
from rendezvous.prometheus import CONTENT_TYPE
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import NotFound, Unauthorized, UsageError

KEY_FILE = "ui-metrics-key"
"""In the folder of all runs."""
MOST_RUNS = 32
_KEY_BYTES = 32


def metrics_key(root: Path) -> str:
    """The key of this folder's `/metrics`, made when there is none. Raises UsageError.

    Where no run was ever launched there is no folder, and nothing to be told.
    """
    path = root / KEY_FILE
    if not os.path.isdir(root):
        return secrets.token_urlsafe(_KEY_BYTES)
    try:
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(secrets.token_urlsafe(_KEY_BYTES))
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} cannot be used: {exc}") from exc
    if len(key) < _KEY_BYTES:
        raise UsageError(f"{path} is damaged", hint="remove it; a new one is written")
    return key


class Scraped:
    """Answers Prometheus.

    Args:
        runs: Those of the folder.
        key: What it has to show.
    """

    def __init__(self, runs: Runs, key: str) -> None:
        self._runs = runs
        self._key = f"Bearer {key}".encode()

    async def answer(self, scope: Scope) -> Response:
        """The series of all runs that go on, or have ended a moment ago."""
        shown = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
        if not hmac.compare_digest(shown, self._key):
            raise Unauthorized(
                "this request needs the key of /metrics",
                hint=f"it is in {KEY_FILE} in the folder of all runs: give that file to Prometheus "
                "as credentials_file",
            )
        recent = (await asyncio.to_thread(self._runs.recent))[:MOST_RUNS]
        states = await asyncio.gather(*map(self._state, recent))
        text = metrics_text(filter(None, states), rdzv_version())
        return Response(text, media_type=CONTENT_TYPE)

    async def _state(self, run: str) -> State | None:
        """None: it has gone meanwhile."""
        try:
            viewed = self._runs.viewed(run)
        except NotFound:
            return None
        with viewed.looking():
            return await viewed.state()
