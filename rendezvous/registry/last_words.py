"""What the ranks of one run printed last, until its launcher fetches it: in memory, and bounded.

Neither the journal nor the run's state machine knows of it: losing it costs a look at a failure.
Where there is no room for all, the first cause comes before the others, and the newest epoch before
older ones.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import dataclass, field

from rendezvous.run.state import Run
from rendezvous.wire.last_words import KeptText, LastWords, LastWordsReply, RankText

MOST_BYTES = 8 << 20
NODE_BYTES = 384 << 10
"""Of one node in one epoch: its first cause, and the last lines of the others."""
_ANSWER_BYTES = 1 << 20

Worth = tuple[bool, int]
"""Whether it is the whole text of the first cause, and its epoch: of what is less, less is kept."""
Key = tuple[int, int, int | None]
"""Epoch, node, rank."""


def wanted(run: Run, slot: int, epoch: int) -> LastWordsReply:
    """Whether the first cause of an epoch's end was on this slot, and of which rank."""
    result = run.result
    if result is not None and epoch == run.epoch:
        failed = result.status == "failed" and result.slot == slot
        return LastWordsReply(wants=failed, rank=result.rank if failed else None)
    for end in reversed(run.starts.ended):
        if end.epoch == epoch:
            failed = bool(end.code) and end.slot == slot
            return LastWordsReply(wants=failed, rank=end.rank if failed else None)
    return LastWordsReply()


def has_failed(run: Run, epoch: int) -> bool:
    """Whether the programs of this epoch are known to have failed."""
    if run.result is not None and epoch == run.epoch:
        return run.result.status == "failed"
    return any(end.epoch == epoch and end.code for end in run.starts.ended)


@dataclass(slots=True)
class _Kept:
    """The text of one rank: by part, its number and its JSON."""

    slot: int
    whole: bool
    parts: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(len(line) for _, line in self.parts.values())


class KeptWords:
    """The last words of one run, each as the JSON of its KeptText."""

    def __init__(self) -> None:
        self._session = secrets.token_hex(4)
        self._number = 0
        self._left_out = 0
        self._bytes = 0
        self._of_node: Counter[tuple[int, int]] = Counter()
        self._kept: dict[Worth, dict[Key, _Kept]] = {}

    def take(self, run: Run, slot: int, said: LastWords) -> LastWordsReply:
        """Keep what a node sends, as far as there is room; says whether more is wanted of it.

        Of an epoch that has not failed nothing is kept.
        """
        if not has_failed(run, said.epoch):
            return LastWordsReply()
        reply = wanted(run, slot, said.epoch)
        for text in said.texts:
            if not text.whole or reply.wants:
                self._take(slot, said, text)
        return reply

    def _take(self, slot: int, said: LastWords, text: RankText) -> None:
        key, worth = (said.epoch, said.node, text.rank), (text.whole, said.epoch)
        if (True, said.epoch) != worth and key in self._kept.get((True, said.epoch), ()):
            return  # the whole of it is here
        if text.whole:
            self._drop((False, said.epoch), key)
        self._number += 1
        line = KeptText.model_construct(  # all of it has been checked
            **dict(text), number=self._number, epoch=said.epoch, slot=slot, node=said.node
        )
        data = line.model_dump_json().encode()
        known = self._kept.get(worth, {}).get(key)
        if known is not None and known.slot != slot:
            return
        before = len(known.parts.get(text.part, (0, b""))[1]) if known is not None else 0
        if not self._has_room(slot, worth, len(data) - before):
            self._left_out += 1
            return
        kept = self._kept.setdefault(worth, {}).setdefault(key, _Kept(slot, text.whole))
        kept.parts[text.part] = self._number, data
        self._count(slot, said.epoch, len(data) - before)

    def _count(self, slot: int, epoch: int, more: int) -> None:
        self._bytes += more
        self._of_node[slot, epoch] += more

    def _has_room(self, slot: int, worth: Worth, more: int) -> bool:
        """Make room of what is worth less; whether there is enough."""
        if self._of_node[slot, worth[1]] + more > NODE_BYTES:
            return False
        while self._bytes + more > MOST_BYTES:
            least = min((one for one, kept in self._kept.items() if kept), default=worth)
            if least >= worth:
                return False
            self._drop(least, next(iter(self._kept[least])))
            self._left_out += 1
        return True

    def _drop(self, worth: Worth, key: Key) -> None:
        kept = self._kept.get(worth, {}).pop(key, None)
        if kept is not None:
            self._count(kept.slot, key[0], -kept.size)

    def after(self, number: int) -> bytes:
        """What is kept and numbered above `number`, so much as fits into one answer, as JSON of a
        RunLastWords."""
        newer = sorted(
            part
            for of_worth in self._kept.values()
            for kept in of_worth.values()
            for part in kept.parts.values()
            if part[0] > number
        )
        lines, room = list[bytes](), _ANSWER_BYTES
        for _, line in newer:
            room -= len(line)
            if room < 0 and lines:
                break
            lines.append(line)
        head = {"session": self._session, "newest": self._number, "left_out": self._left_out}
        return json.dumps(head).encode()[:-1] + b', "texts": [' + b",".join(lines) + b"]}"
