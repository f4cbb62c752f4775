"""What may follow a node's loss: which options and COMMANDs allow it, and what the dry run says."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.plan.losses import check_losses, fixed_size, loss_lines
from launcher.plan.plan import Plan, Site, Spec
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import Limits
from tests.launcher.command import plan_of, rdzv

REPLACE: dict[str, Any] = {"on_node_loss": "replace"}
SHRINK: dict[str, Any] = {"on_node_loss": "shrink"}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("train.py", ""),
        ("train.py --nnodes 4", ""),
        ("mpirun -np 8 ./train", "-np 8"),
        ("mpirun --mca btl tcp -n 8 ./train", "-n 8"),
        ("/opt/mpi/bin/mpiexec -q --np=8 ./train", "--np=8"),
        ("mpirun ./train -np 8", ""),
        ("horovodrun -np 8 train.py", "-np 8"),
        ("horovodrun --gloo --num_proc 8 train.py", "--num_proc 8"),
        ("horovodrun train.py -np 8", ""),
        ("torchrun --nnodes 4 train.py", "--nnodes 4"),
        ("torchrun --nnodes 2:4 train.py", ""),
        ("torchrun --nnodes=2:4 train.py", ""),
        ("python3 -m torch.distributed.run --nnodes=4 train.py", "--nnodes=4"),
        ("python3 -m app --nnodes=4", ""),
        ("deepspeed --num_nodes 4 train.py", "--num_nodes 4"),
        ("ds --num_nodes=4 train.py", "--num_nodes=4"),
        ("accelerate launch --num_machines 4 train.py", "--num_machines 4"),
        ("accelerate-launch --num_processes 32 train.py", "--num_processes 32"),
        ("accelerate test --num_machines 4", ""),
        ("torchrun --nnodes", "--nnodes"),
    ],
)
def test_which_flag_of_a_launcher_fixes_the_size_of_its_job(command: str, found: str) -> None:
    assert fixed_size(command.split()) == found


@pytest.mark.parametrize(
    ("given", "size", "command"),
    [
        ({}, (4, 4), "mpirun -np 8 ./train"),
        ({"max_replacements": 0, "standby": 0}, (4, 4), "train.py"),
        (REPLACE | {"standby": 1, "max_replacements": 0}, (4, 4), "mpirun -np 8 ./train"),
        (REPLACE | {"local_node": False}, (1, 1), "train.py"),
        (SHRINK, (2, 4), "torchrun --nnodes 2:4 train.py"),
        (SHRINK | {"standby": 1}, (1, 2), "mpirun ./train"),
        (REPLACE | {"fence_timeout": 18.0}, (4, 4), "train.py"),  # 10 s of grace, 2, and 3 polls
        (REPLACE | {"fence_timeout": 120.0}, (4, 4), "train.py"),
        (REPLACE | {"fence_timeout": 8.5, "grace": 5.0, "lease": 3.0}, (4, 4), "train.py"),
        (REPLACE | {"fence_timeout": 24.0}, (2_000, 2_000), "train.py"),
    ],
)
def test_what_can_be_done(given: dict[str, Any], size: tuple[int, int], command: str) -> None:
    check_losses(LaunchSettings(**given), size, command.split())


@pytest.mark.parametrize(
    ("given", "size", "command", "message", "hint"),
    [
        ({"standby": 1}, (4, 4), "", "--standby 1 has no use with --on-node-loss fail", "remove"),
        ({"max_replacements": 5}, (4, 4), "", "--max-replacements 5 has no use", "add --on-node-l"),
        ({"fence_timeout": 60.0}, (4, 4), "", "--fence-timeout 60 has no use", "remove --fence"),
        (SHRINK, (4, 4), "", "--on-node-loss shrink with --nnodes 4: no node", "--nnodes 3:4"),
        (SHRINK, (1, 1), "", "--on-node-loss shrink with --nnodes 1: no node", "--nnodes 1:2"),
        (SHRINK, (2, 4), "mpirun -np 8 ./t", "COMMAND contains -np 8", "remove -np 8: m"),
        (REPLACE | {"fence_timeout": 17.9}, (4, 4), "", "--fence-timeout 17.9 is", "at least 18 s"),
        (
            *(REPLACE | {"fence_timeout": 23.0}, (1_900, 2_000), "", "--fence-timeout 23 is too"),
            "at least 24 s: --grace 10, 2 s and 3 polls",
        ),
        (
            *(REPLACE | {"fence_timeout": 24.0, "standby": 100}, (2_000, 2_000), ""),
            *("--fence-timeout 24 is too", "at least 24.6 s"),
        ),
        (REPLACE | {"fence_timeout": 120.5}, (4, 4), "", "more than --orphan-t", "at most 120, or"),
        (REPLACE | {"orphan_timeout": 15.0}, (4, 4), "", "--orphan-timeout 15 is", "at least 18 s"),
    ],
)
def test_what_cannot_be_is_refused(
    given: dict[str, Any], size: tuple[int, int], command: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_losses(LaunchSettings(**given), size, command.split() or ["train.py"])
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("command", [["--nnodes", "4", "--", "a.py"], ["--", "mpirun", "-n", "8"]])
def test_a_launch_is_refused_before_anything_is_made(command: list[str]) -> None:
    size = () if "--nnodes" in command else ("--nnodes", "2:4", "--framework", "openmpi")
    done = rdzv("launch", "--dry-run", "--on-node-loss", "shrink", *size, *command)
    assert done.exit_code == 64
    assert "--on-node-loss shrink" in done.stderr


def plan(**settings: Any) -> Plan:
    site = Site(Spec("worker.sh", "exec <<COMMAND>>"))
    return plan_of("train.py", site=site, **{"nnodes": "4"} | settings)


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, {}),
        (REPLACE, {"max_replacements": 3, "fence_timeout_seconds": 120.0}),
        (
            REPLACE | {"max_replacements": 0, "fence_timeout": 30.0, "orphan_timeout": 60.0},
            {"fence_timeout_seconds": 30.0},
        ),
        (
            SHRINK | {"nnodes": "2:4", "orphan_timeout": 60.0},
            {"max_replacements": 3, "fence_timeout_seconds": 60.0},
        ),
    ],
)
def test_what_the_registry_is_told(given: dict[str, Any], limits: dict[str, Any]) -> None:
    known = {"max_replacements": 0, "fence_timeout_seconds": None}
    told = plan(**given).limits()
    assert told == Limits(**told.model_dump() | known | limits)


def test_standbys_are_worker_runs_of_their_own_and_no_nodes_of_the_job() -> None:
    made = plan(**REPLACE, nnodes="2", spares=1, standby=2, nproc_per_node="8,8,4,4,2")
    assert (made.slots, made.max_nodes) == (5, 2)
    assert made.submission(4, 1).variables["GPUS_PER_NODE"] == 2
    with pytest.raises(UsageError, match="has 2 entries for 3 nodes"):
        plan(**REPLACE, nnodes="2", standby=1, nproc_per_node="8,8")


REPLACES = "another one replaces it, up to"
SHRINKS = "the run continues with those that are left, at least"
AGAIN = "a missing one is submitted again, up to 3 times, and taken in at the next restart"
FIRST = "first, each a whole machine"
FENCE = "a silent node is fenced after"
HERE = "without the node of this machine the run fails"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ""),
        (
            REPLACE | {"local_node": False, "standby": 1},
            f"{REPLACES} 3 times; 1 standby waits and steps in {FIRST}; {FENCE} 120 s",
        ),
        (
            REPLACE | {"max_replacements": 1, "fence_timeout": 30.5},
            f"{REPLACES} 1 time; {FENCE} 30.5 s; {HERE}",
        ),
        (
            SHRINK | {"nnodes": "2:4", "standby": 2, "max_replacements": 0},
            f"{SHRINKS} 2; 2 standbys wait and step in {FIRST}; {FENCE} 120 s; {HERE}",
        ),
        (
            SHRINK | {"nnodes": "2:4", "local_node": False},
            f"{SHRINKS} 2; {AGAIN}; {FENCE} 120 s",
        ),
    ],
)
def test_the_dry_run_says_what_follows_a_loss(given: dict[str, Any], said: str) -> None:
    line = [f"# on the loss of a node: {said}"] if said else []
    assert list(loss_lines(plan(**given))) == line


def test_where_the_registry_is_elsewhere_this_machines_node_is_like_any_other() -> None:
    [line] = loss_lines(plan(**REPLACE), owns_registry=False)
    assert HERE not in line


def test_of_a_symmetric_start_nobody_submits_a_missing_node_again() -> None:
    [line] = loss_lines(plan(**SHRINK, nnodes="2:4"), symmetric=True)
    assert AGAIN not in line
    assert f"{SHRINKS} 2; {FENCE} 120 s" in line
