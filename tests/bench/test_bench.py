"""The benchmark measures what it says: real nodes, checked tables, rows in the form asked for."""

from __future__ import annotations

import gzip
import json
import socket
import statistics
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

import bench.__main__ as program
from bench import browser, mesh, rows
from bench.crowd import Answer, Crowd, State, TableCheck, WrongAnswer, make_join
from bench.meeting import meeting
from bench.rows import Report, Row, row
from rendezvous.proof.networks import classes_of
from rendezvous.proof.rdma import RdmaExpectation
from rendezvous.run.arming import make_table
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.macs import row_is_genuine
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.table import EndpointTable
from tests.support.nightly import but_at_night

KEYS = RunKeys(b"secret", "run", "launch01")


def table(nodes: int = 4) -> EndpointTable:
    joins = [make_join(KEYS, slot) for slot in range(nodes)]
    classes = classes_of(joins)
    assert isinstance(classes, list)
    return make_table("run", "launch01", 1, joins, classes[0], RdmaExpectation(""), 29_500, {})


def answer(**changes: Any) -> bytes:
    sealed = table()
    view = {"seq": 2, "phase": "arming", "epoch": 1, "reason": "", "poll_seconds": 2.0}
    view |= {"digest": sealed.digest(), "table": sealed.model_dump(exclude_none=True)}
    return json.dumps(view | changes).encode()


@pytest.mark.real_time
def test_every_node_of_a_real_registry_gets_the_table_and_the_go() -> None:
    with meeting(4, tls=True, processes=2) as met:
        met.open()
        found = [met.last_to_all(1), met.first_assembly()]
    for times in found:
        assert [len(times.table), len(times.go)] == [1, 1]
        assert 0 < times.table[0] <= times.go[0]


@pytest.mark.real_time
@pytest.mark.parametrize("at_once", but_at_night([True, False], True))
def test_all_nodes_of_a_real_registry_start_again_as_often_as_asked(at_once: bool) -> None:
    with meeting(4, tls=True, processes=2) as met:
        met.open()
        started, again = met.restarts(2, 3, at_once=at_once)
    assert (len(started.go), len(again)) == (2, 6)
    assert min(*started.go, *again) > 0


@pytest.mark.real_time
def test_what_nodes_tell_while_they_run_is_marked_in_turn() -> None:
    with meeting(2) as met:
        met.open()
        with met.running():
            told = met.tell(100.0, 0.03) + met.tell(100.0, 0.01)
    assert [mark for mark, _, _ in told] == [1, 2, 3, 4]
    assert all(sent < answered for _, sent, answered in told)


@pytest.mark.nightly
@pytest.mark.real_time
def test_nodes_prove_all_their_addresses_before_they_have_the_table() -> None:
    made, off = mesh.verify(4, 1)
    assert (made.what, made.nodes, made.rounds, made.note) == ("verify", 4, 1, "12 probes")
    assert min(made.median, off.median) > 0


def received(body: bytes, *, zipped: bool = False) -> Answer:
    encoding = b"content-encoding: gzip\r\n" if zipped else b""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%s\r\n" % (len(body), encoding)
    found = Answer.in_bytes(bytearray(head + body))
    assert found is not None
    return found


def test_a_table_is_taken_when_its_digest_is_right_and_no_changed_one_after_it() -> None:
    check = TableCheck()
    for body, zipped in ((answer(), False), (answer(), False), (gzip.compress(answer()), True)):
        assert check.view(received(body, zipped=zipped)).digest == table().digest()
    spoilt = answer().replace(b"worker-2", b"worker-9")  # of the same length
    for body in (spoilt, answer(digest="0" * 64)):
        with pytest.raises(WrongAnswer, match="has digest"):
            check.view(received(body))
        with pytest.raises(WrongAnswer, match="has digest"):
            TableCheck().view(received(body))


@pytest.mark.parametrize("piece", [1, 100, 700, 100_000])
def test_an_answer_in_pieces_is_compared_with_the_known_one_byte_for_byte(piece: int) -> None:
    crowd = Crowd(RegistryPlace(("127.0.0.1",), 1), range(3))
    acted: list[bytes] = []
    crowd._act = lambda node, answer: acted.append(answer.data)  # type: ignore[method-assign]
    known = received(answer())
    crowd._check.view(known)
    changed = received(answer().replace(b"worker-2", b"worker-9"))
    other = received(b"{}")
    for node, one in zip(crowd.nodes.values(), (known, changed, other), strict=True):
        node.state = State.WATCHING
        pieces = [one.data[at : at + piece] for at in range(0, len(one.data), piece)]
        taken = [crowd._take(node, memoryview(data)) for data in pieces]
        assert taken == [False] * (len(pieces) - 1) + [True]
    assert acted == [known.data, changed.data, other.data]


def test_a_simulated_node_asks_again_where_the_registry_cannot_answer_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.crowd.retry_pause", lambda: 0.0)
    crowd = Crowd(RegistryPlace(("127.0.0.1",), 1), range(1))
    node = crowd.nodes[0]
    node.connection, registry = socket.socketpair()
    with node.connection, registry:
        crowd._send(node, b"join", State.JOINING)
        assert registry.recv(100) == b"join"
        head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2"
        crowd._act(node, Answer(head + b"\r\n\r\n{}", head, b"{}"))
        crowd.turn(0.0)
        assert registry.recv(100) == b"join"
        assert node.state is State.JOINING


def test_simulated_nodes_offer_what_a_registry_takes_and_other_nodes_check() -> None:
    join = make_join(KEYS, 70_000 // 4)
    assert TypeAdapter(JoinRequest).validate_json(to_json(join)) == join
    assert all(
        row_is_genuine(r, KEYS.row_key, run="run", launch_id="launch01") for r in table().rows
    )


def test_a_row_has_the_median_and_of_few_rounds_the_largest() -> None:
    made = row("rdzv table", 8, [3.0, 1.0, 2.004, 9.0])
    assert (made.median, made.last, made.rounds, made.unit) == (2.5, 9.0, 4, "ms")


def test_rows_are_printed_and_written_with_the_mode_and_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rows, "ROWS", tmp_path / "out" / "rows.json")
    report = Report("quick")
    report.add(Row("c10d table", 8, 1.0, 2.0, "ms", 3, note="slow"), 7.04)
    report.measure(lambda: [Row("idle registry", 8, 300.0, 300.0, "MB", 1)])
    one, other = json.loads((tmp_path / "out" / "rows.json").read_text())
    assert (one["note"], one["others_percent"], other["note"]) == ("quick, slow", 7.0, "quick")
    assert "others used 7 % of the machine" in capsys.readouterr().out


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH", "fast")
    with pytest.raises(SystemExit, match="'quick' is known"):
        program.main()


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit, match="no part is called 'page'; there are start, registry"):
        program.main("page")


def test_without_a_browser_the_wheel_alone_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "CHROMIUM", "/nowhere/chromium")
    (work,) = program.PARTS["pages"](quick=True)
    assert "the page needs /nowhere/chromium: apt install chromium" in capsys.readouterr().out
    [made] = work()
    assert 0.01 < made.median < 0.2


def test_a_round_that_never_ended_is_said_and_not_counted() -> None:
    made = row("c10d", 64, [900.0, float("inf"), 1100.0], note="bare")
    assert (made.median, made.rounds) == (1000.0, 2)
    assert made.note == "1 of 3 rounds never ended; bare"
    with pytest.raises(statistics.StatisticsError, match="c10d at 64 nodes: 1 of 1 rounds never"):
        row("c10d", 64, [float("inf")])
