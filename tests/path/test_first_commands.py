"""What a newcomer types first, with the torchrun of rdzv's own environment, which PATH has not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launching import LIMIT_SECONDS, RDZV, environment
from tests.support.nightly import at_night

pytestmark = [pytest.mark.faults, pytest.mark.torch]
SCRIPT = """
import sys
import torch.distributed as dist
from rdzv import metrics
dist.init_process_group("gloo")
dist.barrier()
metrics.send(1, loss=0.5)
print("rank", dist.get_rank(), "of", dist.get_world_size(), sys.flags.optimize, sys.executable)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("interpreter", [[], at_night([sys.executable, "-O"])])
def test_a_script_runs_where_path_has_no_torchrun(tmp_path: Path, interpreter: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    env = environment(tmp_path / "state") | {"PATH": "/usr/bin:/bin"}
    options = ["--rdzv-id", "r", "--nnodes", "2", "--nproc_per_node", "2,1"]
    done = subprocess.run(
        [RDZV, "launch", *options, "--", *interpreter, "train.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    ranks = re.findall(r"rank (\d) of (\d) (\d) (\S+)", done.stdout)
    flag = str(len(interpreter) // 2)
    assert sorted(ranks) == [(str(rank), "3", flag, sys.executable) for rank in range(3)]
    used = f"'torchrun' is not on PATH: using {Path(sys.executable).parent}/torchrun, of rdzv's own"
    assert done.stderr.count(used) == 1
    metrics = [RDZV, "metrics", "r", "--json"]
    shown = subprocess.run(metrics, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert '"loss"' in shown.stdout
