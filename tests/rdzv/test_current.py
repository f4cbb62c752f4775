"""`rdzv.current()`: what a rank learns of its run, and that nothing in its environment harms it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rdzv
from rdzv import metrics
from rdzv.inside import Notice
from tests.support.launching import RDZV, environment
from tests.support.waiting import until

GIVEN = {
    "RDZV_ID": "llama",
    "RDZV_EPOCH": "3",
    "RDZV_RESTARTS": "2",
    "RDZV_MAX_RESTARTS": "5",
    "RDZV_REPLACEMENTS": "0",
    "RDZV_LAST_FAILURE": "rank 1 ended with exit code 1",
    "NODE_RANK": "1",
    "NNODES": "2",
    "NPROC_PER_NODE": "4",
}
TORCHRUN = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}
TELLS_AND_SAVES = """
import dataclasses, json, os, rdzv, sys, time
me = rdzv.current()
told = {**dataclasses.asdict(me), "address": me.table["nodes"][me.node]["address"]}
name = f"{me.epoch}-{me.rank}"
with open(f"{sys.argv[1]}/new-{name}", "w") as file:
    json.dump(told, file)
os.rename(f"{sys.argv[1]}/new-{name}", f"{sys.argv[1]}/{name}")  # the other's end may stop it here
if me.restarts == 0:
    sys.exit(1)
open(f"{sys.argv[1]}/ready-{me.rank}", "w").close()
while me.notice is None:
    time.sleep(0.02)
print(me.rank, "saves:", me.notice.node, me.notice.reason, 0 < me.notice.seconds <= 60)
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that nothing has told anything."""
    names = (*GIVEN, *TORCHRUN, "RDZV_TABLE", "RDZV_NOTICE_FILE", "SLURM_PROCID", "PMI_RANK")
    for name in (*(set(os.environ) - environment(tmp_path).keys()), *names):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path / "s"))


def given(monkeypatch: pytest.MonkeyPatch, *parts: Mapping[str, str]) -> rdzv.Rank:
    for name, value in {k: v for part in parts for k, v in part.items()}.items():
        monkeypatch.setenv(name, value)
    found = rdzv.current()
    assert found is not None
    return found


def test_outside_a_run_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDZV_ID", "llama")  # of a person's, for `rdzv launch`
    assert rdzv.current() is None


def test_a_rank_knows_its_place_and_the_starts_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, GIVEN, TORCHRUN) == rdzv.Rank(
        rdzv_id="llama",
        epoch=3,
        restarts=2,
        max_restarts=5,
        replacements=0,
        last_failure="rank 1 ended with exit code 1",
        rank=6,
        local_rank=2,
        world_size=8,
        node=1,
        nnodes=2,
    )


@pytest.mark.parametrize(
    ("more", "rank", "world_size"),
    [
        (TORCHRUN, 6, 8),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}, 5, 8),
        ({"SLURM_PROCID": "3"}, 3, None),
        ({"LOCAL_RANK": "3"}, 7, 8),  # Lightning's own
        ({}, 1, 2),  # one process on each node
        ({"NODE_RANK": "", "NNODES": ""}, None, None),
    ],
)
def test_the_rank_is_that_of_what_started_the_process(
    more: Mapping[str, str], rank: int | None, world_size: int | None, monkeypatch: Any
) -> None:
    me = given(monkeypatch, GIVEN, more)
    assert (me.rank, me.world_size) == (rank, world_size)
    assert metrics.own_rank() == (rank or 0)


@pytest.mark.parametrize("value", ["", " ", "-1", "x", "1.0", "\udcff", "\u0665", "9" * 5_000])
def test_nothing_raises_whatever_the_variables_hold(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = given(monkeypatch, dict.fromkeys([*GIVEN, *TORCHRUN], value))
    assert (me.rdzv_id, me.last_failure) == (value, value)
    numbers = (me.epoch, me.restarts, me.max_restarts, me.replacements)
    assert (*numbers, me.rank, me.world_size, me.node) == (0, 0, 0, 0, None, None, None)
    for path in (value, str(tmp_path), str(tmp_path / "none")):
        monkeypatch.setenv("RDZV_TABLE", path)
        monkeypatch.setenv("RDZV_NOTICE_FILE", path)
        assert me.table == {}
        assert isinstance(me.notice, Notice) == (path == str(tmp_path))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"seconds": "x", "node": []}', "\xff"]
)
def test_a_file_that_holds_something_else_is_no_table_but_is_a_notice(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text(text, "latin-1")
    names = dict.fromkeys(("RDZV_TABLE", "RDZV_NOTICE_FILE"), str(file))
    me = given(monkeypatch, GIVEN, names)
    assert me.notice == (0.0, None, "")
    assert me.table == ({} if "seconds" not in text else json.loads(text))


@pytest.mark.real_time
@pytest.mark.faults
def test_the_ranks_of_a_run_that_restarts_know_why_and_see_a_notice_and_can_save(
    tmp_path: Path,
) -> None:
    script = tmp_path / "tells.py"
    script.write_text(TELLS_AND_SAVES)
    options: Mapping[str, Any] = {"nproc_per_node": [2, 1], "framework": "env", "max_restarts": 1}
    output: list[str] = []
    run = rdzv.launch([script, tmp_path], nnodes=2, rdzv_id="r", on_output=output.append, **options)
    until(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
    drain = [RDZV, "drain", "r", "1", "--in", "60", "--reason", "spot"]
    subprocess.run(drain, check=True, stdout=subprocess.DEVNULL, timeout=30)
    assert run.wait(40).ok  # all ended well before they were stopped
    told = {file.name: json.loads(file.read_text()) for file in tmp_path.glob("[0-9]-*")}
    last = {name: one for name, one in told.items() if one["restarts"] == 1}
    assert len(last) == 3
    for one in last.values():
        assert one["rdzv_id"] == "r"
        assert (one["max_restarts"], one["world_size"], one["nnodes"]) == (1, 3, 2)
        assert one["address"] == f"127.0.0.{1 + one['node']}"
        assert "ended with exit code 1" in one["last_failure"]
    assert sorted(one["rank"] for one in last.values()) == [0, 1, 2]
    assert sorted(one["local_rank"] for one in last.values()) == [0, 0, 1]
    first = [one for one in told.values() if one["restarts"] == 0]
    assert {one["last_failure"] for one in first} == {""}
    assert {one["epoch"] for one in first} < {1, 2}
    assert sorted(line for line in output if "saves:" in line) == [
        "[0] 0 saves: 1 drained: spot True",
        "[0] 1 saves: 1 drained: spot True",
        "[1] 2 saves: 1 drained: spot True",
    ]
