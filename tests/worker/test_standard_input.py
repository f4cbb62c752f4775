"""A COMMAND that would read its program from standard input, which is empty, is refused."""

from __future__ import annotations

import shlex

import pytest

from rendezvous.wire.errors import UsageError
from worker.contracts import FRAMEWORKS, check_command, choose_framework

READS = "would read its program from standard input, which is empty on every node"


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "bench"])
def test_a_script_on_standard_input_is_refused_for_every_framework(framework: str) -> None:
    for command in (["-"], ["/dev/stdin", "--epochs", "3"]):
        with pytest.raises(UsageError, match=READS) as caught:
            check_command(command, framework)
        assert "rdzv launch -- train.py" in caught.value.hint


@pytest.mark.parametrize(
    "words",
    """
    torchrun: torchrun --max-restarts 3 -
    torchrun: torchrun --no-python bash -s
    torchrun: --no-python python3 -u
    torch.distributed.launch: python -m torch.distributed.launch --use-env -
    accelerate: accelerate launch --mixed_precision bf16 -
    deepspeed: deepspeed - --deepspeed
    horovod: horovodrun -np 4 python -
    horovod: python -
    openmpi: mpirun -np 4 --mca pml ob1 python3 -u -
    mpich: mpiexec -n 4 bash
    env: python3.11 -u -W ignore -X dev
    command: /usr/bin/python -
    command: python /dev/stdin
    command: bash
    command: bash -e -x
    command: bash -s --flag value
    command: sh -
    command: sh -es a b
    command: bash /dev/stdin
    : -
    : bash -s
    : python -
    : torchrun -
    """.strip().splitlines(),
)
def test_an_interpreter_without_a_script_is_refused(words: str) -> None:
    """Also where the framework is chosen by the COMMAND."""
    framework, command = words.split(":")[0].strip(), words.split(":")[1].split()
    with pytest.raises(UsageError, match=READS):
        check_command(command, framework or choose_framework(command).framework)


@pytest.mark.parametrize(
    "command",
    """
    python x.py -
    python -c 'print(1)'
    python -um package -
    python -W ignore x.py
    python --version
    python -V
    bash x.sh -s
    bash -c true
    bash -ec true
    bash -o pipefail x.sh
    bash -x x.sh
    bash - x.sh
    bash --norc x.sh
    bash --version
    ./x - -s
    cat -
    """.strip().splitlines(),
)
def test_what_has_a_program_of_its_own_is_taken(command: str) -> None:
    check_command(shlex.split(command), "command")
