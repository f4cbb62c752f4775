"""The benchmark measures what it says: real nodes, checked tables, rows in the form asked for."""

from __future__ import annotations

import gzip
import json
import socket
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

import bench.__main__ as program
from bench import mesh, rows
from bench.crowd import Answer, Crowd, State, TableCheck, WrongAnswer
from bench.meeting import meeting
from bench.offer import make_join
from bench.rows import Figure, Report, Row, row
from rendezvous.proof.networks import classes_of
from rendezvous.proof.rdma import RdmaExpectation
from rendezvous.run.arming import make_table
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.macs import row_is_genuine
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.table import EndpointTable

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


def test_the_table_is_compared_with_what_was_measured_in_the_same_run() -> None:
    rows = [
        row("rdzv", 8, "last_to_all", [1.0], journal="memory"),
        row("rdzv", 8, "last_to_all", [3.0], journal="sqlite"),
        row("rdzv", 8, "assembly", [9.0], journal="sqlite"),
        row("rdzv", 128, "last_to_all", [8.0], journal="sqlite"),
        row("rdzv-tls", 8, "last_to_all", [6.0], journal="sqlite"),
        row("tcpstore", 8, "last_to_all", [2.0]),
        row("tcpstore", 128, "last_to_all", [32.0]),
    ]
    found = [(one.what, one.nodes, one.value, one.target) for one in program.ratios(rows)]
    assert found == [
        ("table_by_tcpstore", 8, 1.5, 2.5),
        ("table_by_tcpstore", 128, 0.25, None),
        ("tls_by_plain", 8, 2.0, 1.5),
    ]


@pytest.mark.real_time
def test_every_node_of_a_real_registry_gets_the_table_and_the_go() -> None:
    with meeting(4, tls=True, journal="sqlite", processes=2) as met:
        met.open()
        found = [met.last_to_all(1), met.assembly(1), met.first_assembly()]
    for times in found:
        assert [len(times.table), len(times.go), len(times.cpu)] == [1, 1, 1]
        assert 0 < times.table[0] <= times.go[0]


@pytest.mark.nightly
@pytest.mark.real_time
def test_nodes_prove_all_their_addresses_before_they_have_the_table() -> None:
    (made,) = mesh.verify(4, 1)
    assert (made.system, made.nodes, made.what, made.rounds) == ("rdzv", 4, "verify", 1)
    assert made.median_ms > 0
    assert made.note.startswith("12 probes, ")


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


def test_a_row_has_the_median_and_of_few_rounds_the_largest_as_p99() -> None:
    made = row("rdzv", 8, "last_to_all", [3.0, 1.0, 2.004, 9.0], journal="sqlite")
    assert (made.median_ms, made.p99_ms, made.rounds) == (2.5, 9.0, 4)


def test_rows_and_figures_are_written_with_the_mode_and_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ROWS", "FIGURES"):
        monkeypatch.setattr(rows, name, tmp_path / name)
    monkeypatch.setattr(rows, "OUT", tmp_path)
    report = Report("a machine", "quick")
    report.add(Row("c10d", 8, "assembly", 1.0, 2.0, 3, note="slow"), 7.04)
    report.add(Figure("idle_rss", 8, 300.0, "MB", 200), 1.0)
    report.write()
    added = {"note": "quick, slow", "machine": "a machine", "others_percent": 7.0}
    expected = asdict(Row("c10d", 8, "assembly", 1.0, 2.0, 3)) | added
    assert json.loads((tmp_path / "ROWS").read_text()) == [expected]
    assert json.loads((tmp_path / "FIGURES").read_text())[0]["note"] == "quick"
    printed = capsys.readouterr().out.splitlines()
    assert "others used 7 % of the machine" in printed[0]
    assert "MISSED" in printed[1]


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH", "fast")
    with pytest.raises(SystemExit, match="'quick' is known"):
        program.main()


def test_a_round_that_never_ended_is_said_and_not_counted() -> None:
    made = row("c10d", 64, "assembly", [900.0, float("inf"), 1100.0], note="bare")
    assert (made.median_ms, made.rounds) == (1000.0, 2)
    assert made.note == "1 of 3 rounds never ended; bare"
    with pytest.raises(statistics.StatisticsError, match="c10d at 64 nodes: 1 of 1 rounds never"):
        row("c10d", 64, "assembly", [float("inf")])
