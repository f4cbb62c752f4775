"""A head and its workers on their whole way: the end of node 0's program ends the run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.launching import launch, launching, rdzv_here
from tests.support.waiting import until
from worker.offer.ports import find_free

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

SAYS = """
import json, os, socket, sys, time
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["RDZV_SOCKET"])
agent.sendall(b'{"do": "waits", "words": 5}\\n')
print(agent.recv(200).decode(), flush=True)
agent.sendall(b'{"do": "waits", "words": "waiting for Godot"}\\n')
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
agent.sendall(b'{"do": "waits", "words": "Godot has come", "over": true}\\n')
while os.environ["NODE_RANK"] != "0" or not os.path.exists(os.environ["GO"] + ".2"):
    time.sleep(0.05)
"""
SERVES = """
if [ "$NODE_RANK" = 0 ]; then
  python3 -m http.server --bind "$RDZV_NODE_ADDRESS" "$PORT" >&2 &
  rdzv wait-for node-0:$PORT && sleep 1 && exit 0
fi
rdzv wait-for head:$PORT && echo "$RDZV_NODE_ADDRESS found $MASTER_ADDR"
trap 'exit 9' TERM
while true; do sleep 0.1; done
"""


def test_the_others_wait_for_the_head_and_are_stopped_when_it_has_ended(
    tmp_path: Path,
) -> None:
    outcome = launch(
        tmp_path / "s",
        *("--nnodes", "3", "--framework", "command", "--ends-with", "node0", "--grace", "5"),
        command=["sh", "-c", SERVES],
        env={"PORT": str(find_free(18_000 + os.getpid() % 2_000))},
    )
    assert outcome.code == 0, outcome.err
    said = sorted(outcome.out.splitlines())
    assert said == ["[1] 127.0.0.2 found 127.0.0.1", "[2] 127.0.0.3 found 127.0.0.1"]
    assert "run 'r' ok: node 0 ended with exit code 0 after " in outcome.last_line
    assert outcome.last_line.endswith("; the 2 others were stopped")


def test_the_launcher_says_what_a_node_waits_for(tmp_path: Path) -> None:
    state, go = tmp_path / "s", tmp_path / "go"
    with launching(
        state,
        *("--nnodes", "2", "--framework", "command", "--ends-with", "node0"),
        command=[sys.executable, "-c", SAYS],
        env={"GO": str(go)},
    ) as launched:
        launched.wait_for_phase("running")

        def progress() -> list[str]:
            slots = json.loads(rdzv_here(state, "status", "r", "--json"))["slots"]
            return [slot["progress"] for slot in slots]

        until(lambda: progress() == ["waiting for Godot"] * 2)
        go.touch()
        until(lambda: progress() == ["", ""])
        go.with_suffix(".2").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "waits: 'words' is not text" in outcome.out
    for words in (": waiting for Godot", ": Godot has come"):
        assert outcome.err.count(words) == 1
    assert outcome.err.count("the same on node ") == 2
