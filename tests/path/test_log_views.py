"""`rdzv logs` of nodes whose folders the reader does not see, while the programs run and after."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.launching import RDZV, environment, launching, rdzv_here
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.torch, pytest.mark.timeout(120)]

TRAIN = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
for number in range(10_000):
    print(f"rank {rank} loss {number}", flush=True)
    print(f"rank {rank} step {number}", flush=True)
    if number % 10 == 0:
        print(f"WARNING: rank {rank} is slow", file=sys.stderr, flush=True)
    if pathlib.Path(sys.argv[1], "stop").exists():
        break
    time.sleep(0.05)
print(f"rank {rank} loss is final", flush=True)
"""


def test_output_is_read_where_no_disk_is_shared(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "s", tmp_path / "elsewhere"
    (tmp_path / "train.py").write_text(TRAIN)
    command = [str(tmp_path / "train.py"), str(tmp_path)]
    size = ("--nnodes", "2", "--nproc-per-node", "2", "--framework", "env")
    options = (*size, "--log-dir", str(elsewhere))
    with launching(state, *options, command=command) as launched:
        launched.wait_for_phase("running")
        until(lambda: len([*elsewhere.glob("rank-*.log")]) == 4)
        assert not [*(state / "r" / "logs").glob("*-[0-9]*.log")]
        title, *lines = rdzv_here(state, "logs", "r", "--rank", "3", "--grep", "loss").splitlines()
        assert title == "==> rank 3, by way of the registry"
        numbers = [int(line.removeprefix("rank 3 loss ")) for line in lines]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        lines = rdzv_here(
            state, "logs", "r", "--all", "--level", "warning", "--lines", "1"
        ).splitlines()
        assert lines == [f"[rank {rank}] WARNING: rank {rank} is slow" for rank in range(4)]
        text = rdzv_here(state, "logs", "r", "--node", "1", "--grep", "rank 2 loss", "--lines", "1")
        assert text.splitlines()[0] == "==> node 1, by way of the registry"
        assert text.splitlines()[1].startswith("rank 2 loss ")
        text = rdzv_here(state, "logs", "r", "--rank", "3", "--grep", "loss 0", "--since", "1h")
        assert text.splitlines()[1:] == ["rank 3 loss 0"]
        follower = subprocess.Popen(
            [RDZV, "logs", "r", "--rank", "3", "--grep", "loss", "--lines", "2", "--follow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(state),
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == "==> rank 3, by way of the registry\n"
        first = int(follower.stdout.readline().removeprefix("rank 3 loss "))
        (tmp_path / "stop").touch()
        outcome = launched.finish()
        assert outcome.code == 0, outcome.err
        *numbers_then, last, end = follower.stdout.read().splitlines()
        follower.stdout.close()
        assert (last, end) == ("rank 3 loss is final", "rdzv: End of the log.")
        assert [int(line.removeprefix("rank 3 loss ")) for line in numbers_then] == list(
            range(first + 1, first + 1 + len(numbers_then))
        )
        assert follower.wait(20) == 0
