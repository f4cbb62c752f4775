"""Refused joins at the registry: from which address, how often, and what strangers leave behind."""

from __future__ import annotations

import pytest

from rendezvous.run import events
from rendezvous.wire.errors import Mismatch, SlotTaken, Unauthorized
from rendezvous.wire.node import Job, Refusal
from rendezvous.wire.run import Phase
from tests.support.registry import Launch
from tests.support.served import Served, serving

DEMO, OTHER = Launch("demo"), Launch("other")
TWIN = {"hostname": "twin"}

served = pytest.fixture(serving)


async def ask(served: Served, slot: int, source: str, launch: Launch = DEMO) -> None:
    """A second node asks for a slot."""
    request = launch.join(slot, 2, **TWIN)
    await served.service.join("demo", launch.token(slot), request, source)


async def kept(served: Served) -> list[tuple[int | None, str, str, int]]:
    """What is told of those that were refused."""
    status = await served.service.status(served.host(DEMO))
    return [(one.slot, one.hostname, one.source, one.times) for one in status.refused]


async def test_a_refused_join_is_kept_with_its_address_and_counted(served: Served) -> None:
    await served.create(DEMO, 4, managed=False)
    for slot in (0, 2):
        await served.join(DEMO, slot)
    host = served.host(DEMO)
    for _ in range(3):
        with pytest.raises(SlotTaken):
            await ask(served, 2, "192.0.2.7")
        served.let_pass(0.5)
        served.service.heard(host, 2, 1, None)
    assert await kept(served) == [(2, "twin", "192.0.2.7", 2)]
    served.let_pass(2.0)
    served.service.heard(host, 2, 1, None)
    with pytest.raises(SlotTaken):
        await ask(served, 2, "192.0.2.7")
    assert await kept(served) == [(2, "twin", "192.0.2.7", 4)]


async def test_a_stranger_is_kept_by_its_address_and_is_told_nothing(served: Served) -> None:
    await served.create(DEMO, 3)
    for number in range(9):
        with pytest.raises(Unauthorized, match="is not one of run 'demo'"):
            await ask(served, 2, f"203.0.113.{number}", OTHER)
    assert await kept(served) == [(None, "", f"203.0.113.{n}", 1) for n in range(4)]
    assert served.host(DEMO).run.phase is Phase.GATHERING


async def test_a_registry_of_several_runs_blames_none_for_a_run_that_is_not_there(
    served: Served,
) -> None:
    await served.create(DEMO, 3)
    await served.create(OTHER, 3)
    third = Launch("third")
    with pytest.raises(Unauthorized):
        await served.service.join("third", third.token(1), third.join(1), "203.0.113.1")
    assert await kept(served) == []


async def test_who_has_no_slot_tells_it_with_the_token_of_slot_0(served: Served) -> None:
    await served.create(DEMO, 3, managed=False)
    refusal = Refusal(
        hostname="h9", code="usage", reason="NODE_RANK 3 is none", exit_code=64, of_slot=False
    )
    await served.service.refuse(served.host(DEMO), 0, 1, refusal, "10.0.0.9")
    assert await kept(served) == [(None, "h9", "10.0.0.9", 1)]
    assert not served.host(DEMO)._end_told  # the node of slot 0 has heard nothing
    await served.join(DEMO, 0)
    assert served.host(DEMO).run.phase is Phase.GATHERING


async def test_a_node_that_is_refused_for_good_knows_the_end(served: Served) -> None:
    await served.create(DEMO, 3, managed=False)
    with pytest.raises(Mismatch, match="NUM_NODES 4, but run 'demo' has --nnodes 3"):
        await served.join(DEMO, 2, job=Job(nnodes="4", nnodes_source="NUM_NODES"))
    status = await served.service.status(served.host(DEMO))
    assert (status.phase, status.untold) == (Phase.FINISHED, [0, 1])


async def test_nobody_waits_for_a_node_of_a_slot_that_no_node_asks_for(served: Served) -> None:
    await served.create(DEMO, 4, managed=False)
    for slot in (0, 1, 3):
        await served.join(DEMO, slot)
    ends = events.CannotComplete(reason="two want slot 3", hint="")
    host = served.host(DEMO)
    await served.service.sequencer.change_run(host, lambda _: ends)
    assert (await served.service.status(host)).untold == []
