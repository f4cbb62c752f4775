"""What keeps the registry from its work: said instead of whom a run waits for. Pure."""

from __future__ import annotations

_STANDS_SECONDS = 10.0
"""What is needed is tried again more often than this; what is tried no more, nobody needs."""


class Trouble:
    """Something that fails: in which words, and for how long already."""

    def __init__(self) -> None:
        self._words = ""
        self._since = self._last = float("-inf")

    def failed(self, words: str, now: float) -> None:
        """It failed, or did so again."""
        if not self.words(now):
            self._since = now
        self._words, self._last = words, now

    def over(self) -> None:
        """It was done."""
        self._words = ""

    def words(self, now: float) -> str:
        """What is wrong; empty when nothing is."""
        return self._words if now - self._last <= _STANDS_SECONDS else ""

    def seconds(self, now: float) -> float:
        """For how long it has failed, without having been done in between."""
        return now - self._since if self.words(now) else 0.0
