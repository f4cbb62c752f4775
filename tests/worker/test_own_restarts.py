"""torchrun's own restarts and rdzv's exclude each other."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import UsageError
from worker.contracts.own_restarts import own_restarts, refuse_two_counts


@pytest.mark.parametrize(
    ("framework", "command", "found"),
    [
        ("torchrun", "train.py", ""),
        ("torchrun", "train.py --max-restarts 3", ""),
        ("torchrun", "--max-restarts 3 train.py", "--max-restarts 3"),
        ("torchrun", "--max_restarts=3 train.py", "--max_restarts=3"),
        ("torchrun", "torchrun --max-rest 3 -m app", "--max-rest 3"),
        ("torchrun", "python -m torch.distributed.run --max-restarts=2 a.py", "--max-restarts=2"),
        ("torchrun", "--no-python --max-restarts 3 a.sh", "--max-restarts 3"),
        ("torchrun", "--max-restarts 3 --max-restarts 0 train.py", ""),
        ("torchrun", "--max-restarts 0 --max-restarts 3 train.py", "--max-restarts 3"),
        ("torchrun", "--max-steps 3 train.py", ""),
        ("torchrun", "--m app", ""),
        (
            "torch.distributed.launch",
            "python -m torch.distributed.launch --use-env --max-restarts 3 a.py",
            "--max-restarts 3",
        ),
        ("torch.distributed.launch", "--max-restarts 3 a.py", "--max-restarts 3"),
        ("accelerate", "accelerate launch --multi_gpu --max_restarts 1 a.py", "--max_restarts 1"),
        ("accelerate", "accelerate-launch --max_restarts 1 a.py", "--max_restarts 1"),
        ("accelerate", "--max_restarts 1 a.py", "--max_restarts 1"),
        ("accelerate", "a.py --max_restarts 1", ""),
        ("command", "./train --max-restarts 3", ""),
    ],
)
def test_what_asks_torchrun_for_restarts(framework: str, command: str, found: str) -> None:
    assert own_restarts(command.split(), framework, {}) == found


@pytest.mark.parametrize(
    ("framework", "command", "value", "found"),
    [
        ("torchrun", "train.py", "3", "PET_MAX_RESTARTS=3"),
        ("torchrun", "train.py", "0", ""),
        ("torchrun", "--max-restarts 0 train.py", "3", ""),
        ("accelerate", "a.py", "3", "PET_MAX_RESTARTS=3"),
        ("command", "train.py", "3", ""),
    ],
)
def test_the_variable_asks_for_them_as_well(
    framework: str, command: str, value: str, found: str
) -> None:
    assert own_restarts(command.split(), framework, {"PET_MAX_RESTARTS": value}) == found


def test_two_counts_are_refused() -> None:
    command = ["--max-restarts", "3", "train.py"]
    refuse_two_counts(0, command, "torchrun", {})
    refuse_two_counts(2, ["train.py"], "torchrun", {})
    with pytest.raises(UsageError) as caught:
        refuse_two_counts(2, command, "torchrun", {})
    assert caught.value.message == (
        "--max-restarts 2 and COMMAND's --max-restarts 3 exclude each other: rdzv starts the "
        "programs of all nodes again, torchrun only its own node's"
    )
    hint = "remove COMMAND's --max-restarts 3, or launch with --max-restarts 0"
    assert caught.value.hint == hint
    with pytest.raises(UsageError) as caught:
        refuse_two_counts(2, ["train.py"], "torchrun", {"PET_MAX_RESTARTS": "3"})
    assert caught.value.hint == "remove PET_MAX_RESTARTS=3, or launch with --max-restarts 0"
