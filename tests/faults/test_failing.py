"""Launchers whose helpers and workers fail: what ends a run, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launching import launch, launching

pytestmark = [pytest.mark.faults, pytest.mark.torch, pytest.mark.timeout(150)]

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


def test_helpers_of_the_launcher_that_fail_end_no_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISY)
    (tmp_path / "train.py").write_text(CALM)
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    env = {**ranks, "PYTHONPATH": str(tmp_path)}
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
