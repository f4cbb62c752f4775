"""A client of a registry with replicas: it goes where the run is, and trusts nobody on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.failures import Fault
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.moving import next_address
from rendezvous.talk.network import Answer
from rendezvous.wire.errors import Moved, StorageFull, Unavailable
from rendezvous.wire.protocol import PROTOCOL, same_rdzv
from rendezvous.wire.reports import ExitReport
from tests.support.hosts import Host, raw, with_client

STATUS: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "wire" / "RunStatus.json").read_text()
)
PLACE = RegistryPlace(("a", "b:7"), 29_600, "certificate", b"der", replicas=True)
PLAIN = RegistryPlace(("a", "b:7"), 29_600, replicas=True)
TLS = {"trust": "certificate", "proof": b"der"}


def moved(address: str) -> Answer:
    """Another replica has the run."""
    problem = {"code": "moved", "message": "not here", "retryable": True, "address": address}
    return raw(421, problem)


BUSY = raw(503, {"code": "unavailable", "message": "no database", "retryable": True})
LOST = raw(503, b"<html>")
FULL = raw(507, {"code": "storage_full", "message": "full", "retryable": True})


async def status(client: RegistryClient) -> Any:
    return await client.status("r")


async def refused(client: RegistryClient) -> Unavailable:
    with pytest.raises(Unavailable) as refusal:
        await client.status("r")
    return refusal.value


# Where to


@pytest.mark.parametrize("place", [PLACE, PLAIN], ids=["tls", "plain"])
@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("a:29600", "a"),
        ("b:7", "b:7"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("[::1]:1", "[::1]:1"),
        ("localhost:1", "localhost:1"),
    ],
)
def test_it_asks_at_the_places_own_addresses_and_on_this_machine(
    place: RegistryPlace, address: str, asked: str
) -> None:
    assert next_address(place, Moved("x", address=address), ["http://a"]) == asked


@pytest.mark.parametrize("address", ["b:8", "a:7", "10.0.0.9:29600", "[fd00::9]:1"])
def test_elsewhere_it_asks_only_who_can_prove_to_be_the_registry(address: str) -> None:
    told = Moved("x", address=address)
    assert next_address(PLACE, told, ["https://a"]) == address
    with pytest.raises(Unavailable) as refusal:
        next_address(PLAIN, told, ["http://a"])
    assert refusal.value.message == (
        f"http://a: another replica owns the run: {address} is not listed as an address of this "
        "registry, and without TLS anything could answer there"
    )
    assert refusal.value.hint
    assert refusal.value.told


@pytest.mark.parametrize(
    ("address", "been", "words"),
    [
        ("", ["x"], "x: another replica owns the run: it does not say which"),
        ("b", ["x"], "x: another replica owns the run: 'b' is not an address of a registry"),
        ("http://b:7/", ["x"], "x: another replica owns the run: 'http://b:7/' is not an address"),
        ("\x1b[0m:7", ["x"], "x: another replica owns the run: '\\x1b[0m:7' is not an address"),
        ("b:70000", ["x"], "x: another replica owns the run: 'b:70000' is not an address"),
        ("b:7", ["x", "b:7", "x", "b:7"], "x -> b:7 -> x -> b:7: another replica owns the run: no"),
    ],
)
def test_where_nothing_is_to_be_asked_it_is_unavailable(
    address: str, been: list[str], words: str
) -> None:
    with pytest.raises(Unavailable) as refusal:
        next_address(PLACE, Moved("x", address=address), been)
    assert refusal.value.message.startswith(words)
    assert refusal.value.told


def test_a_request_is_sent_on_three_times() -> None:
    told = Moved("x", address="b:7")
    assert next_address(PLACE, told, ["a", "b:7", "a"]) == "b:7"


# There and back


def test_of_replicas_one_that_speaks_the_same_protocol_is_asked() -> None:
    """As while they are upgraded one by one: the others would refuse this client."""
    hosts = {"a": Host(answer=STATUS, speaks=f"{PROTOCOL + 1} 0.9"), "b": Host(answer=STATUS)}
    found, base, _ = with_client(hosts, status, replicas=True)
    assert (found.run, base, hosts["a"].heard) == (STATUS["run"], "http://b", [])
    hosts["b"].speaks = hosts["a"].speaks
    refusal, *_ = with_client(hosts, refused, replicas=True)
    each = f"it speaks protocol {PROTOCOL + 1} (rdzv 0.9), this rdzv speaks protocol {PROTOCOL} ("
    assert refusal.message.count(each) == 2
    assert refusal.hint == same_rdzv("")


def test_a_registry_alone_refuses_for_itself_who_speaks_another_protocol() -> None:
    """So that a run hears of its node."""
    hosts = {"a": Host(answer=STATUS, speaks=f"{PROTOCOL + 1} 0.9")}
    assert with_client(hosts, status)[0].run == STATUS["run"]


def test_a_client_asks_where_the_run_is_and_stays_there() -> None:
    hosts = {"a": Host(answer=moved("b:29600")), "b": Host(answer=STATUS)}

    async def work(client: RegistryClient) -> list[str]:
        return [(await client.status("r")).run for _ in range(3)]

    runs, base, _ = with_client(hosts, work, replicas=True)
    assert (runs, base) == ([STATUS["run"]] * 3, "http://b")
    assert [len(host.heard) for host in hosts.values()] == [1, 3]
    assert [host.closed for host in hosts.values()] == [1, 0]


def test_who_is_asked_next_proves_itself_before_it_hears_anything() -> None:
    hosts = {"a": Host(answer=moved("x:9")), "x:9": Host(fault=Fault.NOT_PROVEN, answer=STATUS)}
    refusal, base, _ = with_client(hosts, refused, "a", **TLS)
    assert (
        refusal.message
        == "no registry at port 9 of x (x:9: it does not hold this run's certif" + ("icate)")
    )
    assert not refusal.told
    assert base == "http://a"
    assert [asked.target for asked, _ in hosts["x:9"].asked] == ["/healthz"] * 2
    assert hosts["x:9"].heard == []
    assert hosts["x:9"].closed == 2


def test_without_tls_nothing_is_sent_to_who_is_not_of_the_registry() -> None:
    hosts = {"a": Host(answer=moved("x:9")), "x:9": Host(answer=STATUS)}
    assert "without TLS" in with_client(hosts, refused, "a")[0].message
    assert hosts["x:9"].asked == []
    assert with_client(hosts, status, "a", **TLS)[1] == "http://x:9"


def test_replicas_that_name_each_other_are_given_up_without_a_pause() -> None:
    hosts = {"a": Host(answer=moved("b:29600")), "b": Host(answer=moved("a:29600"))}
    refusal, _, at = with_client(hosts, refused, replicas=True)
    assert refusal.message == (
        "http://a -> http://b -> http://a -> http://b: another replica owns the run: none of these "
        "says that it does"
    )
    assert (refusal.told, at) == (True, 0.0)
    assert [len(host.heard) for host in hosts.values()] == [2, 2]


def test_where_the_owner_is_dead_who_has_sent_there_is_asked_once_more_and_hears_of_it() -> None:
    """It may have taken the run then; where it names another one, the client goes there."""
    answer = [moved("b:29600"), moved("c:29600")]
    hosts = {"a": Host(answer=answer), "b": Host(fault=Fault.REFUSED), "c": Host(answer=STATUS)}
    found, base, at = with_client(hosts, status, replicas=True)
    assert (found.run, base) == (STATUS["run"], "http://c")
    assert at < 0.1
    assert [len(host.dialled_at) for host in hosts.values()] == [1, 1, 1]
    told = [asked.headers.get("x-rdzv-unreached") for asked in hosts["a"].asked_for_runs]
    assert told == [None, "b:29600"]


def test_where_the_owner_is_dead_all_addresses_are_dialled_again_and_those_two_last() -> None:
    hosts = {
        "a": Host(answer=moved("b:29600")),
        "b": Host(fault=Fault.REFUSED),
        "c": Host(answer=STATUS),
    }

    async def work(client: RegistryClient) -> tuple[Unavailable, Any]:
        return await refused(client), await client.status("r")

    (refusal, found), base, _ = with_client(hosts, work, replicas=True)
    assert refusal.message.startswith("no registry at port 29600 of b (b: connection refused")
    assert (refusal.told, found.run, base) == (False, STATUS["run"], "http://c")
    assert [len(host.dialled_at) for host in hosts.values()] == [1, 2, 1]


def test_the_line_to_the_owner_is_open_until_it_is_spoken_to_on_the_next_one() -> None:
    """It gives up a node that has no connection to it for 1 s, and to dial may take longer."""
    hosts = {"a": Host(answer=moved("b:29600")), "b": Host(2.0, answer=STATUS)}

    async def work(client: RegistryClient) -> None:
        await client.request("GET", "/v1/runs/r")
        client.lines.try_elsewhere()
        await client.request("GET", "/v1/runs/r")

    with_client(hosts, work, replicas=True)
    spoken = [closed for asked, closed in hosts["b"].asked if asked in hosts["b"].asked_for_runs]
    assert spoken == [0, 0]
    assert [host.closed for host in hosts.values()] == [2, 1]


def test_who_has_sent_there_is_not_asked_again_on_a_line_that_was_closed_meanwhile() -> None:
    """Another request has found a replica that serves, and nobody waited on the former line."""
    hosts = {
        "a": Host(answer=moved("b:29600")),
        "b": Host(0.5, Fault.REFUSED),
        "c": Host(answer=STATUS),
    }
    hosts["a"].held.add("/v1/runs/slow?after=-1&wait=0.0")

    async def work(client: RegistryClient) -> tuple[int, Any]:
        waiting = asyncio.create_task(client.status("slow"))
        await asyncio.sleep(0.1)
        client.lines.try_elsewhere()
        other = asyncio.create_task(client.status("r"))
        await asyncio.sleep(0.1)
        hosts["a"].held.clear()
        await other
        return hosts["a"].closed, await waiting

    (closed, found), base, _ = with_client(hosts, work, replicas=True)
    assert (closed, found.run, base) == (1, STATUS["run"], "http://c")


def test_a_line_that_the_client_was_sent_to_is_left_for_those_of_the_place() -> None:
    hosts = {"a": Host(answer=[moved("x:9"), STATUS]), "x:9": Host(answer=STATUS)}

    async def work(client: RegistryClient) -> Unavailable:
        await client.status("r")
        hosts["x:9"].refuses = True
        refusal = await refused(client)
        await client.status("r")
        return refusal

    refusal, base, _ = with_client(hosts, work, "a", **TLS)
    assert refusal.message.startswith("http://x:9: connection refused")
    assert base == "http://a"


def test_two_requests_that_are_sent_on_share_a_line() -> None:
    hosts = {"a": Host(answer=moved("b:29600")), "b": Host(0.1, answer=STATUS)}

    async def work(client: RegistryClient) -> None:
        await asyncio.gather(client.status("r"), client.status("r"), client.status("r"))

    with_client(hosts, work, replicas=True)
    assert [host.lines for host in hosts.values()] == [1, 1]


def test_an_answer_on_the_line_that_was_left_does_not_bring_it_back() -> None:
    """Where the place has one address, the line on which an answer was late is used again."""
    hosts = {"a": Host(answer=[moved("x:9"), STATUS]), "x:9": Host(answer=STATUS)}
    slow = "/v1/runs/slow?after=-1&wait=0.0"
    hosts["a"].held.add(slow)

    async def work(client: RegistryClient) -> None:
        waiting = asyncio.create_task(client.status("slow"))
        await asyncio.sleep(0.1)
        await client.status("r")
        hosts["a"].held.clear()
        await waiting

    assert with_client(hosts, work, "a", **TLS)[1] == "http://x:9"


def test_an_exit_that_is_sent_on_is_older_there() -> None:
    hosts = {"a": Host(answer=moved("b:29600")), "b": Host(0.5, answer={"seq": 1})}

    async def work(client: RegistryClient) -> None:
        await client.report("r", 0, ExitReport(epoch=1, exit_code=3, age_seconds=1.0))

    with_client(hosts, work, replicas=True)
    told = [json.loads(asked.body or b"")["age_seconds"] for host in hosts.values()
            for asked, _ in host.asked if asked.body]  # fmt: skip
    assert told == pytest.approx([1.0, 1.5])


EVENT = json.loads((Path(__file__).parent.parent / "wire" / "EventLine.json").read_text())


def test_the_events_are_read_where_the_run_is() -> None:
    events = Answer(200, {}, json.dumps(EVENT).encode() + b"\n\n")
    hosts = {"a": Host(answer=moved("b:29600")), "b": Host(answer=events)}

    async def work(client: RegistryClient) -> list[int]:
        return [line.number async for line in client.events("r")]

    assert with_client(hosts, work, replicas=True)[:2] == ([EVENT["number"]], "http://b")
    assert [host.closed for host in hosts.values()] == [1, 0]


# Not now


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (BUSY, True),
        (FULL, True),
        (LOST, False),
        (raw(500, {"code": "internal", "message": "a fault"}), False),
        (raw(503, {"code": "newer", "message": "later", "retryable": True}), True),
    ],
)
def test_a_registry_that_says_not_now_is_there(answer: Answer, told: bool) -> None:
    async def work(client: RegistryClient) -> bool:
        try:
            await client.status("r")
        except (Unavailable, StorageFull) as exc:
            return exc.told
        except Exception as exc:  # noqa: BLE001 (its class is of no account here)
            return bool(getattr(exc, "told", False))
        return False

    assert with_client({"a": Host(answer=answer)}, work)[0] is told


@pytest.mark.parametrize(
    ("answer", "replicas", "base"),
    [
        (BUSY, True, "http://b"),
        (BUSY, False, "http://a"),
        (LOST, True, "http://a"),
        (FULL, True, "http://a"),
    ],
)
def test_after_a_replica_that_cannot_serve_now_another_one_is_asked(
    answer: Answer, replicas: bool, base: str
) -> None:
    hosts = {"a": Host(answer=[answer, STATUS]), "b": Host(answer=STATUS)}

    async def work(client: RegistryClient) -> None:
        with pytest.raises((Unavailable, StorageFull)):
            await client.status("r")
        await client.status("r")

    assert with_client(hosts, work, replicas=replicas)[1] == base


def test_replicas_that_cannot_serve_now_are_asked_in_turn_and_then_each_for_a_while() -> None:
    """5,000 nodes that ask three times a second must not open as many connections."""
    hosts = {name: Host(answer=BUSY) for name in "abc"}

    async def work(client: RegistryClient) -> str:
        asked = ""
        for _ in range(20):
            await refused(client)
            asked += client.base[-1]
            await asyncio.sleep(1.0)
        return asked

    assert with_client(hosts, work, replicas=True)[0] == "abccccccaaaaaabbbbbb"
    assert [host.lines for host in hosts.values()] == [2, 2, 1]


def test_after_an_answer_a_replica_that_could_not_serve_is_as_good_as_any() -> None:
    hosts = {"a": Host(answer=[BUSY, STATUS]), "b": Host(answer=[STATUS, BUSY, STATUS])}

    async def work(client: RegistryClient) -> str:
        asked = ""
        for _ in range(6):
            with contextlib.suppress(Unavailable):
                await client.status("r")
            asked += client.base[-1]
        return asked

    assert with_client(hosts, work, replicas=True)[0] == "abbaaa"


# The list of runs


def listed(*runs: str, version: int = 1, others: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"runs": [STATUS | {"run": run, "version": version} for run in runs], "others": others}


async def runs(client: RegistryClient) -> list[tuple[str, int]]:
    return [(found.run, found.version) for found in await client.runs()]


def test_the_runs_of_all_replicas_are_one_list() -> None:
    hosts = {
        "a": Host(answer=listed("z", "b", others=("b:29600", "x:9"))),
        "b": Host(answer=listed("a", others=("c:9",))),
        "x:9": Host(answer=listed("c", "b", version=2)),
    }
    found, base, _ = with_client(hosts, runs, "a", "b", replicas=True, **TLS)
    assert found == [("a", 1), ("b", 2), ("c", 2), ("z", 1)]
    assert base == "http://a"
    assert [host.closed for host in hosts.values()] == [0, 1, 1]


def test_the_runs_of_one_registry_are_in_its_order() -> None:
    assert with_client({"a": Host(answer=listed("z", "b"))}, runs)[0] == [("z", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("other", "host", "words"),
    [
        ("b:29600", Host(fault=Fault.REFUSED), "the replica at b:29600: no registry at port 29600"),
        ("b:29600", Host(answer=BUSY), "the replica at b:29600: no database"),
        ("x:9", Host(), "x:9 is not listed as an address of this registry"),
    ],
)
def test_without_one_of_the_replicas_there_is_no_list(other: str, host: Host, words: str) -> None:
    hosts = {"a": Host(answer=listed("r", others=(other,))), "b": host}
    with pytest.raises(Unavailable) as refusal:
        with_client(hosts, runs, replicas=True)
    assert refusal.value.message.startswith(words)


def test_what_could_not_be_reached_is_told_until_an_answer_comes() -> None:
    hosts = {
        "a": Host(answer=[moved("b:29600"), BUSY, STATUS]),
        "b": Host(fault=Fault.FILTERED),
    }

    async def work(client: RegistryClient) -> None:
        await refused(client)
        for _ in range(2):
            await client.status("r")

    with_client(hosts, work, "a", **TLS)
    told = [asked.headers.get("x-rdzv-unreached") for asked in hosts["a"].asked_for_runs]
    assert told == [None, "b:29600", "b:29600", None]


def test_a_line_to_another_replica_than_the_owner_is_left_and_of_one_machine_it_stays() -> None:
    hosts = {"a": Host(answer=STATUS), "b": Host(answer=STATUS)}

    async def work(client: RegistryClient) -> list[object]:
        said: list[object] = [client.lines.is_elsewhere("http://b")]  # it has none yet
        await client.status("r")
        said += [client.lines.is_elsewhere(client.base), client.lines.dial_again]
        said += [client.lines.is_elsewhere("http://b") for _ in range(2)]
        said += [client.lines.dial_again, client.lines.late]
        await client.status("r")
        return [*said, client.base]

    said, _, _ = with_client(hosts, work, replicas=True)
    assert said == [False, False, False, True, True, True, ["a"], "http://b"]
    said, _, _ = with_client(hosts, work)
    assert said == [False, False, False, False, False, False, [], "http://a"]


def test_a_late_status_is_asked_for_at_another_replica_meanwhile() -> None:
    hosts = {"a": Host(), "b": Host(answer=STATUS)}

    async def work(client: RegistryClient) -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        await client.status("r", wait=1.0)
        return clock() - began

    seconds, base, _ = with_client(hosts, work, replicas=True)
    assert 2.0 <= seconds < 3.0  # it waits for 1 s, and for one more
    assert base == "http://b"
