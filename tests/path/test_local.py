"""The whole path on this machine: launcher, registry and agents as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launching import (
    RDZV,
    environment,
    launch,
    launching,
    processes_with,
    rdzv,
    shell,
)
from tests.support.nightly import at_night
from tests.support.waiting import until
from worker.contracts.framework import HOOK
from worker.offer.ports import find_free

COMMAND = ("--framework", "command")
TWO = ("--nnodes", "2", *COMMAND)
WAIT = "while :; do sleep 0.2; done"
# A program that ends on TERM.
WAITING = f"trap 'exit 0' TERM; {WAIT}"

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]


def result(state: Path) -> dict[str, object]:
    """The result that a launch has left."""
    return dict(json.loads((state / "r" / "result.json").read_text()))


def test_every_node_gets_one_table_its_own_rank_and_the_words_of_command(tmp_path: Path) -> None:
    """In a folder with a space, a quote and modules that have the names of ours."""
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    for name in ("worker", "launcher", "features", "rendezvous", "typing", "logging"):
        (folder / f"{name}.py").write_text("raise SystemExit('the user\\'s own module')\n")
    script = folder / "my script.sh"
    script.write_text('#!/bin/sh\nenv -0 > env-$NODE_RANK; printf "%s\\0" "$@" > argv-$NODE_RANK\n')
    script.chmod(0o755)
    words = ["a b", "it's", 'say "hi"', "$HOME `id`", "two\nlines", "", "--nnodes", "ü", "<<N>>"]
    options = ("--nnodes", "3", "--nproc-per-node", "2,1,1", *COMMAND)
    command = ["./my script.sh", *words]
    env = {"PYTHONPATH": "."}
    outcome = launch(folder / "s", *options, command=command, cwd=folder, env=env)
    assert outcome.code == 0, outcome.err
    assert "run 'r' ok: all 3 nodes ended with exit code 0" in outcome.last_line
    texts = [(folder / f"env-{rank}").read_text().split("\0") for rank in range(3)]
    seen = [dict(line.split("=", 1) for line in text if line) for text in texts]
    assert [s["NODE_RANK"] for s in seen] == ["0", "1", "2"]
    assert [s["NPROC_PER_NODE"] for s in seen] == ["2", "1", "1"]
    same = {(s["MASTER_ADDR"], s["NNODES"], s["RDZV_ID"], s["PYTHONPATH"]) for s in seen}
    assert same == {("127.0.0.1", "3", "r", f"{HOOK}:.")}
    assert len({s["MASTER_PORT"] for s in seen}) == 1
    assert not any(name in s for s in seen for name in ("RDZV_JOIN", "RDZV_JOIN_FILE", "RANK"))
    for rank in range(3):
        assert (folder / f"argv-{rank}").read_text().split("\0")[:-1] == words


@pytest.mark.faults
def test_a_failing_node_stops_the_others_and_is_named_and_the_run_can_be_replayed(
    tmp_path: Path,
) -> None:
    mark = f"left-{tmp_path}"
    fails = "if [ $NODE_RANK = 1 ]; then echo starting; echo it broke >&2; exit 7; fi"
    script = f"{fails}; : {mark}; {WAITING}"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]  # the registry goes on to the next one
        options = ("--nnodes", "3", "--port", str(port), *COMMAND)
        env = {"TMPDIR": str(temporary)}
        outcome = launch(tmp_path, *options, command=shell(script), env=env)
    assert outcome.code == 7
    assert result(tmp_path)["exit_code_of"] == "program"
    assert [*temporary.iterdir()] == []
    kept = [path for path in (tmp_path / "r").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in kept) < 200_000
    assert "exit code 7" in rdzv(tmp_path, "replay", "r")
    assert json.loads((tmp_path / "r" / "launch.json").read_text())["place"]["p"] > port
    log = tmp_path / "r" / "logs" / "node-1.log"
    node = f"node 1 ({socket.gethostname()})"
    for words in (f"run 'r' failed: {node} failed", "exit code 7", "'it broke'", f"log: {log}"):
        assert words in outcome.last_line
    assert log.read_text() == "starting\nit broke\n"
    assert "rdzv:   | it broke" in outcome.err
    assert not processes_with(mark)


# Signals


@pytest.mark.nightly
def test_a_log_folder_of_the_users_goes_on_behind_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    for number in (1, 2):
        options = (*TWO, "--log-dir", str(folder))
        launch(tmp_path / "s", *options, command=shell(f"echo launch {number}"))
    lines = (folder / "node-0.log").read_text().splitlines()
    assert lines[:2] == ["launch 1", ""]
    assert lines[2].startswith("--- rdzv: node 0 of run 'r', launch ")
    assert lines[3:] == ["launch 2"]


def test_a_signal_ends_everything_in_order(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    script = f": {mark}; trap 'echo bye; exit 0' TERM; : > {tmp_path}/ready-$NODE_RANK; {WAIT}"
    with launching(tmp_path / "s", *TWO, command=shell(script)) as launched:
        until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
        launched.signal(signal.SIGTERM)
        outcome = launched.finish()
    assert outcome.code == 143
    assert sorted(outcome.out.splitlines()) == ["[0] bye", "[1] bye"]
    assert "SIGTERM at the launcher" in outcome.last_line
    assert not processes_with(mark)


# The registry


@contextlib.contextmanager
def standing_registry(state: Path, *options: str) -> Iterator[dict[str, str]]:
    """A standing registry; gives the environment of those who launch at it."""
    # Outside of what outgoing connections get, and not where other processes of the tests look.
    port = find_free(20_000 + os.getpid() % 8_000)
    registry = subprocess.Popen(
        [RDZV, "serve", "--port", str(port), "--registry-address", "127.0.0.1", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(state),
    )
    try:
        assert registry.stderr is not None
        said = registry.stderr.readline()
        yield {"RDZV_REGISTRY_FILE": said.rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip()}
    finally:
        registry.terminate()
        registry.communicate(timeout=30)


# What is said, and to whom


@pytest.mark.faults
def test_a_run_of_nohup_outlives_the_terminal_and_status_logs_and_cancel_find_it(
    tmp_path: Path,
) -> None:
    command = shell(f"echo hi; {WAITING}")
    with launching(tmp_path, *TWO, command=command, by=("nohup",)) as run:
        run.wait_for_phase("running")
        run.signal(signal.SIGHUP)
        status = rdzv(tmp_path, "status", "r")
        assert "running on 2 nodes" in status
        assert "127.0.0.2" in status
        until(lambda: "hi" in rdzv(tmp_path, "logs", "r", "--node", "1"))
        assert "enough" in rdzv(tmp_path, "cancel", "r", "--reason", "enough")
        outcome = run.finish()
    assert outcome.code == 84
    words = "was cancelled with 'rdzv cancel' by \\S+ on \\S+: enough"
    assert re.search(words, outcome.last_line)
    assert re.search(words, rdzv(tmp_path, "status", "r"))


@pytest.mark.parametrize(
    ("option", "error"),
    [("--json", "2>&-"), at_night("", "2>&1")],
)
def test_whoever_stops_reading_the_output_does_not_end_the_run(
    tmp_path: Path, option: str, error: str
) -> None:
    """Nor does it need a standard error."""
    line = f"{RDZV} launch --nnodes 1 --rdzv-id r {option} {' '.join(COMMAND)} -- "
    script = f"{line} sh -c 'sleep 1; echo done > {tmp_path}/done' {error} | head -n 1"
    env, pipe = environment(tmp_path), subprocess.PIPE
    subprocess.run(["sh", "-c", script], env=env, timeout=60, check=True, stdout=pipe)
    until(lambda: (tmp_path / "r" / "result.json").exists())
    assert result(tmp_path)["status"] == "ok"
    assert (tmp_path / "done").exists()
