"""The questions of one topic to the nodes of one run, and what these answer.

The newest few are kept in memory, and nothing of them is journalled. The registry never dials a
node: a question goes out with the watch, and is answered by a request.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rendezvous.channel import Asked
from rendezvous.registry.waiters import Waiters
from rendezvous.run.state import GONE, Run
from rendezvous.serving.answers import Body
from rendezvous.wire.errors import Forbidden, NotFound, RunOver, TooLarge, TooManyRequests
from rendezvous.wire.question import Answer, Answers, NodeAnswer, Question, QuestionCall
from rendezvous.wire.run import Phase

_MOST_KEPT = 3


@dataclass
class _Open:
    """One question: who is to answer, and who has."""

    topic: Asked
    number: int
    epoch: int
    began_at: float
    expected: Mapping[int, NodeAnswer]
    answers: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    waiters: Waiters = field(default_factory=Waiters)

    def is_over(self, now: float) -> bool:
        return len(self.answers) == len(self.expected) or self.left(now) <= 0

    def left(self, now: float) -> float:
        return self.began_at + self.topic.seconds + len(self.expected) * self.topic.each - now


class Questions:
    """Those of one topic.

    Args:
        wake: Lets the nodes learn that they are asked.
    """

    def __init__(self, topic: Asked, wake: Callable[[], None]) -> None:
        self.topic = topic
        self._wake = wake
        self._kept: list[_Open] = []
        self._number = secrets.randbits(48)
        """Not from 1: a node that knows one of a registry before this one is to see another."""

    def open(self, now: float) -> Question | None:
        """The question that nodes are to answer now."""
        newest = self._newest
        if newest is None or newest.is_over(now):
            return None
        return Question(number=newest.number, topic=self.topic.name)

    @property
    def newest(self) -> int:
        """The number of the newest question; 0: there was none."""
        return self._newest.number if self._newest is not None else 0

    @property
    def _newest(self) -> _Open | None:
        return self._kept[-1] if self._kept else None

    def ask(self, run: Run, now: float) -> QuestionCall:
        """Ask all nodes; the question that is open, where one is.

        Raises RunOver, Forbidden where no program runs, TooManyRequests after one just before.
        """
        newest = self._newest
        if newest is not None and not newest.is_over(now):
            return QuestionCall(number=newest.number)
        _check(run)
        if newest is not None and (rest := newest.began_at + self.topic.rest - now) > 0:
            noun, age = self.topic.noun, now - newest.began_at
            raise TooManyRequests(
                f"the newest {noun} at run '{run.id}' is {age:.0f} s old, and there is one in "
                f"{self.topic.rest:.0f} s",
                hint=f"{noun} again in {rest:.0f} s",
            )
        self._number += 1
        fresh = _Open(self.topic, self._number, run.epoch, now, nodes_of(run))
        self._kept = [*self._kept[1 - _MOST_KEPT :], fresh]
        self._wake()
        return QuestionCall(number=self._number)

    def is_over(self, number: int, now: float) -> bool:
        """Whether no more answers will come; true for a number that is not known."""
        found = [one for one in self._kept if one.number == number]
        return not found or found[0].is_over(now)

    def take(self, slot: int, answer: Answer, now: float) -> None:
        """Keep a node's answer; one that is late, or comes again, is left out. Raises TooLarge."""
        one = self._newest
        if one is None or (answer.number, answer.epoch) != (one.number, one.epoch):
            return
        if one.is_over(now):
            return
        if slot not in one.expected or slot in one.answers:
            return
        written = _written(one.expected[slot].model_copy(update={"report": answer}))
        if one.size + len(written) > self.topic.run_bytes:
            most = self.topic.run_bytes >> 20
            raise TooLarge(f"the answers to this question have more than {most} MiB")
        one.answers[slot] = written
        one.size += len(written)
        if one.is_over(now):
            one.waiters.wake_all()

    async def wait(self, number: int, seconds: float, now: float) -> None:
        """Until every node has answered this question, it is over, or the seconds are."""
        one = self._find(number)
        if one is not None and not one.is_over(now):
            await one.waiters.wait(min(seconds, one.left(now)))

    def written(self, number: int, now: float) -> Body:
        """The answers to the question of this number, 0 for the newest, as JSON of the topic's
        `response`. Raises NotFound."""
        one = self._find(number)
        if one is None:
            return Body(Answers(number=0).model_dump_json().encode())
        head = Answers(
            number=one.number,
            epoch=one.epoch,
            age=round(now - one.began_at, 3),
            over=one.is_over(now),
        )
        missing = (node for slot, node in one.expected.items() if slot not in one.answers)
        nodes = [*one.answers.values(), *map(_written, missing)]
        written = head.model_dump_json(exclude={"nodes"}).encode()
        return Body(written[:-1] + b',"nodes":[' + b",".join(nodes) + b"]}")

    def _find(self, number: int) -> _Open | None:
        if number == 0:
            return self._newest
        for one in self._kept:
            if one.number == number:
                return one
        noun = self.topic.noun
        raise NotFound(f"there is no {noun} {number} any more", hint=f"{noun} again")

    def close(self) -> None:
        """Answer everyone who waits."""
        for one in self._kept:
            one.waiters.wake_all()


def _written(node: NodeAnswer) -> bytes:
    """What has its default is left out: of thousands of ranks it is most."""
    return node.model_dump_json(exclude_defaults=True).encode()


def _check(run: Run) -> None:
    if run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended: {run.result.message if run.result else ''}")
    if run.phase is not Phase.RUNNING:
        raise Forbidden(
            f"run '{run.id}' is {run.phase}: no program runs that could be looked at",
            hint=f"'rdzv status {run.id}' shows what it waits for",
        )


def nodes_of(run: Run) -> dict[int, NodeAnswer]:
    """Those whose programs run, by slot."""
    found = {}
    for slot in run.slots:
        node = slot.node
        if node is not None and node.number is not None and node.state not in GONE:
            found[slot.index] = NodeAnswer(
                slot=slot.index, node=node.number, hostname=node.join.hostname
            )
    return found
