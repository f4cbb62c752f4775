"""Where a node answers its peers' visits: what it asks of its listener, and when it cannot."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest

from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import UsageError
from tests.support.bed import join_text
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment
from worker.agent.visiting import listen
from worker.probe.packets import Identity
from worker.settings import WorkerSettings


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
