"""The looks of one run: what its nodes answer to somebody who asks where the ranks are.

One is under way at a time; the newest few are kept in memory, and nothing of them is journalled.
The registry never dials a node: a look is told with the watch, and answered by a request.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic_core import to_json

from rendezvous.registry.waiters import Waiters
from rendezvous.run.state import GONE, Run
from rendezvous.serving.answers import Body
from rendezvous.wire.errors import Forbidden, NotFound, RunOver, TooLarge, TooManyRequests
from rendezvous.wire.look import LookCall, LookReport, NodeLook, RunLook
from rendezvous.wire.run import Phase

LOOK_SECONDS = 5.0
"""How long nodes may take to answer, and a moment more for each of many."""
REST_SECONDS = 5.0
"""From the beginning of one look to the next."""
MOST_BYTES = 8 << 20
"""What the answers to one look may take."""
SECONDS_EACH = 0.002
"""More for each node: they answer one after the other, twice as fast."""
_KEPT = 3


@dataclass
class _Look:
    """One look: who is to answer, and who has."""

    number: int
    epoch: int
    began_at: float
    expected: Mapping[int, NodeLook]
    answers: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    waiters: Waiters = field(default_factory=Waiters)

    def is_over(self, now: float) -> bool:
        return len(self.answers) == len(self.expected) or self.left(now) <= 0

    def left(self, now: float) -> float:
        return self.began_at + LOOK_SECONDS + len(self.expected) * SECONDS_EACH - now


class Looks:
    """Those of one run."""

    def __init__(self) -> None:
        self._kept: list[_Look] = []
        self._number = secrets.randbits(48)
        """Not from 1: a node that knows a look of a registry before this one is to see another."""

    def open(self, now: float) -> int:
        """The number of the look that nodes are to answer now; 0: none."""
        newest = self._newest
        return 0 if newest is None or newest.is_over(now) else newest.number

    @property
    def _newest(self) -> _Look | None:
        return self._kept[-1] if self._kept else None

    def begin(self, run: Run, now: float) -> LookCall:
        """Ask all nodes; who asks while a look is under way gets that one.

        Raises RunOver, Forbidden where no program runs, TooManyRequests after a look just before.
        """
        if (number := self.open(now)) != 0:
            return LookCall(look=number)
        _check(run)
        newest = self._newest
        if newest is not None and (rest := newest.began_at + REST_SECONDS - now) > 0:
            raise TooManyRequests(
                f"the newest look at run '{run.id}' is {now - newest.began_at:.0f} s old, and "
                f"there is one in {REST_SECONDS:.0f} s",
                hint=f"look again in {rest:.0f} s",
            )
        self._number += 1
        self._kept = [*self._kept[1 - _KEPT :], _Look(self._number, run.epoch, now, nodes_of(run))]
        return LookCall(look=self._number)

    def is_over(self, number: int, now: float) -> bool:
        """Whether this look has been answered, as far as it will be; also of one not known."""
        found = [look for look in self._kept if look.number == number]
        return not found or found[0].is_over(now)

    def take(self, slot: int, report: LookReport, now: float) -> None:
        """Keep what a node answers; what comes late, or again, is left out. Raises TooLarge."""
        look = self._newest
        if look is None or report.look != look.number or look.is_over(now):
            return
        if slot not in look.expected or slot in look.answers:
            return
        written = _written(look.expected[slot].model_copy(update={"report": report}))
        if look.size + len(written) > MOST_BYTES:
            raise TooLarge(f"the answers to this look have more than {MOST_BYTES >> 20} MiB")
        look.answers[slot] = written
        look.size += len(written)
        if look.is_over(now):
            look.waiters.wake_all()

    async def wait(self, number: int, seconds: float, now: float) -> None:
        """Until every node has answered this look, it is over, or the seconds are."""
        look = self._find(number)
        if look is not None and not look.is_over(now):
            await look.waiters.wait(min(seconds, look.left(now)))

    def written(self, number: int, now: float) -> Body:
        """The look of this number as far as it has come, 0 for the newest. Raises NotFound."""
        look = self._find(number)
        if look is None:
            return Body(to_json(RunLook(look=0)))
        head = RunLook(
            look=look.number,
            epoch=look.epoch,
            age=round(now - look.began_at, 3),
            over=look.is_over(now),
        )
        missing = (node for slot, node in look.expected.items() if slot not in look.answers)
        nodes = [*look.answers.values(), *map(_written, missing)]
        written = head.model_dump_json(exclude={"nodes"}).encode()
        return Body(written[:-1] + b',"nodes":[' + b",".join(nodes) + b"]}")

    def read(self, number: int, now: float) -> RunLook:
        """The same, as it is read. Raises NotFound."""
        return RunLook.model_validate_json(self.written(number, now).plain)

    def _find(self, number: int) -> _Look | None:
        if number == 0:
            return self._newest
        for look in self._kept:
            if look.number == number:
                return look
        raise NotFound(f"there is no look {number} any more", hint="look again")

    def close(self) -> None:
        """Answer everyone who waits."""
        for look in self._kept:
            look.waiters.wake_all()


def _written(node: NodeLook) -> bytes:
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


def nodes_of(run: Run) -> dict[int, NodeLook]:
    """Those whose programs run, by slot."""
    found = {}
    for slot in run.slots:
        node = slot.node
        if node is not None and node.number is not None and node.state not in GONE:
            found[slot.index] = NodeLook(
                slot=slot.index, node=node.number, hostname=node.join.hostname
            )
    return found
