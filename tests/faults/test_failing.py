"""A worker process fails while its siblings would go on: the whole run is stopped at once.

torchrun itself waits up to 30 s for the siblings before it ends with its own failure.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.launching import launch, launching
from tests.support.record import record
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.torch, pytest.mark.timeout(150)]

# Rank 1 fails; the others, but for rank 2, are deaf to TERM, as a trainer that saves its state.
TRAIN = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
rank = os.environ["RANK"]
if rank != "2":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / f"ready-{rank}").touch()
while len(list(folder.glob("ready-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)
if rank == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    (folder / "failed-at").write_text(str(time.monotonic()))
    sys.exit("the loss is not a number")
while not (folder / "end").exists():
    (folder / f".alive-{rank}").write_text(str(time.monotonic()))
    (folder / f".alive-{rank}").replace(folder / f"alive-{rank}")
    time.sleep(0.05)
"""


def script_in(folder: Path) -> list[str]:
    (folder / "train.py").write_text(TRAIN)
    return [str(folder / "train.py"), str(folder)]


def seconds_after_failure(folder: Path) -> float:
    """When the last worker was still alive, after the first one had failed."""
    failed = float((folder / "failed-at").read_text())
    return max(float(path.read_text()) for path in folder.glob("alive-*")) - failed


def test_a_failed_worker_stops_all_nodes_though_its_siblings_are_deaf_to_term(
    tmp_path: Path,
) -> None:
    options = ("--nnodes", "2", "--nproc-per-node", "3,1", "--grace", "2")
    started = time.monotonic()
    outcome = launch(tmp_path / "s", *options, command=script_in(tmp_path))
    assert outcome.code == 1
    assert "failed: rank 1 ended with exit code 1" in outcome.last_line
    assert "'the loss is not a number'" in outcome.last_line
    seconds = seconds_after_failure(tmp_path)
    record("a worker process fails, a sibling is deaf to TERM (grace 2 s)", outcome, seconds)
    # Without the early report: 30 s until torchrun ends, then the grace of the other node.
    assert seconds < 15
    assert time.monotonic() - started < 60


@pytest.mark.nightly
def test_a_worker_that_torchrun_starts_again_stops_nobody(tmp_path: Path) -> None:
    options = ("--nnodes", "1", "--nproc-per-node", "2")
    command = ["--max-restarts", "1", *script_in(tmp_path)]
    with launching(tmp_path / "s", *options, command=command) as launched:
        until(lambda: (tmp_path / "failed-at").exists(), 30)
        # torchrun ends the deaf sibling after 30 s and starts both again.
        until(lambda: (tmp_path / "alive-1").exists(), 60)
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert json.loads((launched.folder / "result.json").read_text())["status"] == "ok"


# What accelerate does at its start, and worse: helpers of the launcher itself that fail or are
# missing, and inherit ranks that a platform has given to the launcher.
NOISY = """
import os, subprocess, sys, threading, time
def make_noise():
    while True:
        for words in ("sleep 0.3 & echo mismatch; exit 18", "exit 1", "kill -KILL $$", "no-such"):
            helper = subprocess.Popen(["sh", "-c", words], stderr=subprocess.DEVNULL)
            time.sleep(0.02)
            helper.wait()
if any(word.endswith("/torchrun") for word in sys.orig_argv[:2]):
    threading.Thread(target=make_noise, daemon=True).start()
"""

CALM = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / f"ready-{os.environ['RANK']}").touch()
while len(list(folder.glob("ready-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)
time.sleep(3)  # longer than an end is looked at before it is reported
"""


@pytest.mark.parametrize("given", [{}, {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}])
def test_helpers_of_the_launcher_that_fail_end_no_run(
    tmp_path: Path, given: dict[str, str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISY)
    (tmp_path / "train.py").write_text(CALM)
    env = {**given, "PYTHONPATH": str(tmp_path)}
    options = ("--nnodes", "2", "--nproc-per-node", "2")
    command = [str(tmp_path / "train.py"), str(tmp_path)]
    outcome = launch(tmp_path / "s", *options, command=command, env=env)
    assert outcome.code == 0, outcome.err
    assert "rank" not in outcome.last_line


# A launcher that lives with the failure of one of its workers, against what torchrun would do.
LIVES_ON = """#!/usr/bin/env python3
import os, pathlib, subprocess, sys, time
folder = pathlib.Path(sys.argv[-1])
rank = {"RANK": "0", "LOCAL_RANK": "0"}, {"RANK": "1", "LOCAL_RANK": "1"}
good = subprocess.Popen(["sleep", "60"], env={**os.environ, **rank[0]})
bad = subprocess.Popen(["sh", "-c", "sleep 0.5; exit 3"], env={**os.environ, **rank[1]})
while not (folder / "end").exists():
    time.sleep(0.05)
bad.wait()
good.kill()
"""


def test_a_failed_worker_is_a_warning_while_its_launcher_goes_on(tmp_path: Path) -> None:
    launcher = tmp_path / "torchrun"
    launcher.write_text(LIVES_ON)
    launcher.chmod(0o755)
    script = tmp_path / "train.py"
    script.touch()  # it is looked for before the join
    command = [str(launcher), str(script), str(tmp_path)]
    with launching(tmp_path / "s", "--nnodes", "1", command=command) as launched:
        launched.wait_for("progressed")
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "rank 1 ended with exit code 3; the program that started it goes on" in outcome.err
