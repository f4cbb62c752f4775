"""The machines of a run in its registry: what nodes tell, what is kept, and what is shown of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from features.machines import TOPIC, registry
from features.machines.registry import Store
from features.machines.wire import GpuSample, MachineSample, NodeMachine, RunMachines
from rendezvous.registry.app import make_app
from rendezvous.registry.topics import Received
from rendezvous.talk.credentials import SERVER_NAME, Credential
from rendezvous.wire.errors import TooLarge
from rendezvous.wire.node import Facts, RdmaPort
from rendezvous.wire.run import Phase
from tests.support.driver import HOSTS, RANKS, skewed
from tests.support.registry import Launch
from tests.support.served import Answer, Served, ask, serving

DEMO = Launch("demo")
SAMPLE = MachineSample(
    load=3.5,
    memory_used=1 << 30,
    memory_limit=4 << 30,
    gpus=[GpuSample(index=0, memory_used=5, memory_total=10, utilisation=0)],
)

INCARNATIONS = {0: 1, 1: 1, 2: 3, 3: 1}
"""By slot, of `skewed`."""

served = pytest.fixture(serving)


async def found(served: Served) -> list[NodeMachine]:
    """What is shown now."""
    host = served.host(DEMO)
    written = host.store(TOPIC).to_json(host.run, None, served.service.now())
    return RunMachines.model_validate_json(written).machines


def take(served: Served, slot: int, sample: MachineSample, incarnation: int = 1) -> None:
    """A node tells of its machine."""
    host = served.host(DEMO)
    host.store(TOPIC).receive(Received(host.run, slot, incarnation, sample, served.service.now()))


async def call(
    served: Served, method: str, path: str, shown: Credential, body: object = b""
) -> Answer:
    """A request of somebody with this credential."""
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    return await ask(app, method, f"/v1/runs/demo/{path}", shown, body)


async def test_of_each_node_the_newest_sample_is_shown_with_its_age(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    take(served, 1, MachineSample(load=1.0))
    take(served, 1, SAMPLE)
    served.let_pass(12.0)
    first, second = await found(served)
    assert (first.slot, first.node, first.hostname, first.sample, first.age) == (
        *(0, 0, "host0"),
        None,
        0.0,
    )
    assert (second.slot, second.node, second.sample, second.age) == (1, 1, SAMPLE, 12.0)


async def test_facts_describe_a_machine_and_do_not_tell_it_from_others(served: Served) -> None:
    port = RdmaPort(device="mlx5_0", link_layer="InfiniBand", state="ACTIVE", rate_gbps=400.0)
    whole = Facts(
        torch_version="2.9.0",
        gpus=8,
        gpu_models=["H100"],
        gpu_uuids=["GPU-1"],
        boot_id="b",
        machine_id="m",
        script_digest="ab" * 32,
        rdma=[RdmaPort(**vars_of(port), node_guid="0001", pkeys=[1], hca_type="MT4129")],
    )
    await served.create(DEMO, 2)
    await served.join(DEMO, 0, facts=whole)
    [one] = await found(served)
    assert one.facts == Facts(torch_version="2.9.0", gpus=8, gpu_models=["H100"], rdma=[port])
    assert (one.node, one.sample) == (None, None)


def vars_of(port: RdmaPort) -> dict[str, Any]:
    names = ("device", "link_layer", "state", "rate_gbps")
    return {name: getattr(port, name) for name in names}


async def test_what_all_nodes_tell_is_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    size = len(SAMPLE.model_dump_json(exclude_defaults=True))
    monkeypatch.setattr(registry, "MOST_BYTES", size + 10)
    take(served, 0, SAMPLE)
    take(served, 0, SAMPLE)  # in place of the first
    with pytest.raises(TooLarge, match="more than"):
        take(served, 1, SAMPLE)
    assert [one.sample for one in await found(served)] == [SAMPLE, None]


async def test_nodes_tell_and_readers_read(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    host = served.host(DEMO)
    own = served.service.access.node_credential(host, 1, 1)
    said = SAMPLE.model_dump_json(exclude_defaults=True).encode()
    assert (await call(served, "POST", "nodes/1/machine", own, said)).status == 200
    answer = await call(served, "GET", "machines", DEMO.keys.read)
    assert answer.status == 200
    assert RunMachines.model_validate_json(answer.body).machines[1].sample == SAMPLE
    assert "sample" not in json.loads(answer.body)["machines"][0]
    for wrong in (b'{"load": -1}', b'{"load": 1e999}', b'{"gpus": [{"index": "0"}]}'):
        assert (await call(served, "POST", "nodes/1/machine", own, wrong)).status == 400


def test_a_machine_is_that_of_a_slot_and_incarnation_and_shown_with_its_rank() -> None:
    drive, kept = skewed(), Store()
    for slot in range(4):
        sample = MachineSample(load=float(slot))
        kept.receive(Received(drive.run, slot, INCARNATIONS[slot], sample, drive.now))
    another = Received(drive.run, 1, INCARNATIONS[1] + 1, MachineSample(load=9.0), drive.now)
    kept.receive(another)
    found = RunMachines.model_validate_json(kept.to_json(drive.run, None, drive.now)).machines
    assert [(one.slot, one.node, one.hostname) for one in found] == [
        (slot, RANKS[slot], HOSTS[slot]) for slot in range(4)
    ]
    loads = [one.sample and one.sample.load for one in found]
    assert loads == [0.0, None, 2.0, 3.0]  # that of slot 1 is of another node
