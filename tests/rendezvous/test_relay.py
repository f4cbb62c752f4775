"""The relay: what the nodes of a run say to each other about remote commands, by the registry."""

from __future__ import annotations

import asyncio
import base64

import pytest
from pydantic import ValidationError

from rendezvous.registry import relay
from rendezvous.registry.app import make_app
from rendezvous.registry.caller import Caller, command_of_node
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.relay import Relay
from rendezvous.serving.connection import CloseReason, Connection
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.wire.errors import TooManyRequests
from rendezvous.wire.relay import (
    COMMAND_PIECE_BYTES,
    MAX_COMMAND_BYTES,
    CommandEnd,
    CommandOutput,
    CommandStart,
    Parcel,
    RelayMail,
    RelayPost,
)
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import Phase
from tests.support.registry import Launch, is_waiting
from tests.support.served import Answer, Served, ask, serving

MAC = "0" * 64


def end(peer: int, number: int) -> Parcel:
    return Parcel(peer=peer, frame=CommandEnd(number=number))


def start(peer: int, command: bytes, number: int = 1) -> Parcel:
    text = base64.b64encode(command).decode()
    return Parcel(peer=peer, frame=CommandStart(number=number, command=text, mac=MAC))


def piece(peer: int, size: int, offset: int = 0) -> Parcel:
    data = base64.b64encode(bytes(size)).decode()
    frame = CommandOutput(number=1, offset=offset, stream="stdout", data=data)
    return Parcel(peer=peer, frame=frame)


def numbers(mail: RelayMail) -> list[int]:
    return [parcel.frame.number for parcel in mail.parcels]


# --- what is kept ---------------------------------------------------------------------------------


async def test_frames_wait_in_their_order_until_their_node_has_them() -> None:
    kept = Relay()
    kept.give(0, [end(1, 1), end(2, 7), end(1, 2)])
    kept.give(2, [end(1, 3)])
    mail = await kept.take(1, 0, "")
    assert mail == RelayMail(session=kept.session, seq=3, parcels=[end(0, 1), end(0, 2), end(2, 3)])
    assert await kept.take(1, 0, kept.session) == mail  # the answer was lost
    kept.give(0, [end(1, 4)])
    assert numbers(await kept.take(1, 2, kept.session)) == [3, 4]
    assert numbers(await kept.take(2, 0, kept.session)) == [7]


async def test_a_node_that_was_told_of_another_session_has_nothing_yet() -> None:
    kept = Relay()
    kept.give(0, [end(1, 1)])
    assert numbers(await kept.take(1, 50, "that before the restart")) == [1]
    assert await kept.take(2, 50, "") == RelayMail(session=kept.session, seq=0)
    assert Relay().session != kept.session


async def test_who_waits_is_answered_by_a_frame_or_when_it_is_gone_or_the_run_is_over() -> None:
    kept = Relay()
    asked = asyncio.create_task(kept.take(1, 0, kept.session))
    assert await is_waiting(asked)
    kept.give(0, [end(1, 1), end(2, 1)])
    assert numbers(await asked) == [1]
    lost, over = (asyncio.create_task(kept.take(slot, 1, kept.session)) for slot in (1, 3))
    assert await is_waiting(lost)
    kept.forget(1)
    kept.forget(2)
    assert (await lost).parcels == []
    assert kept.held_bytes == 0
    assert await is_waiting(over)
    kept.close()
    assert (await over).parcels == []


async def test_an_answer_has_a_bounded_size_and_always_something() -> None:
    kept = Relay()
    kept.give(0, [piece(1, COMMAND_PIECE_BYTES, offset) for offset in range(20)])
    first = await kept.take(1, 0, kept.session)
    assert 1 < len(first.parcels) < 20
    assert len(first.model_dump_json()) < 256 << 10
    second = await kept.take(1, first.seq, kept.session)
    assert second.parcels[0].frame.model_dump()["offset"] == len(first.parcels)


