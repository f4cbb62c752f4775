"""Who may see the page: tickets in links, keys that a person chose, and sessions. Pure.

A ticket opens one session and is good for two minutes; it stands in a link's fragment, which no
browser sends and no proxy logs. A session's key goes in a header of the page's own: no cookie, so
that no other page can use it. Only hashes are kept. Times are monotonic seconds.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

TICKET_SECONDS = 120.0
IDLE_SECONDS = 3_600.0
LONGEST_SECONDS = 12 * 3_600.0
MOST_SESSIONS = 256
TICKET_BYTES = 16
KEY_BYTES = 32
LEAST_KEY_LETTERS = 16
"""Of a key that a person chose."""


class Sessions:
    """The tickets and sessions of one process.

    Args:
        draw: Returns so many random characters' worth of bytes, as text.
        key: That a person chose; empty: none.
    """

    def __init__(self, draw: Callable[[int], str], key: str = "") -> None:
        self._draw = draw
        self._key = _hashed(key) if key else None
        self._tickets: dict[bytes, float] = {}
        self._sessions: dict[bytes, tuple[float, float]] = {}
        """Hash of the key, to when it was opened and used last."""

    def ticket(self, now: float) -> str:
        """A new ticket; the older ones stay."""
        text = self._draw(TICKET_BYTES)
        self._tickets = {one: at for one, at in self._tickets.items() if at > now}
        self._tickets[_hashed(text)] = now + TICKET_SECONDS
        return text

    def open_by_ticket(self, ticket: str, now: float) -> str | None:
        """A session for a ticket, which is good for no other; None: it is not good."""
        until = self._tickets.pop(_hashed(ticket), 0.0)
        return self._open(now) if until > now else None

    def open_by_key(self, key: str, now: float) -> str | None:
        """A session for the key that a person chose."""
        if self._key is None or not hmac.compare_digest(self._key, _hashed(key)):
            return None
        return self._open(now)

    def _open(self, now: float) -> str:
        key = self._draw(KEY_BYTES)
        while len(self._sessions) >= MOST_SESSIONS:  # the one that was used longest ago
            del self._sessions[min(self._sessions, key=lambda one: self._sessions[one][1])]
        self._sessions[_hashed(key)] = (now, now)
        return key

    def is_good(self, key: str, now: float) -> bool:
        """Whether a session is open; it counts as used."""
        name = _hashed(key)
        if (times := self._sessions.get(name)) is None:
            return False
        opened, used = times
        if now - used > IDLE_SECONDS or now - opened > LONGEST_SECONDS:
            del self._sessions[name]
            return False
        self._sessions[name] = (opened, now)
        return True


def _hashed(text: str) -> bytes:
    """What is compared and looked up; of no use to who reads this process's memory."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
