"""The relay passes on what the nodes of one run say to each other about remote commands.

It keeps frames in memory, by the node that they are for, until that node asks for what comes after
them; nothing is journalled. After a restart of the registry its `session` is another one, and the
nodes tell again what was not acknowledged (see `worker.rsh`). It exists only where a run allows
remote commands and once a node has used them.
"""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from dataclasses import dataclass, field

from rendezvous.registry.waiters import Waiters
from rendezvous.run.state import GONE, Run
from rendezvous.wire.errors import Forbidden, RunOver, TooManyRequests
from rendezvous.wire.relay import RELAY_POLL_SECONDS, Parcel, RelayMail, size_of
from rendezvous.wire.run import Phase

MOST_BYTES = 32 << 20
"""What one run's frames may take, in all; a node that reads keeps far below."""
MAIL_BYTES = 192 << 10


@dataclass(slots=True)
class _Kept:
    seq: int
    size: int
    parcel: Parcel


@dataclass(slots=True)
class _Box:
    """The frames for one node."""

    seq: int = 0
    kept: deque[_Kept] = field(default_factory=deque)
    waiters: Waiters = field(default_factory=Waiters)


class Relay:
    """The frames of one run on their way."""

    def __init__(self) -> None:
        self.session = secrets.token_hex(8)
        self.closed = False
        self.held_bytes = 0
        """What is on its way, roughly as it lies in memory."""
        self._boxes: dict[int, _Box] = {}

    def give(self, sender: int, parcels: list[Parcel]) -> None:
        """Take frames of a node for others: all of them, or none where too much is on its way."""
        if self.held_bytes + sum(size_of(parcel.frame) for parcel in parcels) > MOST_BYTES:
            raise TooManyRequests(
                f"{MOST_BYTES >> 20} MiB of remote commands' output are queued, and their "
                "receivers do not read them"
            )
        for parcel in parcels:
            box = self._boxes.setdefault(parcel.peer, _Box())
            box.seq += 1
            self.held_bytes += (size := size_of(parcel.frame))
            box.kept.append(_Kept(box.seq, size, Parcel(peer=sender, frame=parcel.frame)))
            box.waiters.wake_all()

    async def take(self, slot: int, after: int, session: str) -> RelayMail:
        """The frames for a node numbered above `after`; waits for one. Those below are forgotten.

        Who knows another session has received nothing of this one, and is told of it at once.
        """
        box = self._boxes.setdefault(slot, _Box())
        known = session == self.session
        after = after if known else 0
        while box.kept and box.kept[0].seq <= after:
            self.held_bytes -= box.kept.popleft().size
        if known and not box.kept and not self.closed:
            await box.waiters.wait(RELAY_POLL_SECONDS)
        newer = [kept for kept in box.kept if kept.seq > after]
        sizes = itertools.accumulate(kept.size for kept in newer)
        some = [kept for kept, size in zip(newer, sizes, strict=True) if size <= MAIL_BYTES]
        mail = some or newer[:1]
        return RelayMail(
            session=self.session,
            seq=mail[-1].seq if mail else after,
            parcels=[kept.parcel for kept in mail],
        )

    def forget(self, slot: int) -> None:
        """A node is gone: nobody takes what is kept for it."""
        if (box := self._boxes.pop(slot, None)) is not None:
            self.held_bytes -= sum(kept.size for kept in box.kept)
            box.kept.clear()
            box.waiters.wake_all()

    def close(self) -> None:
        """Nothing more is kept; who waits is answered."""
        self.closed = True
        for slot in list(self._boxes):
            self.forget(slot)


def check_member(run: Run, slot: int) -> None:
    """Raise Forbidden or RunOver unless this is a node of the table of a run that allows it now."""
    if not run.spec.allow_exec:
        raise Forbidden(
            f"run '{run.id}' does not allow remote commands", hint="launch it with --allow-exec"
        )
    if run.phase is Phase.FINISHED:
        raise RunOver(f"run '{run.id}' has ended: {run.result.message if run.result else ''}")
    if run.phase is not Phase.RUNNING:
        raise Forbidden(
            f"run '{run.id}' is {run.phase}: remote commands work only while it is running"
        )
    if not _takes_part(run, slot):
        raise Forbidden(f"slot {slot} is not in the table of run '{run.id}'")


def only_living(run: Run, parcels: list[Parcel]) -> list[Parcel]:
    """Without the frames for nodes that are not there: they have ended their commands."""
    return [parcel for parcel in parcels if _takes_part(run, parcel.peer)]


def _takes_part(run: Run, slot: int) -> bool:
    if not 0 <= slot < len(run.slots):
        return False
    node = run.slots[slot].node
    return node is not None and node.number is not None and node.state not in GONE
