"""The client over a network that is made up, on a clock that jumps."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.dialling import dial
from rendezvous.talk.failures import Fault
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.network import Answer
from rendezvous.wire.errors import Fenced, Mismatch, RdzvError, RequestError, Unavailable
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport
from rendezvous.wire.table import canonical_json
from rendezvous.wire.watch import NodeView
from tests.support.hosts import Host, Hosts, Work, raw, with_client
from tests.support.registry import Launch
from tests.support.virtual_time import run_virtually

WIRE = Path(__file__).parent.parent / "wire"
VIEW: dict[str, Any] = json.loads((WIRE / "NodeView.json").read_text())
VIEW["renewed_port"] = VIEW["restarts"] = None
VIEW["digest"] = hashlib.sha256(canonical_json(VIEW["table"])).hexdigest()


def asked_of(answer: Any, work: Work) -> Any:
    """What comes of a call to a registry that answers this to everything."""
    return with_client({"a": Host(answer=answer)}, work)[0]


# Dialling


def kept(
    hosts: Mapping[str, Host], *names: str, late: tuple[str, ...] = (), replicas: bool = False
) -> tuple[str, float]:
    """The address that is kept, and when."""

    async def connect(client: RegistryClient) -> None:
        client.lines.late += late
        await client.connect()

    return with_client(hosts, connect, *names, replicas=replicas)[1:]


def test_of_those_that_answer_within_a_moment_the_first_is_kept_and_the_others_closed() -> None:
    hosts = {"a": Host(0.1, Fault.REFUSED), "b": Host(0.5), "c": Host(0.3), "d": Host(9.0)}
    assert kept(hosts) == ("http://b", 0.5)
    assert [host.closed for host in hosts.values()] == [1, 0, 1, 1]


def test_where_an_answer_was_late_is_dialled_later() -> None:
    hosts = {"a": Host(), "b": Host(0.2)}
    assert kept(hosts, late=("a",)) == ("http://b", 0.2)
    assert hosts["a"].asked == []


def test_the_addresses_of_a_name_are_dialled_one_after_another() -> None:
    hosts = {"n1": Host(1.0, Fault.FILTERED), "n2": Host(0.5), "n3": Host()}
    assert kept(hosts, "n") == ("http://n2", 1.5)
    assert hosts["n3"].asked == []


def test_the_addresses_of_a_name_are_dialled_at_its_own_port() -> None:
    hosts = {"n1:7": Host(0.0, Fault.REFUSED), "n2:7": Host()}
    assert kept(hosts, "n:7") == ("http://n2:7", 0.0)


@pytest.mark.parametrize(
    ("answers_at", "used", "dialled_at"),
    [
        ([0.1, 0.0, 0.0], ("http://a", 0.1), [[0.0], [], []]),
        ([0.4, 0.0, 0.0], ("http://b", 0.25), [[0.0], [0.25], []]),
        ([0.4, 9.0, 9.0], ("http://a", 0.4), [[0.0], [0.25], []]),
        ([-0.1, 0.2, 0.0], ("http://b", 0.3), [[0.0], [0.1], []]),
        ([9.0, -0.1, 0.0], ("http://c", 0.5), [[0.0], [0.25], [0.5]]),
        ([-0.3, -0.1, 0.0], ("http://c", 0.35), [[0.0], [0.25], [0.35]]),
    ],
)
def test_replicas_are_dialled_a_moment_after_each_other_or_once_those_before_have_failed(
    answers_at: list[float], used: tuple[str, float], dialled_at: list[list[float]]
) -> None:
    """One that answers at -0.1 fails after a tenth of a second."""
    made = [Host(abs(at), Fault.REFUSED if at < 0 else None) for at in answers_at]
    base, at = kept(dict(zip("abc", made, strict=True)), replicas=True)
    assert base == used[0]
    assert at == pytest.approx(used[1])
    assert [host.dialled_at for host in made] == [pytest.approx(at) for at in dialled_at]
    assert [len(host.dialled_at) - host.closed for host in made] == [
        int(f"http://{name}" == base) for name in "abc"
    ]


def test_a_replica_that_was_of_no_use_is_dialled_last() -> None:
    hosts = {name: Host() for name in "abc"}
    assert kept(hosts, late=("a",), replicas=True) == ("http://b", 0.0)
    assert kept(hosts, late=("a", "c", "b"), replicas=True) == ("http://a", 0.0)
    assert [len(host.asked) for host in hosts.values()] == [1, 1, 0]


def test_an_address_that_makes_the_client_stumble_is_told_as_well() -> None:
    host = Host()
    host.dialled_at = None  # type: ignore[assignment]
    with pytest.raises(Unavailable, match=r"no registry at port 29600 of a \(a: .*'append'\)"):
        kept({"a": host})


def test_dialling_that_is_given_up_leaves_no_connection_behind() -> None:
    async def give_up(client: RegistryClient) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.connect(), 3)

    host = Host(9.0)
    with_client({"a": host}, give_up)
    assert host.closed == 1


# A line that fails, or on which an answer is late


POLL = "/v1/runs/r/nodes/0/watch?after=0&wait=0.1"


async def watch(client: RegistryClient) -> NodeView:
    return await client.watch("r", 0, 0, 0.1)


async def join(client: RegistryClient) -> Any:
    return await client.join("r", Launch("r").join(0))


async def leave(client: RegistryClient) -> Any:
    return await client.report("r", 0, LeaveReport())


async def runs(client: RegistryClient) -> Any:
    return await client.runs()


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (watch, VIEW),
        (join, json.loads((WIRE / "JoinReply.json").read_text())),
        (leave, {"seq": 3}),
    ],
)
def test_a_nodes_request_is_sent_again_while_its_answer_is_late(
    ask: Callable[[RegistryClient], Awaitable[Any]], answer: dict[str, Any]
) -> None:
    reply, _, at = with_client({"a": Host(answer=answer, deaf=1)}, ask)  # type: ignore[arg-type]
    assert (reply.seq, 1.0 <= at < 1.2) == (answer["seq"], True)


@pytest.mark.parametrize(
    ("ask", "sent"),
    [
        (watch, [(0.0, 4.4), (1.1, 4.4), (1.6, 4.4)]),
        (join, [(0.0, 4.0), (1.0, 4.0), (1.5, 4.0)]),
        (leave, [(0.0, 4.0), (1.0, 4.0), (1.5, 4.0)]),
        (runs, [(0.0, 1.0)]),
    ],
)
def test_when_a_request_is_sent_again_and_how_long_each_may_take(
    ask: Work, sent: list[tuple[float, float]]
) -> None:
    """A try is late after the seconds of a request, the next one after half of them."""
    host = Host()

    async def work(client: RegistryClient) -> None:
        await client.connect()
        host.forgotten = 99
        with pytest.raises(Unavailable):
            await ask(client)

    with_client({"a": host}, work)
    assert [(round(at, 2), round(seconds, 2)) for at, seconds in host.sent[:3]] == sent


def test_an_address_where_an_answer_is_late_is_left_for_another() -> None:
    """Small messages may pass there, as those that are dialled with, and large ones vanish."""
    hosts = {"a": Host(deaf=99), "b": Host(0.1, answer=VIEW)}
    view, base, _ = with_client(hosts, watch)
    assert (view.seq, base) == (VIEW["seq"], "http://b")


def test_where_an_answer_was_late_is_dialled_again_a_quarter_of_the_time_out_later() -> None:
    hosts = {name: Host(0.1, Fault.SILENT) for name in "abc"}

    async def work() -> None:
        place, began = RegistryPlace(tuple("abc"), 29600), asyncio.get_running_loop().time()
        with pytest.raises(Unavailable):
            await dial(Hosts(hosts), place, lambda *_: None, late="xb", seconds=2.0)
        for host in hosts.values():
            host.dialled_at = [at - began for at in host.dialled_at]

    run_virtually(work())
    assert [host.dialled_at for host in hosts.values()] == [[0.0], [0.5], [0.0]]


def test_what_is_late_is_asked_on_a_new_connection() -> None:
    """What has forgotten one connection of a host has forgotten the idle ones as well."""
    host = Host(answer=VIEW)

    async def work(client: RegistryClient) -> tuple[float, int]:
        await client.connect()
        host.forgotten = host.lines
        await watch(client)
        at = asyncio.get_running_loop().time()
        await watch(client)
        return at, host.lines

    (at, lines), _, _ = with_client({"a": host}, work)
    assert [request.target for request, _ in host.asked] == ["/healthz", POLL, POLL]
    assert (at, lines, host.closed) == (pytest.approx(1.1), 2, 1)


def test_a_line_on_which_somebody_waits_is_kept_though_another_answer_was_late() -> None:
    host = Host(answer={"seq": 3}, held={POLL.replace("0.1", "9")})

    async def work(client: RegistryClient) -> list[tuple[int, int]]:
        await client.connect()
        poll = asyncio.create_task(client.watch("r", 0, 0, 9.0))
        await asyncio.sleep(0.1)
        host.forgotten = host.lines
        await leave(client)
        seen = [(host.lines, host.closed)]
        host.answer = VIEW
        host.held.clear()
        await poll
        return [*seen, (host.lines, host.closed)]

    # The poll shows that its line is good, and the other one is not needed.
    assert with_client({"a": host}, work)[0] == [(2, 0), (2, 1)]


def test_a_line_that_answers_late_is_used_on() -> None:
    host = Host(answer=VIEW, held={POLL})

    async def work(client: RegistryClient) -> tuple[int, int]:
        await client.connect()
        poll = asyncio.create_task(watch(client))
        await asyncio.sleep(1.2)  # there are two lines by now, and the first one answers first
        host.held.clear()
        await poll
        await watch(client)
        return host.lines, host.closed

    assert with_client({"a": host}, work)[0] == (2, 1)


def test_no_more_lines_are_made_than_are_asked_on() -> None:
    host = Host(answer=VIEW)

    async def work(client: RegistryClient) -> int:
        await client.connect()
        host.forgotten = 1_000
        with pytest.raises(Unavailable):
            await watch(client)
        return host.lines

    assert with_client({"a": host}, work)[0] == 3


def test_a_poll_outlives_refused_connections_and_does_not_hammer() -> None:
    host = Host()

    async def work(client: RegistryClient) -> None:
        await client.connect()
        poll = asyncio.create_task(watch(client))
        await asyncio.sleep(0.5)
        host.refuses = True
        await asyncio.sleep(3.0)
        assert not poll.done()
        host.answer = VIEW
        assert (await poll).seq == VIEW["seq"]

    with_client({"a": host}, work)
    assert len(host.dialled_at) > 3
    gaps = [later - one for one, later in itertools.pairwise(host.dialled_at)]
    assert min(gaps) > 0.19


def test_a_registry_that_answers_at_another_address_is_found_again() -> None:
    hosts = {"a": Host(answer={"runs": []}), "b": Host(0.2, answer={"runs": []})}

    async def work(client: RegistryClient) -> None:
        assert await client.runs() == []
        assert client.base == "http://a"
        hosts["a"].refuses = True
        with pytest.raises(Unavailable, match=r"http://a: connection refused"):
            await client.runs()
        assert await client.runs() == []

    assert with_client(hosts, work)[1] == "http://b"


def test_after_a_new_dial_the_old_line_is_kept_until_the_new_one_has_answered() -> None:
    host = Host(answer={"runs": []})

    async def work(client: RegistryClient) -> None:
        await client.runs()
        client.lines.dial_again = True
        await client.runs()

    with_client({"a": host}, work)
    seen = [(request.target, closed) for request, closed in host.asked[2:]]
    assert (seen, host.closed) == ([("/healthz", 0), ("/v1/runs", 0)], 1)


END = ExitReport(epoch=1, exit_code=3, age_seconds=1.0)


async def report_end(client: RegistryClient) -> Any:
    return await client.report("r", 0, END)


async def watch_with_end(client: RegistryClient) -> Any:
    return await client.watch("r", 0, 7, 0.0, END)


@pytest.mark.parametrize(
    ("work", "answer", "path"),
    [(report_end, {"seq": 3}, "reports"), (watch_with_end, VIEW, "watch?after=7&wait=0")],
)
def test_an_exit_is_as_old_as_it_is_when_it_is_told_again(
    work: Work, answer: dict[str, Any], path: str
) -> None:
    """Else a failure whose first report was lost, or took long to dial, would count as later than
    what it caused."""
    host = Host(0.5, answer=answer, deaf=1)
    with_client({"a": host}, work)
    targets = {(request.method, request.target) for request, _ in host.asked[1:]}
    assert targets - {("GET", "/healthz")} == {("POST", f"/v1/runs/r/nodes/0/{path}")}
    told = [json.loads(request.body or b"") for request, _ in host.asked if request.body]
    assert [report["age_seconds"] for report in told] == pytest.approx([1.5, 2.0], abs=0.1)


# Answers


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (raw(409, {"code": "fenced", "message": "gone", "colour": "new"}), Fenced, "gone"),
        (raw(418, {"code": "teapot", "message": "short"}), RequestError, "short"),
        (
            raw(425, {"code": "early", "message": "wait", "retryable": True}),
            Unavailable,
            "wait",
        ),
        (raw(502, b"<html>Bad\x1b[0m"), Unavailable, "the registry answered 502: b'<html>"),
        (raw(500, b""), Unavailable, "the registry answered 500"),
        (raw(200, b"<html>"), Unavailable, "the registry's answer is not a valid RunList"),
        (
            raw(200, {"runs": [{"run": 1}]}),
            Unavailable,
            "the registry's answer is not a valid RunList",
        ),
    ],
)
def test_a_refusal_is_its_codes_error_and_what_is_not_known_is_told(
    answer: Answer, error: type[RdzvError], words: str
) -> None:
    with pytest.raises(RdzvError) as refusal:
        asked_of(answer, runs)
    assert type(refusal.value) is error
    assert refusal.value.message.startswith(words)
    assert "\x1b" not in refusal.value.message


def test_a_refusal_has_its_hint_and_the_word_that_differs() -> None:
    problem = {"code": "mismatch", "message": "m", "hint": "look there", "command_word": 3}
    with pytest.raises(Mismatch) as refusal:
        asked_of(raw(409, problem), join)
    assert (refusal.value.hint, refusal.value.command_word) == ("look there", 3)


def spoilt(**changes: Any) -> dict[str, Any]:
    """The view, with changes to its table."""
    return VIEW | {"table": VIEW["table"] | changes}


@pytest.mark.parametrize(
    "view",
    [
        spoilt(master_port=29501),
        spoilt(rows=VIEW["table"]["rows"][:1]),
        spoilt(rows=VIEW["table"]["rows"][::-1]),
        spoilt(colour="red"),
        VIEW | {"digest": ""},
    ],
)
def test_a_table_that_does_not_fit_its_digest_is_refused(view: dict[str, Any]) -> None:
    assert asked_of(VIEW, watch).digest == VIEW["digest"]
    with pytest.raises(Unavailable, match=r"the table received has digest [0-9a-f]{12}, not "):
        asked_of(view, watch)


def test_a_node_tells_the_table_that_it_has_where_programs_may_start_again() -> None:
    table = NodeView.model_validate_json(json.dumps(VIEW)).table
    assert table is not None
    renewed = table.renewed(2, 29_501)
    again = {"restarts": 0, "max_restarts": 1, "last_failure": ""}
    whole = VIEW | {"restarts": again}
    short = whole | {"table": None, "epoch": 2, "digest": renewed.digest(), "renewed_port": 29_501}
    host = Host()

    async def work(client: RegistryClient) -> None:
        for answer in (VIEW, whole, short | {"digest": "0" * 64}, whole, short):
            host.answer = answer
            with contextlib.suppress(Unavailable):
                views.append(await watch(client))
        for warm in (False, True):
            ack = AckReport(epoch=2, digest=renewed.digest(), warm=warm)
            await client.watch("r", 0, 7, 0.1, ack)

    views: list[NodeView] = []
    with_client({"a": host}, work)
    assert views[-1].table == renewed
    targets = [request.target for request, _ in host.asked if request.target != "/healthz"]
    first, second, digest = ".../watch?after=0&wait=0.1", VIEW["digest"], renewed.digest()
    assert [target.replace("/v1/runs/r/nodes/0", "...") for target in targets] == [
        first,  # it has none yet
        first,  # those programs start once
        f"{first}&has={second}",
        first,  # what was to renew it did not fit: the whole is asked for
        f"{first}&has={second}",
        f".../watch?after=7&wait=0.1&epoch=2&ack={digest}",
        f".../watch?after=7&wait=0.1&epoch=2&ack={digest}&warm=1",
    ]


@pytest.mark.parametrize(
    ("poll", "said"), [(2.0, "2"), (0.1, "0.1"), (4.337, "4.34"), (10.0, "10"), (700.0, "600")]
)
def test_a_node_says_how_long_it_expects_to_wait(poll: float, said: str) -> None:
    host = Host(answer=VIEW)

    async def work(client: RegistryClient) -> None:
        await client.watch("r", 0, 3, poll, question=5)

    with_client({"a": host}, work)
    assert host.asked[-1][0].target == f"/v1/runs/r/nodes/0/watch?after=3&question=5&wait={said}"


def test_keys_of_a_newer_registry_do_not_break_the_digest() -> None:
    view = copy.deepcopy(VIEW) | {"colour": "new"}
    view["table"] |= {"fabric": {"kind": "ib"}, "alias": ["é", None]}
    view["table"]["rows"][0]["gpu"] = "H200"
    view["digest"] = hashlib.sha256(canonical_json(view["table"])).hexdigest()
    received = asked_of(view, watch)
    assert received.digest == view["digest"]
    assert [row.hostname for row in received.table.rows] == ["gpu-node-16", "gpu-node-17"]


def test_a_view_of_an_unknown_phase_is_no_answer_of_a_registry() -> None:
    with pytest.raises(
        Unavailable, match="the registry's answer is not a valid NodeView"
    ) as refusal:
        asked_of(VIEW | {"phase": "levitating"}, watch)
    assert refusal.value.hint.startswith("another program")


def test_the_credential_is_not_in_the_repr_of_a_client() -> None:
    token = Launch("r").token(0).text()
    assert token not in repr(RegistryClient(RegistryPlace(("a",), 1), token))
