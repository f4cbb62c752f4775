"""What Slurm's commands print, odd things included, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.description import Description
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text

BAD_DAY = "ReqNodeNotAvail, UnavailableNodes:n[0-1]"
OTHERS = "112|RUNNING|n0|n0\n12|PENDING||(Priority)\n121|FAILED|n1|(TimeLimit)\n"


def bed_of(folder: Path, command: str, printed: str) -> Bed:
    """A bed in which one of Slurm's commands prints a text, whatever it is asked."""
    return Bed("slurm", folder, says={command: (0, printed)})


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("12|PENDING||(Resources)", Description(SlotState.QUEUED, "Resources")),
        ("12|PENDING||(None)", Description(SlotState.QUEUED, "")),
        (f"12|PENDING||({BAD_DAY})", Description(SlotState.QUEUED, BAD_DAY)),
        (OTHERS, Description(SlotState.QUEUED, "Priority")),
        ("12|CONFIGURING|n7|n7", Description(SlotState.QUEUED, "n7", host="n7")),
        ("12|RUNNING|gpu-[07-08]|gpu-[07-08]", Description(SlotState.RUNNING, "gpu-[07-08]")),
        ("12|RUNNING|gpu-07|gpu-07", Description(SlotState.RUNNING, "gpu-07", host="gpu-07")),
        ("12|COMPLETING|None1|None1", Description(SlotState.RUNNING, "None1", host="None1")),
        ("12|COMPLETED|n0|n0", Description(SlotState.ENDED, "COMPLETED: n0", host="n0")),
        ("12|CANCELLED||", Description(SlotState.FAILED, "CANCELLED")),
        (
            "12|NODE_FAIL|n0|(NodeDown)",
            Description(SlotState.FAILED, "NODE_FAIL: NodeDown", host="n0"),
        ),
        (
            "12|OUT_OF_MEMORY|n0|(x (y))",
            Description(SlotState.FAILED, "OUT_OF_MEMORY: x (y)", host="n0"),
        ),
        ("12|PREEMPTED|n0|n0", Description(SlotState.FAILED, "PREEMPTED: n0", True, "n0")),
        ("12|DREAMING|n0|n0", Description(SlotState.UNKNOWN, "DREAMING: n0", host="n0")),
    ],
)
async def test_a_line_of_squeue_is_read(
    tmp_path: Path, printed: str, expected: Description
) -> None:
    bed = bed_of(tmp_path, "squeue", printed)
    assert await bed.scheduler().describe(bed.run(), "12") == expected


async def test_the_name_of_a_cluster_is_no_part_of_the_id(tmp_path: Path) -> None:
    bed = bed_of(tmp_path, "sbatch", "sbatch: lua: 4 GPUs are charged\n4711;big\n")
    assert await bed.scheduler().submit(bed.run(), join_text()) == "4711"


async def test_options_for_sbatch_come_by_set_and_cannot_undo_ours(tmp_path: Path) -> None:
    bed = Bed("slurm", tmp_path)
    run = bed.run()
    run.variables["SBATCH"] = "--partition=gpu --job-name=mine --comment 'a b'"
    await bed.scheduler().submit(run, join_text())
    spec = f"{bed.submissions}/{run.name}.sbatch"
    assert bed.calls()[0]["argv"] == [
        *("--partition=gpu", "--job-name=mine", "--comment", "a b"),
        *("--parsable", f"--job-name={run.name}", "--no-requeue", f"--output={spec}.log", spec),
    ]
