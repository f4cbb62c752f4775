"""The example of the Python API, as its head says to start it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launching import environment

FILE = Path(__file__).parents[2] / "examples" / "python_api.py"


@pytest.mark.nightly
@pytest.mark.real_time
def test_it_launches_two_runs_and_shows_what_each_rank_printed(tmp_path: Path) -> None:
    words, env = [sys.executable, str(FILE)], environment(tmp_path)
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    seen = re.sub(r"after \S+ s|loss [\d.]+", "", done.stdout).splitlines()
    nodes = ["  node 0 at 127.0.0.1: ", "  node 1 at 127.0.0.2: "]
    ended = "both nodes ended with exit code 0 "
    assert seen == [f"rate 0.01: {ended}", *nodes, f"rate 0.3: {ended}", *nodes]
    assert done.stdout.count("loss 0.000000") == 2  # of the better rate
