"""Requests that are under way together: one that goes, and a registry that ends beside it."""

from __future__ import annotations

import asyncio

import pytest

from rendezvous.wire.errors import SlotTaken, StorageFull
from rendezvous.wire.run import Phase
from tests.support.registry import Launch
from tests.support.served import Served, serving

DEMO, OTHER = Launch("demo"), Launch("other")

served = pytest.fixture(serving)


async def many_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_who_goes_while_it_is_written_keeps_no_answer_from_the_others(served: Served) -> None:
    await served.create(DEMO, 3)
    await served.create(OTHER, 1)
    served.journal.open.clear()
    first = asyncio.create_task(served.join(DEMO, 0))
    await many_turns()  # that is being written; the next ones are written together
    going, stays = (asyncio.create_task(served.join(DEMO, slot)) for slot in (2, 1))
    other = asyncio.create_task(served.join(OTHER, 0))
    await many_turns()
    assert not any(task.done() for task in (first, going, stays, other))
    going.cancel()
    await many_turns()
    served.journal.open.set()
    for task in (first, stays, other):
        assert (await asyncio.wait_for(task, 5)).incarnation == 1
    assert served.is_alive
    assert served.host(DEMO).run.present == 3  # what was decided for who has gone stands
    assert await served.is_what_the_journal_says(DEMO)


async def test_a_refusal_that_goes_by_what_is_not_written_is_none(served: Served) -> None:
    await served.create(DEMO, 3)
    served.journal.open.clear()
    first = asyncio.create_task(served.join(DEMO, 0))
    await many_turns()  # that is being written; the next ones are written together

    def refuse(now: float) -> None:
        raise SlotTaken("slot 1 is held")

    second = asyncio.create_task(served.join(DEMO, 1))
    refused = served.service.sequencer.change_run(served.host(DEMO), refuse)
    third = asyncio.create_task(refused)
    await many_turns()
    served.journal.is_full = True
    served.journal.open.set()
    for task in (first, second, third):
        with pytest.raises(StorageFull):
            await asyncio.wait_for(task, 5)


async def test_what_is_being_written_is_written_though_the_registry_ends(served: Served) -> None:
    """A journal with a standby takes a cancel for an acknowledgement."""
    await served.create(DEMO, 2)
    before = len(await served.journal.read(DEMO.run))
    served.journal.open.clear()
    joins = asyncio.create_task(served.join(DEMO, 0))
    await many_turns()
    await served.end()
    assert len(await served.journal.read(DEMO.run)) == before
    served.journal.open.set()
    await many_turns()
    assert len(await served.journal.read(DEMO.run)) == before + 1
    joins.cancel()
    await asyncio.gather(joins, return_exceptions=True)


async def test_a_run_that_was_built_again_knows_no_secret_of_what_was_taken_back(
    served: Served,
) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO, 2)
    host, access = served.host(DEMO), served.service.access
    genuine = access.node_credential(host, 1, 1).secret
    assert host.secrets == {(1, 1): genuine} or genuine in host.secrets.values()
    host.secrets[1, 1] = b"of an incarnation that is none"
    recovered = (await served.recovered()).sequencer.runs[DEMO.run]
    host.take_over(recovered, served.service.now())
    assert access.node_credential(host, 1, 1).secret == genuine
