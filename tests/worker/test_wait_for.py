"""`rdzv wait-for`: where it looks, when it says that it waits, and how it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.launching import RDZV
from worker.programs import wait_for
from worker.programs.wait_for import Place, Reports, UsageError, find, parse

INSIDE = {"MASTER_ADDR": "10.0.0.1"}


@pytest.mark.parametrize(
    ("words", "place", "limit"),
    [
        (["head:6379"], "head:6379", None),
        (["head:6379", "--timeout", "30"], "head:6379", 30.0),
        (["--timeout=0.5", "h1:80"], "h1:80", 0.5),
    ],
)
def test_the_place_and_the_time_are_read(words: list[str], place: str, limit: float | None) -> None:
    assert parse(words) == (place, limit)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no place to wait for"),
        (["h1:1", "h2:2"], "'h2:2' is not understood"),
        (["-x", "h1:1"], "'-x' is not understood"),
        (["h1:1", "--timeout"], "'--timeout' is not understood"),
        (["h1:1", "--timeout", "soon"], "--timeout soon is not a number of seconds"),
        (["h1:1", "--timeout=-2"], "--timeout -2 is not a number of seconds"),
        (["h1:1", "--timeout=nan"], "--timeout nan is not a number of seconds"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_usage(words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=r"rdzv wait-for \[--timeout SECONDS\] head:PORT") as said:
        parse(words)
    assert str(said.value).startswith(why)


@pytest.fixture
def table(tmp_path: Path) -> dict[str, str]:
    """The environment of a program whose node has its files."""
    file = tmp_path / "table.json"
    rows = [{"node": 0, "address": "10.0.0.1"}, {"node": 1, "address": "fd00::2"}]
    file.write_text(json.dumps({"nodes": rows}))
    return {"RDZV_TABLE": str(file), "MASTER_ADDR": "elsewhere"}


def test_head_and_nodes_are_at_their_addresses_in_the_table(table: dict[str, str]) -> None:
    assert find("head:6379", table) == Place("10.0.0.1", 6379, "head:6379 (10.0.0.1)")
    assert find("node-0:80", table) == Place("10.0.0.1", 80, "node-0:80 (10.0.0.1)")
    assert find("node-1:80", table) == Place("fd00::2", 80, "node-1:80 (fd00::2)")
    with pytest.raises(UsageError, match="node-2 is not in this run: it has 2 nodes, from node-0"):
        find("node-2:80", table)


@pytest.mark.parametrize("text", ["", "[]", '{"nodes": [{}]}', None])
def test_without_a_table_that_can_be_read_the_head_is_master_addr(
    tmp_path: Path, text: str | None
) -> None:
    environ = dict(INSIDE)
    if text is not None:
        (tmp_path / "table.json").write_text(text)
        environ["RDZV_TABLE"] = str(tmp_path / "table.json")
    assert find("head:1", environ) == Place("10.0.0.1", 1, "head:1 (10.0.0.1)")
    assert find("node-3:1", environ) == Place("node-3", 1, "node-3:1")


def test_other_places_are_taken_as_they_are() -> None:
    assert find("h1:80", {}) == Place("h1", 80, "h1:80")
    assert find("[::1]:80", {}) == Place("::1", 80, "[::1]:80")
    assert find("node-x:80", {}) == Place("node-x", 80, "node-x:80")


@pytest.mark.parametrize("text", ["h1", ":80", "h1:", "h1:0", "h1:65536", "h1:٣", "h1:1e3"])
def test_a_place_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        find(text, INSIDE)


def test_outside_of_a_run_nobody_is_the_head() -> None:
    with pytest.raises(UsageError, match="known only in the program of a run's node"):
        find("head:80", {})


@pytest.mark.parametrize(
    ("waited", "said"),
    [
        ([1, 9.9], []),
        ([10.2, 11, 29, 30, 31], [10, 30]),
        ([60, 61], [10, 30]),  # one at a time, each with the time that it was due
        ([*range(1, 1100)], [10, 30, 60, 120, 420, 720, 1020]),
    ],
)
def test_it_is_said_at_growing_intervals_what_is_waited_for(
    waited: list[float], said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(wait_for, "say", heard.append)
    reports, place = Reports(""), Place("10.0.0.1", 80, "head:80 (10.0.0.1)")
    for seconds in waited:
        reports.waited(place, seconds, "Connection refused")
    words = "waiting for head:80 (10.0.0.1), {} s so far; last error: Connection refused"
    assert heard == [words.format(seconds) for seconds in said]
    reports.ended(place)
    assert heard[len(said) :] == ["head:80 (10.0.0.1) accepts connections now"] * bool(said)


@contextmanager
def agent(path: Path) -> Iterator[list[bytes]]:
    """An agent's socket, and what it is told."""
    told: list[bytes] = []

    def hear() -> None:
        with server.accept()[0] as one, one.makefile("rb") as lines:
            told.extend(lines)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=hear)
        thread.start()
        yield told
        thread.join(20)


def test_the_agent_is_told_and_may_be_away(short_path: Path) -> None:
    path = short_path / "agent"
    place = Place("h1", 80, "h1:80")
    with agent(path) as told:
        Reports(str(path)).waited(place, 10, "no answer")
    words = "waiting for h1:80, 10 s so far; last error: no answer"
    assert [json.loads(line) for line in told] == [{"do": "waits", "words": words, "over": False}]
    Reports(str(short_path / "nobody")).waited(place, 10, "no answer")


def rdzv_wait_for(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RDZV, "wait-for", *words], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
    )


def test_it_ends_with_0_once_a_connection_is_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = rdzv_wait_for(f"localhost:{port}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_ends_with_1_where_nobody_came_in_time() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        done = rdzv_wait_for(f"127.0.0.1:{port}", "--timeout", "0.3")
    why = f"127.0.0.1:{port} accepted no connection within 0.3 s; last error: Connection refused"
    assert (done.returncode, done.stderr) == (1, f"rdzv wait-for: {why}\n")


def test_what_cannot_be_waited_for_is_refused() -> None:
    done = rdzv_wait_for("head:80")
    assert done.returncode == 64
    assert "give HOST:PORT here" in done.stderr


def test_a_host_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = ["no answer", "No route to host", ""]
    seconds: list[float] = []
    monkeypatch.setattr(wait_for, "problem_at", lambda place, limit: problems.pop(0))
    monkeypatch.setattr(time, "sleep", seconds.append)
    assert wait_for.wait(Place("h1", 80, "h1:80"), None, Reports("")) == ""
    assert seconds == [0.1, 0.2]
