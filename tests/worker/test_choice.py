"""Which framework a COMMAND belongs to where none was named, by value."""

from __future__ import annotations

import shlex

import pytest

from rendezvous.wire.errors import UsageError
from tests.support.rows import rows
from tests.worker.test_contracts import contract
from worker.contracts import check_command, choice
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
        (
            "python -um accelerate.commands.launch x.py",
            "accelerate",
            "python -um accelerate.commands.launch",
        ),
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
    assert ": rdzv launch --framework command -- " in caught.value.hint
    line = caught.value.hint.partition(" -- ")[2].partition(" ...")[0]
    check_command([line, "x"], "command")


KEYED = "API_KEY=secret B=2 train.py --lr 1"


@pytest.mark.parametrize(
    ("command", "words", "hint"),
    [
        ("mpirun -np 4 ./x", f"'mpirun', {OF_MPI}", WHICH_MPI.format("mpirun")),
        ("/usr/bin/mpiexec ./x", f"'mpiexec', {OF_MPI}", WHICH_MPI.format("/usr/bin/mpiexec")),
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


@pytest.mark.parametrize(
    ("framework", "command", "works"),
    rows(
        """
        torchrun | torchrun --tee 3 python -u train.py -x | torchrun --tee 3 train.py ...
        torchrun | torchrun python3.11 -m a.b | torchrun -m a.b
        torch.distributed.launch | python -O train.py --lr 1 | train.py ...
        accelerate | accelerate launch --debug python t.py | accelerate launch --debug t.py
        accelerate | /usr/bin/python3 -um a.b --lr 1 | -m a.b ...
        deepspeed | deepspeed python t.py | deepspeed t.py
        """
    ),
)
def test_an_interpreter_for_a_launcher_that_starts_python_is_refused_with_the_line_that_works(
    framework: str, command: str, works: str
) -> None:
    with pytest.raises(UsageError, match=r"COMMAND names '.*python.*', but .* starts Python") as e:
        check_command(command.split(), framework)
    assert e.value.hint == f"use rdzv launch -- {works}"
    check_command(works.removesuffix(" ...").split(), framework)


@pytest.mark.parametrize(
    "command",
    [
        *("python train.py", "python3 -u train.py --lr 1", "/opt/py/bin/python3.11 -O -m a.b"),
        *("python -X dev -W error -c pass", "python3.12 -um a.b", "python -B my_torchrun.py"),
    ],
)
def test_the_interpreter_that_a_command_names_is_started_by_torchrun_unbuffered(
    command: str,
) -> None:
    words = command.split()
    assert choose_framework(words) == FrameworkChoice("torchrun")
    check_command(words, "torchrun")
    made = contract(*words)
    assert made.argv[0] == "torchrun"
    assert made.argv[-len(words) - 2 :] == ["--no-python", words[0], "-u", *words[1:]]
    assert [need.program for need in made.needs] == [words[0], "torchrun"]


@pytest.mark.parametrize(
    "command", ["accelerate launch --no_python python t.py", "deepspeed --no_python python t.py"]
)
def test_a_launcher_that_is_told_to_start_no_python_may_start_one(command: str) -> None:
    check_command(command.split(), choose_framework(command.split()).framework)


LAUNCHER_IN_PYTHON = """
-m accelerate.commands.launch --cpu t.py | accelerate launch ...
python3 -u -m deepspeed t.py | deepspeed ...
-m torch.distributed.run t.py | torchrun ...
python /opt/bin/torchrun --tee 3 t.py | /opt/bin/torchrun ...
python -u bin/accelerate launch t.py | bin/accelerate ...
python3 /x/torch/distributed/run.py t.py | torchrun ...
"""


@pytest.mark.parametrize(("command", "works"), rows(LAUNCHER_IN_PYTHON))
def test_a_launcher_is_not_started_once_for_each_process(command: str, works: str) -> None:
    with pytest.raises(UsageError, match="would start this launcher once for each process") as e:
        choose_framework(command.split())
    assert e.value.hint == f"use rdzv launch -- {works}"


@pytest.mark.parametrize("flags", ["-u", "-u -B", "-X dev"])
def test_torchrun_as_a_module_may_have_flags_of_python(flags: str) -> None:
    words = f"python {flags} -m torch.distributed.run --tee 3 train.py".split()
    assert choose_framework(words) == FrameworkChoice("torchrun")
    argv = contract(*words).argv
    assert argv[: argv.index("--nnodes")] == words[:-3]
    assert argv[-3:] == words[-3:]
    launch = f"python {flags} -m torch.distributed.launch train.py".split()
    assert choose_framework(launch).framework == "torch.distributed.launch"


TOOLS = """
tune run full --config c.yml | --framework env -- tune ...: without torchrun's flags 'tune run'
llamafactory-cli train c.yml | -- -m llamafactory.launcher ...
lmf train c.yml | -- -m llamafactory.launcher ...
llamafactory-cli export c.yml | --framework command -- llamafactory-cli ...; or to start it once for
axolotl train c.yml | -- -m axolotl.cli.train ...
ray start --head | --framework command -- ray ...; or to start it once for each rank, with RANK
vllm serve m | --framework command -- vllm ...; or to start it once for each rank, with RANK
axolotl.sh x | --framework command -- axolotl.sh ...; or to start it once for each rank, with RANK
"""


@pytest.mark.parametrize(("command", "works"), rows(TOOLS))
def test_a_tool_that_starts_its_own_ranks_is_refused_with_what_starts_it(
    command: str, works: str
) -> None:
    with pytest.raises(UsageError, match="is not a Python script, but torchrun") as e:
        choose_framework(command.split())
    assert e.value.hint.partition("rdzv launch ")[2].startswith(works)


def test_what_both_ways_of_starting_any_program_do_is_said() -> None:
    with pytest.raises(UsageError) as e:
        choose_framework(["ray", "start"])
    node, rank = e.value.hint.split("; or ")
    assert "it must start its ranks itself, from NNODES, NODE_RANK, NPROC_PER_NODE, " in node
    assert rank == (
        "to start it once for each rank, with RANK, LOCAL_RANK and WORLD_SIZE: "
        "rdzv launch --framework env -- ray ..."
    )


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


@pytest.mark.parametrize(
    ("command", "left", "options"),
    [
        ("tune run recipe --config x", "tune run recipe --config x", ""),
        ("tune run --nnodes 2 recipe --nproc 3", "tune run recipe --nproc 3", ""),
        ("tune run --nproc-per-node 4 recipe -x", "tune run recipe -x", "--nproc-per-node 4"),
        ("tune run --nproc_per_node=4 --nproc-per-node 2 a", "tune run a", "--nproc-per-node 2"),
        ("tune run --standalone a", "tune run a", ""),
    ],
)
def test_flags_of_a_torchrun_in_front_of_a_recipe_are_dropped(
    command: str, left: str, options: str
) -> None:
    assert choice._without_torchrun(command.split()) == (left.split(), options.split())
