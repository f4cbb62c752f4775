"""The file that people copy: it tells its agent, and whatever happens, training goes on."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from worker.program.local_socket import LocalSocket, Request

FILE = Path(__file__).parent.parent.parent / "examples" / "rdzv_metrics.py"
RANKS = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
PLACES = ("NODE_RANK", "LOCAL_RANK", "NPROC_PER_NODE")


@pytest.fixture
def rdzv_metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A fresh copy, in a process that nobody has told anything."""
    for name in (*RANKS, *PLACES, "RDZV_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("rdzv_metrics", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if module._connection is not None:
        module._connection.close()


@pytest.fixture
def agent(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket in the place of the agent's."""
    monkeypatch.setenv("RDZV_SOCKET", str(short_path / "s"))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(short_path / "s"))
        sock.listen(8)
        sock.settimeout(10)
        yield sock


def read_lines(agent: socket.socket, most: int | None = None) -> list[dict[str, Any]]:
    """What the next caller says, or so many lines of it."""
    connection, _ = agent.accept()
    with connection, connection.makefile("rb") as file:
        return [json.loads(line) for line in itertools.islice(file, most)]


def test_outside_a_run_nothing_happens(rdzv_metrics: ModuleType) -> None:
    assert rdzv_metrics.send(1, loss=0.5) is False
    assert rdzv_metrics._connection is None


def test_a_row_is_one_line_of_json(
    rdzv_metrics: ModuleType, agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    values = {"eval/loss": np.float32(0.5), "bad name\n": 1}
    assert rdzv_metrics.send(np.int64(7), values, lr=1e-4) is True
    assert rdzv_metrics.send(8, rank=5) is True
    told = {"eval/loss": 0.5, "bad_name_": 1.0, "lr": 0.0001}
    assert read_lines(agent, 2) == [
        {"do": "metrics", "rank": 3, "step": 7, "values": told},
        {"do": "metrics", "rank": 5, "step": 8, "values": {}},
    ]


def test_a_loss_that_is_no_number_is_seen(rdzv_metrics: ModuleType, agent: socket.socket) -> None:
    odd = {"norm": float("inf"), "low": -float("inf"), "x" * 80: float("nan")}
    rdzv_metrics.send(1, odd, loss=float("nan"))
    values = read_lines(agent, 1)[0]["values"]
    assert values == {
        "loss/not_finite": 1.0,
        "norm/not_finite": 2.0,
        "low/not_finite": -2.0,
        f"{'x' * 53}/not_finite": 1.0,
    }
    assert max(map(len, values)) == 64


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, 0),
        ({"NODE_RANK": "4"}, 4),
        ({"NODE_RANK": "4", "NPROC_PER_NODE": "8"}, 4),
        ({"NODE_RANK": "4", "NPROC_PER_NODE": "8", "LOCAL_RANK": "3"}, 35),
        ({"LOCAL_RANK": "1"}, 1),
        ({"RANK": "9", "NODE_RANK": "4", "NPROC_PER_NODE": "8", "LOCAL_RANK": "3"}, 9),
        ({"NODE_RANK": "4", "PMI_RANK": "9"}, 9),
        ({"OMPI_COMM_WORLD_RANK": "2", "SLURM_PROCID": "1"}, 2),
        ({"RANK": "x", "HOROVOD_RANK": "5"}, 5),
    ],
    ids=str,
)
def test_the_rank_is_the_launcher_s(
    variables: dict[str, str], rank: int, rdzv_metrics: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rdzv_metrics.own_rank() == rank


def test_an_agent_that_is_deaf_holds_nobody_up(
    rdzv_metrics: ModuleType, agent: socket.socket
) -> None:
    values = {f"{'x' * 50}{n}": 1.0 for n in range(32)}
    sent = [rdzv_metrics.send(step, values) for step in range(2_000)]
    assert (sent[0], sent[-1]) == (True, False)
    assert read_lines(agent, 1)[0]["step"] == 0


def test_a_gone_agent_and_a_folder_in_its_place_are_no_errors(
    rdzv_metrics: ModuleType, agent: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sends(step: int) -> bool:
        monkeypatch.setattr(rdzv_metrics, "_again_at", 0.0)
        return bool(rdzv_metrics.send(step, loss=0.5))

    with monkeypatch.context() as elsewhere:
        for path in (tmp_path / "none", tmp_path, Path("/" + "x" * 200)):
            elsewhere.setenv("RDZV_SOCKET", str(path))
            assert sends(1) is False
    assert sends(1) is True
    agent.accept()[0].close()
    assert rdzv_metrics.send(2, loss=0.5) is False
    assert rdzv_metrics.send(3, loss=0.5) is False  # not tried again at once
    assert sends(4) is True
    assert read_lines(agent, 1)[0]["step"] == 4


@pytest.mark.parametrize("values", [{"loss": "high"}, {"loss": None}, 7, {3: object()}])
def test_a_word_is_no_error(values: Any, rdzv_metrics: ModuleType, agent: socket.socket) -> None:
    assert rdzv_metrics.send(1, values) is False


def test_a_forked_process_has_a_connection_of_its_own(agent: socket.socket) -> None:
    script = (
        "import os, rdzv_metrics as m\n"
        "m.send(1)\n"
        "pid = os.fork()\n"
        "m.send(2 if pid else 3)\n"
        "pid and os.waitpid(pid, 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=FILE.parent, check=True, timeout=30)
    said = [[line["step"] for line in read_lines(agent)] for _ in range(2)]
    assert sorted(said) == [[1, 2], [3]]


async def test_what_a_process_says_last_is_heard_of_a_copy_without_any_package(
    tmp_path: Path,
) -> None:
    """A file of the standard library alone is all it takes."""
    (tmp_path / "rdzv_metrics.py").write_bytes(FILE.read_bytes())
    heard: list[Request] = []

    def take(request: Request) -> str:
        heard.append(request)
        return ""

    agent = LocalSocket(take={"metrics": take})
    env = {"RDZV_SOCKET": await agent.open({"TMPDIR": str(tmp_path)})}
    script = "import os, rdzv_metrics as m\nfor n in range(200): m.send(n, loss=n)\nos._exit(0)"
    command = [sys.executable, "-S", "-c", script]
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd=tmp_path)
    assert await process.wait() == 0
    await agent.hear_out(10.0)
    await agent.close()
    assert [request["step"] for request in heard] == list(range(200))
