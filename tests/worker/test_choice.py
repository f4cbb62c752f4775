"""Which framework a COMMAND belongs to where none was named, by value."""

from __future__ import annotations

import shlex

import pytest

from rendezvous.wire.errors import UsageError
from worker.contracts import check_command
from worker.contracts.choice import FrameworkChoice, choose_framework
from worker.settings import NodeSettings, WorkerSettings, settle_framework

LAUNCH = "python3 -m torch.distributed.launch"
OF_MPI = "which Open MPI, MPICH and Intel MPI all have"
WHICH_MPI = (
    "use rdzv launch --framework openmpi -- {0} ..., or --framework mpich or intelmpi; "
    "'{0} --version' says which one it is"
)


@pytest.mark.parametrize(
    ("command", "framework", "launcher"),
    [
        ("accelerate launch --mixed_precision bf16 x.py", "accelerate", "accelerate launch"),
        ("/opt/bin/accelerate-launch x.py", "accelerate", "accelerate-launch"),
        ("deepspeed x.py --deepspeed", "deepspeed", "deepspeed"),
        ("ds --launcher pdsh x.py", "deepspeed", "ds"),
        ("horovodrun -np 4 python x.py", "horovod", "horovodrun"),
        ("orterun -np 4 ./x", "openmpi", "orterun"),
        ("prterun -np 4 ./x", "openmpi", "prterun"),
        (f"/usr/bin/{LAUNCH} x.py", "torch.distributed.launch", LAUNCH),
    ],
)
def test_a_frameworks_launcher_chooses_it(command: str, framework: str, launcher: str) -> None:
    words = command.split()
    chosen = choose_framework(words)
    assert (chosen.framework, chosen.launcher) == (framework, launcher)
    check_command(words, chosen.framework)


@pytest.mark.parametrize(
    "command",
    [
        *("train.py --nnodes 9", "./train", "train", "package", "-m package.module"),
        *("--max-restarts 3 train.py", "torchrun --tee 3 train.py", "torchrun --no-python ./x.sh"),
        *("--no-python bash -c true", "--no-python ./FOO=1", "./env --epochs 3"),
        *("./dir=1/train.py", "python -m torch.distributed.run --tee 3 train.py"),
    ],
)
def test_what_may_be_a_python_script_is_torchruns(command: str) -> None:
    assert choose_framework(command.split()) == FrameworkChoice("torchrun")
    check_command(command.split(), "torchrun")


@pytest.mark.parametrize(
    "command",
    [
        *("bash -c true", "/bin/sh x", "./x.sh", "env A=1 train.py", "nvidia-smi", "./a.out"),
        *("torchrun --tee 3 ./x.sh", "accelerate test", "srun train.py"),
    ],
)
def test_what_is_no_python_script_is_refused_with_the_command_line_that_works(command: str) -> None:
    with pytest.raises(UsageError, match="is not a Python script, but torchrun") as caught:
        choose_framework(command.split())
    assert caught.value.hint.startswith("use rdzv launch --framework command -- ")
    line = caught.value.hint.partition(" -- ")[2].partition(" ...")[0]
    check_command([line, "x"], "command")


KEYED = "API_KEY=secret B=2 train.py --lr 1"


@pytest.mark.parametrize(
    ("command", "words", "hint"),
    [
        ("mpirun -np 4 ./x", f"'mpirun', {OF_MPI}", WHICH_MPI.format("mpirun")),
        ("/usr/bin/mpiexec ./x", f"'mpiexec', {OF_MPI}", WHICH_MPI.format("mpiexec")),
        ("mpiexec.hydra ./x", f"'mpiexec.hydra', {OF_MPI}", WHICH_MPI.format("mpiexec.hydra")),
        (KEYED, "'API_KEY='", "use API_KEY=... rdzv launch --pass-env API_KEY -- train.py ..."),
        ("-m deepspeed x.py", "'-m deepspeed'", "use rdzv launch -- deepspeed ..."),
    ],
)
def test_what_leaves_the_framework_open_is_refused(command: str, words: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_framework(command.split())
    assert caught.value.message.startswith(f"COMMAND begins with {words}")
    assert caught.value.hint == hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("command", ["python train.py", "torchrun python train.py"])
def test_python_in_front_of_torchruns_script_is_left_to_its_own_refusal(command: str) -> None:
    assert choose_framework(command.split()) == FrameworkChoice("torchrun")
    with pytest.raises(UsageError, match="COMMAND names 'python', but torchrun"):
        check_command(command.split(), "torchrun")


def test_an_empty_command_is_left_to_the_check() -> None:
    found = [choose_framework(command) for command in ([], [""], [" "])]
    assert found == [FrameworkChoice("torchrun")] * 3


def test_what_was_not_named_is_settled_by_the_command_and_what_was_named_is_kept() -> None:
    settings, choice = settle_framework(NodeSettings(), shlex.split("accelerate launch x.py"))
    assert settings.framework == "accelerate"
    assert choice == FrameworkChoice("accelerate", "accelerate launch")
    assert settle_framework(settings, ["train.py"]) == (settings, None)
    plain = NodeSettings()
    assert settle_framework(plain, ["train.py"]) == (plain, FrameworkChoice("torchrun"))
    assert settle_framework(WorkerSettings(framework="env"), ["deepspeed", "x"])[1] is None
