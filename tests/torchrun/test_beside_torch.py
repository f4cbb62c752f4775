"""What torch's own code makes of a handler of rdzv's, and of its store."""

from __future__ import annotations

import importlib
import json
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.torchrun.handling import Made, ended, free_port, in_thread, making, started

pytestmark = pytest.mark.frameworks  # torch takes its time to import


@pytest.fixture(scope="module", autouse=True)
def torch() -> None:
    """torch imports the plug-in, as in any torchrun, and not the other way round."""
    importlib.import_module("torch.distributed.elastic.rendezvous")


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Made]]:
    """Makes a handler, with a helper that says what the test wants."""
    yield from making(monkeypatch)


def test_torch_finds_it_by_its_name() -> None:
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    assert "rdzv" in rendezvous_handler_registry._registry


def test_rank_0_serves_a_fresh_store_for_each_table(make: Callable[..., Made]) -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = free_port()
    handler, helper, _ = started(make, port=port)
    assert handler.use_agent_store
    first = TCPStore("127.0.0.1", port, is_master=False)
    first.set("key", "of the first")
    thread, _ = in_thread(handler.next_rendezvous)
    helper.hear()
    with socket.create_server(("127.0.0.1", port)):  # it is free before the next one is agreed on
        pass
    helper.go(port=port)
    ended(thread)
    second = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=5))
    assert not second.check(["key"])


def test_the_barrier_at_the_end_waits_for_the_runs_result(make: Callable[..., Made]) -> None:
    """By torch's own code, as its agent calls it."""
    from torch.distributed.elastic.utils import store as torchs

    handler, helper, info = started(make)

    def barrier() -> None:
        prefix = "torchelastic/agent/terminal_state"
        torchs.barrier(info.store, 1, prefix, barrier_timeout=30)

    thread, found = in_thread(barrier)
    assert helper.hear() == {"kind": "ended"}
    assert thread.is_alive()
    helper.say("over", code=0, message="")
    ended(thread)
    assert found == [None]
    assert info.store.timeout == timedelta(seconds=300)
    handler.shutdown()  # says nothing more


def test_the_barrier_gives_up_as_torch_expects(make: Callable[..., Made]) -> None:
    from torch.distributed import DistStoreError
    from torch.distributed.elastic.utils import store as torchs

    _, _, info = started(make)
    with pytest.raises(DistStoreError, match="other nodes still run"):
        torchs.barrier(info.store, 2, "torchelastic/agent/terminal_state", barrier_timeout=0.1)


@pytest.mark.parametrize(
    "nodes",
    [
        [(1, "default")],
        [(8, "default")] * 4,
        [(8, "master"), (1, "trainer"), (2, "trainer"), (5, "ps"), (3, "trainer"), (2, "ps")],
    ],
)
def test_ranks_are_those_that_torchs_agents_agree_on(nodes: list[tuple[int, str]]) -> None:
    """The agents' own algorithm over a real store, and over the table."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    from rdzv.torchrun_agent import TableStore

    def ranks(store: Any, node: int) -> list[tuple[int, int, int, int]]:
        count, role = nodes[node]
        spec = SimpleNamespace(role=role, local_world_size=count)
        assign: Any = LocalElasticAgent._assign_worker_ranks
        assign = getattr(assign, "__wrapped__", assign)
        workers = assign(None, store, node, len(nodes), spec)
        return [(w.global_rank, w.role_rank, w.world_size, w.role_world_size) for w in workers]

    common: Any = importlib.import_module("torch.distributed").HashStore()
    for node in reversed(range(1, len(nodes))):  # rank 0 reads what the others have written
        count, role = nodes[node]
        info = {"role": role, "rank": node, "local_world_size": count}
        common.set(f"torchelastic/role_info/{node}", json.dumps(info))
    expected = [ranks(common, node) for node in range(len(nodes))]
    tables = [TableStore(nodes, lambda _: None) for _ in nodes]
    assert [ranks(store, node) for node, store in enumerate(tables)] == expected
