"""What the agent of torchrun above a handler knows, and what it asks of the other agents.

It tells its handler little: how many processes this node has, and who of them has failed, stands in
its frames alone. And it expects a store that all agents share: here each has its own, which answers
from the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any

from torch.distributed import DistStoreError, Store  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import RendezvousError

_BARRIER = "torchelastic/agent/terminal_state"
_ROLES = "torchelastic/role_info/"
_RANKS = "torchelastic/assigned_ranks/"


class TableStore(Store):
    """What the agents of torchrun ask each other, answered from the table.

    Args:
        nodes: In their order, the number of processes and the role.
        await_others: Waits until the others' workers have ended, for so many seconds at most.
    """

    def __init__(self, nodes: list[tuple[int, str]], await_others: Callable[[float], None]) -> None:
        super().__init__()
        self._nodes = nodes
        self._await_others = await_others
        self._seconds = timedelta(seconds=300)
        self._kept: dict[str, Any] = {}

    @property
    def timeout(self) -> timedelta:
        """How long `wait` waits."""
        return self._seconds

    def set_timeout(self, timeout: timedelta) -> None:
        """See `timeout`."""
        self._seconds = timeout

    def set(self, key: str, value: Any) -> None:
        """Keep it: nobody else asks for it."""
        self._kept[key] = value

    def get(self, key: str) -> bytes:
        """What the table says. Raises DistStoreError for what it does not know."""
        what, _, node = key.rpartition("/")
        if what + "/" == _ROLES:
            count, role = self._nodes[int(node)]
            words: object = {"role": role, "rank": int(node), "local_world_size": count}
        elif what + "/" == _RANKS:
            words = ranks_of(self._nodes, int(node))
        elif key in self._kept:
            value = self._kept[key]
            return value if isinstance(value, bytes) else str(value).encode()
        else:
            raise DistStoreError(f"rdzv's store has no {key}")
        return json.dumps(words).encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """See `get`."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        """See `set`."""
        self._kept.update(zip(keys, values, strict=True))

    def check(self, keys: list[str]) -> bool:
        """Whether `get` has an answer for all of them."""
        return all(key.startswith((_ROLES, _RANKS)) or key in self._kept for key in keys)

    def add(self, key: str, value: int) -> int:
        """Count; of those at the end's barrier nobody is the last here: the registry knows that."""
        if key.startswith(_BARRIER):
            return 0
        self._kept[key] = int(self._kept.get(key, 0)) + value
        return int(self._kept[key])

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for the end of all. Raises DistStoreError."""
        if any(key.startswith(_BARRIER) for key in keys):
            self._await_others((timeout or self._seconds).total_seconds())
        else:
            self.multi_get(keys)


def ranks_of(nodes: list[tuple[int, str]], node: int) -> list[int]:
    """Of a node's first process its global rank, the world's size, and the same in its role."""
    own = nodes[node][1]
    before = [count for count, _ in nodes[:node]]
    of_role = [count for count, role in nodes if role == own]
    role_before = [count for count, role in nodes[:node] if role == own]
    return [sum(before), sum(count for count, _ in nodes), sum(role_before), sum(of_role)]


def of_agent(frame: FrameType, conf: dict[str, str]) -> tuple[int, str, dict[str, int] | None]:
    """The number of processes, their role, and which of those before has failed first: the agent
    above has them, and tells no handler."""
    group, failure = next(_locals(frame, "worker_group", "spec"), None), failure_above(frame)
    if group is not None:
        return int(group.spec.local_world_size), str(group.spec.role), failure
    try:
        return int(conf["nproc"]), "default", failure
    except (KeyError, ValueError):
        raise RendezvousError(
            "rdzv cannot see how many processes this node has: give --rdzv-conf nproc=N"
        ) from None


def failure_above(frame: FrameType) -> dict[str, int] | None:
    """The worker that failed first, as the agent above has seen it; None: none has."""
    names = "run_result", "result"
    results = (found for name in names for found in _locals(frame, name, "failures"))
    failures: dict[int, Any] = next((result.failures for result in results if result.failures), {})
    if not failures:
        return None
    rank, first = min(failures.items(), key=lambda one: one[1].timestamp)
    code = first.exitcode if first.exitcode >= 0 else 128 - first.exitcode
    return {"rank": rank, "local_rank": first.local_rank, "pid": first.pid, "code": code}


def _locals(frame: FrameType | None, name: str, attribute: str) -> Iterator[Any]:
    """Local variables of this name that have this attribute, in this frame and those above."""
    while frame is not None:
        value = frame.f_locals.get(name)
        if hasattr(value, attribute):
            yield value
        frame = frame.f_back
