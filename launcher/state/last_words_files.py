"""The last words of a failed run's ranks, fetched from the registry into the run's folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from launcher.state.last_words import LastWordsFolder, RankWords
from rendezvous.compat import timeout
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.last_words import last_words
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.last_words import KeptText

FETCH_SECONDS = 3.0
WRITE_SECONDS = 3.0
"""The end of a launch waits no longer for them."""
_AT_ONCE = 64

_Key = tuple[int, int, int | None]
"""Epoch, node, rank."""


class LastWordsFiles:
    """Writes what nodes have sent into the run's folder.

    Args:
        admin: The registry, with the run's admin credential: output may hold secrets.
        run: The run id.
        folder: Where it is written.
        say: What the person is to see: what there was no room for.
    """

    def __init__(
        self,
        admin: RegistryClient,
        run: str,
        folder: LastWordsFolder,
        say: Callable[[str], None],
    ) -> None:
        self._admin = admin
        self._run = run
        self._folder = folder
        self._say = say
        self._session = ""
        self._after = 0
        self._left_out = 0
        self._texts: dict[_Key, dict[int, KeptText]] = {}

    async def fetch(self) -> None:
        """Write what is new at the registry; what fails here must end nothing."""
        new = set[_Key]()
        with contextlib.suppress(RdzvError, TimeoutError):
            async with timeout(FETCH_SECONDS):
                await self._fetch(new)
        try:
            await self._write(self._words(new))
        except OSError as exc:
            self._say(f"{self._folder.path} cannot be written: {exc.strerror}")
        self._forget_old()

    async def _write(self, words: list[RankWords]) -> None:
        """A thousand nodes have thousands of ranks, and a network file system may take its time."""
        clock = asyncio.get_running_loop().time
        until = clock() + WRITE_SECONDS
        for first in range(0, len(words), _AT_ONCE):
            if first and clock() > until:
                self._say(
                    f"{self._folder.path} takes too long to write: the last output of "
                    f"{len(words) - first} ranks is left out"
                )
                return
            self._folder.write(words[first : first + _AT_ONCE])
            await asyncio.sleep(0)

    async def _fetch(self, new: set[_Key]) -> None:
        while True:
            told = await last_words(self._admin, self._run, self._after)
            if self._session not in ("", told.session):  # the registry began anew
                self._session, self._after = told.session, 0
                continue
            self._session = told.session
            self._tell_left_out(told.left_out)
            new.update(map(self._take, told.texts))
            if told.texts:
                self._after = told.texts[-1].number
            if not told.texts or self._after >= told.newest:
                return

    def _take(self, text: KeptText) -> _Key:
        """The whole of a rank's words takes the place of its last lines."""
        key = text.epoch, text.node, text.rank
        parts = self._texts.setdefault(key, {})
        if any(one.whole != text.whole for one in parts.values()):
            if not text.whole:
                return key
            parts.clear()
        parts[text.part] = text
        return key

    def _words(self, new: set[_Key]) -> list[RankWords]:
        """The first cause of the newest epoch comes first: a disk may be full before the end."""
        found = []
        for key in new:
            epoch, node, rank = key
            parts = self._texts[key]
            text = "\n".join(parts[part].text for part in sorted(parts))
            is_whole = any(part.whole for part in parts.values())
            order = not is_whole, -epoch, node, -1 if rank is None else rank
            found.append((order, RankWords(epoch, node, rank, text)))
        return [words for _, words in sorted(found, key=lambda one: one[0])]

    def _forget_old(self) -> None:
        """Of older epochs nothing more comes."""
        newest = max((epoch for epoch, _, _ in self._texts), default=0)
        self._texts = {key: parts for key, parts in self._texts.items() if key[0] >= newest - 1}

    def _tell_left_out(self, count: int) -> None:
        if count and not self._left_out:
            self._say(
                "the nodes print more than the registry keeps: the last output of some ranks is "
                "on their machines only"
            )
        self._left_out = count
