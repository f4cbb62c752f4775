"""Where a node answers its peers' visits, and how it visits them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from typing import Any, cast

import pytest

from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import UsageError
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from tests.support.bed import join_text
from tests.worker.agent.drive import virtually
from tests.worker.skewed import ADDRESSES, HOSTS, INTERFACES, SLOT, SLOTS
from worker.agent.actions import Visit
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment
from worker.agent.visiting import listen, visit
from worker.probe.packets import Identity
from worker.settings import WorkerSettings

PLAN = ProbePlan(
    network="10.4.0.0/24",
    peers=[
        ProbePeer(
            slot=slot,
            hostname=host,
            address=address,
            interface=name,
            mtu=0,
            probe_port=7_010 + n,
        )
        for n, (slot, host, address, name) in enumerate(
            zip(SLOTS, HOSTS, ADDRESSES, INTERFACES, strict=True)
        )
    ],
)


def asked(same: int | None = None, **settings: Any) -> dict[str, Any]:
    """What a node asks of its listener."""
    found: list[dict[str, Any]] = []
    join = JoinString.parse(join_text())
    spec = NodeSpec(WorkerSettings(**settings), join, ["true"], remote=False)
    identity = Identity(join.probe_key, join.run, join.launch_id, join.slot)
    environment = AgentEnvironment(listen=lambda _, **how: cast(Any, found.append(how)))
    listen(spec, identity, environment, same)
    (one,) = found
    return {**one, "avoid": sorted(one["avoid"])[:2], "registry": join.place.port in one["avoid"]}


def test_a_node_leaves_the_ports_of_the_registry_and_of_the_program_alone() -> None:
    free = {"loopback": False, "within": None, "registry": True}
    assert asked()["registry"]
    assert asked(master_port=40_000) == free | {"avoid": asked(master_port=40_000)["avoid"]}
    assert 40_000 in asked(master_port=40_000)["avoid"]


def test_a_node_listens_within_the_ports_that_are_let_through() -> None:
    assert asked(probe_ports="41000-41099")["within"] == (41_000, 41_099)
    assert asked(probe_ports="41000")["within"] == (41_000, 41_000)


def test_a_node_whose_port_the_peers_know_takes_no_other() -> None:
    known = {"loopback": False, "within": (50_000, 50_000), "avoid": [], "registry": False}
    assert asked(50_000, probe_ports="41000", master_port=50_000) == known


@pytest.mark.parametrize("ports", [None, "41000-41001"])
def test_where_none_can_be_had_the_ports_that_were_given_are_named(ports: str | None) -> None:
    join = JoinString.parse(join_text())

    def busy(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    spec = NodeSpec(WorkerSettings(probe_ports=ports), join, ["true"], remote=False)
    identity = Identity(join.probe_key, join.run, join.launch_id, join.slot)
    with pytest.raises(UsageError if ports else OSError) as raised:
        listen(spec, identity, AgentEnvironment(listen=busy))
    named = "no port of --probe-ports 41000-41001 is free on this node: Address already in use"
    assert str(raised.value).startswith(named) or not ports


def test_a_hosts_file_that_hangs_takes_no_visit_back() -> None:
    async def hangs(*_: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def probe(_: Identity, plan: Any, share: Iterable[int]) -> list[PairProbe]:
        assert plan == PLAN
        return [PairProbe(slot=slot, outcome="ok") for slot in share]

    join = JoinString.parse(join_text())
    identity = Identity(join.probe_key, join.run, join.launch_id, SLOT)
    environment = AgentEnvironment(
        in_thread=hangs, probe=probe, why_unusable=lambda address, interface: ""
    )
    said = virtually(visit(Visit(17, 4, PLAN), identity, environment, near=False))
    assert said.number == 17
    assert said.pairs
    assert {pair.slot for pair in said.pairs} < {*SLOTS}