async def test_what_is_not_taken_is_bounded_and_goes_on_once_it_is() -> None:
    kept = Relay()
    full = [piece(1, COMMAND_PIECE_BYTES)]
    kept.give(0, full)
    for _ in range(relay.MOST_BYTES // kept.held_bytes - 1):
        kept.give(0, full)
    with pytest.raises(TooManyRequests, match="32 MiB of remote commands' output"):
        kept.give(0, full)
    held = kept.held_bytes
    assert relay.MOST_BYTES - 50_000 < held <= relay.MOST_BYTES
    with pytest.raises(TooManyRequests):
        kept.give(2, full)
    assert kept.held_bytes == held
    several = [end(2, 1), *full, end(2, 2)]
    with pytest.raises(TooManyRequests):
        kept.give(0, several)  # nor a part of what is given together
    assert (await kept.take(2, 0, "")).parcels == []
    assert kept.held_bytes == held
    seq = (await kept.take(1, 0, kept.session)).seq
    await kept.take(1, seq, kept.session)
    kept.give(0, several)
    assert numbers(await kept.take(2, 0, kept.session)) == [1, 2]
    kept.forget(1)
    await kept.take(2, 2, "")
    kept.forget(2)
    assert kept.held_bytes == 0


@pytest.mark.parametrize(
    "spoilt",
    [
        {"command": "not base64!"},
        {"command": base64.b64encode(bytes(140_000)).decode()},
        *({"number": 0}, {"number": 1 << 60}, {"mac": "0" * 63}, {"kind": "exec"}),
    ],
    ids=lambda spoilt: str(spoilt)[:30],
)
def test_a_frame_that_is_none_is_refused(spoilt: dict[str, object]) -> None:
    frame = start(1, b"true").frame.model_dump()
    RelayPost.model_validate({"parcels": [{"peer": 1, "frame": frame}]})
    with pytest.raises(ValidationError):
        RelayPost.model_validate({"parcels": [{"peer": 1, "frame": frame | spoilt}]})


# --- over HTTP ------------------------------------------------------------------------------------


DEMO = Launch("demo")

served = pytest.fixture(serving)


async def call(
    served: Served, method: str, slot: int, query: str = "", body: object = b""
) -> Answer:
    """A node's request for the relay."""
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    token = served.service.access.node_credential(served.host(DEMO), slot, 1)
    return await ask(app, method, f"/v1/runs/demo/nodes/{slot}/{query or 'relay'}", token, body)


async def give(served: Served, slot: int, *parcels: Parcel) -> Answer:
    body = {"parcels": [parcel.model_dump() for parcel in parcels]}
    return await call(served, "POST", slot, body=body)


async def take(served: Served, slot: int) -> Answer:
    return await call(served, "GET", slot)


async def running(served: Served, nodes: int = 2) -> LiveRun:
    """A run that allows remote commands, and goes."""
    await served.bring_to(Phase.RUNNING, DEMO, nodes, allow_exec=True)
    return served.host(DEMO)


async def test_a_node_tells_another_one_and_the_registry_says_from_whom(served: Served) -> None:
    host = await running(served)
    before = host.number
    assert host.relay is None
    given = await give(served, 0, start(1, b"echo hi"))
    mail = RelayMail.model_validate_json((await take(served, 1)).body)
    assert given.json == {"session": mail.session}
    assert mail == RelayMail(session=mail.session, seq=1, parcels=[start(0, b"echo hi")])
    assert host.number == before  # nothing of it is journalled
    await served.service.cancel(host, "enough")
    assert host.relay is None


async def test_who_takes_and_gives_is_no_silent_node(served: Served) -> None:
    """What it asks otherwise may be lost on the way."""
    host = await running(served)
    served.clock.seconds += 5.0
    await give(served, 0, start(1, b"echo hi"))
    await take(served, 1)
    served.clock.seconds += 1.0
    status = await served.service.status(host)
    assert [slot.silent_seconds for slot in status.slots[:2]] == [1.0, 1.0]


async def test_a_command_that_ends_is_no_node_whose_connection_has_closed(served: Served) -> None:
    host, connection = await running(served), Connection("10.0.0.9")
    served.let_pass(60.0)
    token = served.service.access.node_credential(host, 1, 1).text()
    scope = {"headers": [(b"authorization", b"Bearer " + token.encode())]}
    path = {"run": "demo", "node": 1}
    state = {"connection": connection}
    command_of_node.admit(Caller(served.service, {**scope, "state": state, "path_params": path}))
    connection.end(CloseReason.FIN)
    await asyncio.sleep(0)
    assert not host.leases.is_in_doubt(served.clock())


@pytest.mark.parametrize(
    ("phase", "allowed", "over", "status", "words"),
    [
        (Phase.RUNNING, False, False, 403, "run 'demo' does not allow remote commands"),
        (
            Phase.VERIFYING,
            True,
            False,
            403,
            "remote commands work only while it is running",
        ),
        (
            Phase.ARMING,
            True,
            False,
            403,
            "is arming: remote commands work only while",
        ),
        (Phase.RUNNING, True, True, 410, "has ended: run 'demo' was cancelled: enough"),
    ],
)
async def test_only_while_a_run_goes_that_allows_it_something_is_passed_on(
    served: Served, phase: Phase, allowed: bool, over: bool, status: int, words: str
) -> None:
    await served.bring_to(phase, DEMO, allow_exec=allowed)
    if over:
        await give(served, 0, start(1, b"echo hi"))
        await served.service.cancel(served.host(DEMO), "enough")
    for answer in (await give(served, 0, end(1, 1)), await take(served, 0)):
        assert answer.problem == (status, "run_over" if over else "forbidden")
        assert words in answer.json["message"]
        assert (answer.json["hint"] == "launch it with --allow-exec") is not allowed


async def test_frames_for_a_node_that_is_gone_are_not_kept(served: Served) -> None:
    await running(served, 3)
    await give(served, 0, start(1, b"true"), start(2, b"true"))
    held = served.host(DEMO).relay
    assert held is not None
    both = held.held_bytes
    await served.report(DEMO, 1, LeaveReport())
    before = held.held_bytes
    assert both == 2 * before > 0
    assert (await give(served, 0, start(1, b"true", number=2))).status == 200
    assert (await give(served, 0, start(19_999, b"true"))).status == 200
    assert held.held_bytes == before
    assert (await take(served, 1)).problem == (403, "forbidden")
    assert (await take(served, 2)).json["seq"] == 1


async def test_the_longest_command_passes_and_a_longer_body_does_not(served: Served) -> None:
    await running(served)
    assert (await give(served, 0, start(1, b"x" * MAX_COMMAND_BYTES))).status == 200
    large = b"{" + b" " * (256 << 10)
    for query in ("relay", "reports"):
        answer = await call(served, "POST", 0, query, large)
        assert answer.problem == (413, "too_large")
    spoilt = {"parcels": [start(1, b"true").model_dump() | {"peer": -1}]}
    assert (await call(served, "POST", 0, body=spoilt)).problem == (400, "bad_request")


async def test_who_waits_for_frames_is_answered_when_the_programs_have_ended(
    served: Served,
) -> None:
    host = await running(served)
    session = (await take(served, 0)).json["session"]
    asked = asyncio.create_task(call(served, "GET", 0, f"relay?session={session}"))
    assert await is_waiting(asked)
    before = host.relay
    for slot in (0, 1):
        await served.report(DEMO, slot, ExitReport(epoch=1, exit_code=0))
    await asyncio.wait_for(asked, 5)
    assert before is not None
    assert (before.closed, host.relay) == (True, None)


async def test_each_of_several_who_wait_is_woken_by_its_own_frame() -> None:
    kept = Relay()
    waiting = {s: asyncio.create_task(kept.take(s, 0, kept.session)) for s in (1, 2, 3)}
    for task in waiting.values():
        assert await is_waiting(task)
    kept.give(0, [end(1, 7), end(3, 9)])
    assert numbers(await asyncio.wait_for(waiting[1], 5)) == [7]
    assert numbers(await asyncio.wait_for(waiting[3], 5)) == [9]
    assert await is_waiting(waiting[2])
    kept.close()
    await waiting[2]
