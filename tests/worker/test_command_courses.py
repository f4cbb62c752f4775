"""What is made of a COMMAND, before there is a table, is as in `command_courses.txt`.

Of each COMMAND: the framework that is chosen, whether it is refused and with which advice, what it
needs, its script, and whether it starts its workers again itself. Who changes a sentence or a table
of names writes the file anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rendezvous.wire.errors import RdzvError
from tests.support.courses import lines_in, text_of
from tests.worker.test_contract_courses import need_words
from tests.worker.told import Told
from worker.contracts import FRAMEWORKS, check_command, needs_of
from worker.contracts.advice import WrongCommand
from worker.contracts.choice import choose_framework
from worker.contracts.flags import read_flags
from worker.contracts.outer import OUTER, matching, without_outer
from worker.contracts.own_restarts import own_restarts
from worker.contracts.python_call import read_python
from worker.contracts.script import script_of
from worker.contracts.torchrun import why_killed_early
from worker.contracts.warm import in_the_way, module_names, threads, warm_words
from worker.contracts.words import end_by_torchrun, last_words, rank_of_failure

KNOWN = Path(__file__).with_name("command_courses.txt")

CHOSEN = """
''
train.py --lr 3
./run
deepspeed --num_gpus 4 train.py
/opt/ds train.py
horovodrun -np 4 python train.py
/opt/bin/horovodrun -H a:2,b:2 train.py
horovodrun --hostfile /h -H a:2 train.py
horovodrun --hostfile=/h
horovodrun -np 4
accelerate launch train.py
/opt/accelerate launch --num-machines 3 --num_processes 12 train.py --seed 7
accelerate launch --num_processes 7 train.py
accelerate launch --machine_rank 2 --main_process_ip a --main-process-port 5 train.py
accelerate launch --deepspeed_multinode_launcher pdsh train.py
accelerate launch --deepspeed_multinode_launcher=standard train.py
accelerate launch --no_python ./train
accelerate launch -m train
accelerate launch python train.py
accelerate launch --multi_gpu python -m train --lr 3
accelerate launch
accelerate config
accelerate-launch --cpu train.py
python -m accelerate.commands.launch --gpu_ids 0,1 train.py
python -u -m accelerate.commands.accelerate_cli launch train.py
python -m accelerate.commands.accelerate_cli config
torchrun train.py
torchrun --nnodes 2 --nproc-per-node=8 --max-restarts 3 train.py --nnodes 7
torchrun --node_rank 1 --master_port 29501 --rdzv-id x train.py
torchrun --rdzv_backend c10d --standalone
torchrun --rdzv-end a:5 -m train secret
torchrun --nproc_per_node 8
torchrun python train.py
torchrun --tee 3 python3.12 -m pkg.train --lr 3
torchrun python -c 'print(1)'
torchrun -
torchrun bash train.sh
torchrun --no-python ./solver
/opt/env/bin/torchrun --role trainer train.py
python -m torch.distributed.run --tee 3 train.py
python -m torch.distributed.launch --use-env --nproc_per_node 4 train.py
python -m torch.distributed.launch --use_env train.py
python3 train.py --lr 3
python3 -X dev -u train.py
python3 -
python3
python3 --version
python3 -m torch.distributed.launch
python3 -um deepspeed train.py
python3 /opt/site-packages/torch/distributed/run.py --nnodes 2 train.py
python3 /opt/bin/torchrun train.py
python3 -m horovod.runner.launch -np 2 train.py
-m torch.distributed.run train.py
-m deepspeed.launcher.runner train.py
mpirun -np 4 ./solver
/opt/mpi/bin/mpiexec.hydra -n 4 ./solver
orterun -x A ./solver
prterun --hostfile h ./solver
FOO=1 BAR=2 train.py --lr 3
FOO=1
PATH=/opt python
tune run full --config x
tune run --nproc_per_node 4 --nnodes 2 full_finetune --config x
tune run --nproc_per_node=2 --nproc-per-node 8
axolotl train config.yml --debug
axolotl preprocess config.yml
llamafactory-cli train config.yaml
lmf train x.yaml
llamafactory-cli export x.yaml
bash run.sh
bash -c 'torchrun train.py'
bash
sh -s
zsh -x run.sh
./run.sh --fast
run.out
srun python train.py
env A=1 python train.py
nvidia-smi
sleep 60
/usr/bin/sleep 60
/dev/stdin
-m train --lr 3
"""
"""Each without a word on its framework."""

NAMED: Mapping[str, str] = {
    "torchrun": """
        --bogus 3 train.py
        -r3 -t 3 train.py
        --max-restarts 0 train.py
        --max_restarts=2 --max-restarts 5 -m train
        /opt/env/bin/python train.py
        /opt/env/bin/python -
        --log-dir /x python train.py
        -- train.py
        --run-path train.py
    """,
    "torch.distributed.launch": """
        train.py
        python -m torch.distributed.launch --max_restarts 4 train.py
        python -m torch.distributed.launch --nnodes 4 --nproc_per_node 2 train.py
        python -m other train.py
        python train.py
        --max-restarts 3
    """,
    "accelerate": """
        train.py
        --use_fsdp train.py
        --num_machines 0 --num_processes 6 train.py
        --num_machines 4 --num_processes 3 train.py
        --num_machines x --num_processes y train.py
        --config_file c.yaml train.py
        --config_file c.yaml --config-file d.yaml train.py
        --max_restarts 3 --mixed_precision bf16 train.py
        --num-p 8 train.py
        python train.py
        /dev/fd/0
    """,
    "deepspeed": """
        train.py
        deepspeed --hostfile h --include a:0 train.py
        deepspeed -H h train.py
        ds --num_nodes 2 --num_gpus 4 --master_port 5 train.py
        deepspeed --no_ssh train.py
        deepspeed --launcher slurm train.py
        deepspeed --launcher PDSH train.py
        deepspeed --launcher openmpi --launcher_args x train.py
        deepspeed --launcher mpich train.py
        deepspeed --launcher impi train.py
        deepspeed --no_python ./prog
        deepspeed python -m train
        python -m pkg.train --lr 3
        --module pkg.train --lr 3
        python train.py
        deepspeed
    """,
    "horovod": """
        train.py
        python train.py
        horovodrun --num-proc 4 --gloo train.py
        horovodrun --host-discovery-script x train.py
        horovodrun --hosts a -
        horovodrun -
        -m train
    """,
    "openmpi": """
        prog -x
        train.py
        mpirun -np 4 -x A --map-by slot prog
        mpirun --hostfile h prog
        mpirun.openmpi --mca plm rsh -H a prog
        mpirun --what 3 --hostfile h prog
        mpirun -n 4 python
        mpirun
        prterun --bind_to core --machinefile m prog
    """,
    "mpich": """
        mpiexec -f hosts prog
        mpiexec -genv A 1 -launcher ssh prog
        mpiexec -l -n 2 prog
        prog
    """,
    "intelmpi": """
        mpirun -ppn 4 -hosts a,b prog
        mpirun -bootstrap ssh prog
        prog
    """,
    "lightning": """
        train.py
        python -
        bash run.sh
    """,
    "tensorflow": """
        train.py
        python -u train.py
    """,
    "jax": """
        train.py
        -m train
        python3.11 -B train.py
    """,
    "env": """
        train.py
        ./solver --rank $RANK
        bash -x run.sh
        sh
        -m train
    """,
    "command": """
        train.py
        bash run.sh
        bash -o pipefail run.sh
        bash +x run.sh
        python -m train
        python -u $SCRIPT
        dash -
        /bin/sh -- run.sh
        ''
    """,
    "bench": "--seconds 7",
    "torchrun-plugin": "/opt/env/bin/torchrun",
}
ENVIRON = {"PET_MAX_RESTARTS": "4", "HOME": "/home/ada"}


def words_of(line: str) -> list[str]:
    """A COMMAND as a shell takes it, without what it would fill in."""
    return shlex.split(line)


def refused(told: Told, step: Callable[[], object]) -> bool:
    """Tell the refusal, if it is one, as everyone may see it and as the person does."""
    try:
        step()
    except WrongCommand as exc:
        told.refused(exc)
        for line in exc.hint_lines(
            lambda one: shlex.join([one.before, *one.options, *one.command])
        ):
            told.lines.append(f"? {line}")
    except RdzvError as exc:
        told.refused(exc)
    else:
        return False
    return True


def of_framework(told: Told, command: list[str], framework: str) -> None:
    """All that is known of it by then."""
    if refused(told, lambda: check_command(command, framework)):
        return
    kind = FRAMEWORKS[framework]
    found = {
        "led": kind.is_led(command),
        "jobwide": kind.jobwide(command),
        "torchrun": shlex.join(kind.torchrun(command)),
        "config": [kind.config_file(command, ENVIRON), kind.config_file(command, {})],
        "restarts": [
            own_restarts(command, framework, {}),
            own_restarts(command, framework, ENVIRON),
        ],
    }
    told.lines += [
        f"- {name}: {value}" for name, value in found.items() if value not in (False, "", ["", ""])
    ]
    everywhere = needs_of(framework, command, leads=False)
    for need in needs_of(framework, command, leads=True):
        first = "" if need in everywhere else " (of the first node)"
        rivals = "".join(f" not {one.name}: {one.version} -> {one.instead}" for one in need.rivals)
        told.lines.append(f"- need: {need_words(need).partition(' rivals=')[0]}{rivals}{first}")
    for environ in ({}, {"PET_RUN_PATH": "1"}):
        script = script_of(framework, command, environ)
        if script is not None:
            told.lines.append(f"- script: {script.path}{' on PATH' * script.on_path} {[*environ]}")
    if framework == "torchrun":
        refused(
            told, lambda: told.lines.append(f"- warm: {warm_words(command, framework, 'static')}")
        )


def which_framework_is_chosen() -> Told:
    """Of a COMMAND without a word on it; and all that follows for that one."""
    told = Told()
    for line in CHOSEN.strip().splitlines():
        command = words_of(line)
        told.of(line)
        chosen: list[str] = []

        def choose(command: list[str] = command, chosen: list[str] = chosen) -> None:
            found = choose_framework(command)
            chosen.append(found.framework)
            told.lines.append(f"- {found.framework} by {found.launcher or 'default'}")

        if not refused(told, choose):
            of_framework(told, command, chosen[0])
    return told


def what_each_framework_takes() -> Told:
    """Of those that were named."""
    told = Told()
    for framework, lines in NAMED.items():
        for line in lines.strip().splitlines():
            told.of(f"{framework}: {line.strip()}")
            of_framework(told, words_of(line), framework)
        told.of(f"{framework}: nothing at all")
        refused(told, lambda framework=framework: check_command([], framework))  # type: ignore[misc]
    for framework, kind in FRAMEWORKS.items():
        told.of(framework, removes=kind.removes, keeps=[*kind.keeps])
        told.of(framework, [kind.takes_backend, kind.looks_up_name])
        refused(told, lambda framework=framework: warm_words(["train.py"], framework, "c10d"))  # type: ignore[misc]
    return told


# --- words ----------------------------------------------------------------------------------------

RECORD = (
    "E1128 02:31:17.480000 4711 site-packages/torch/distributed/elastic/multiprocessing/api.py:9]"
)
LINES = (
    *(
        "epoch 7",
        "",
        "rdzv: process 9 (local rank 1) failed first",
        f"W{RECORD[1:]} Sending SIGTERM",
    ),
    *("ValueError: bad", "rdzv: process 12 (local rank 4) failed first"),
    *(f"{RECORD} failed (exitcode: 1) local_rank: 2", "Traceback", "  exitcode  : -9 (pid: 4713)"),
    *("  exitcode  : 3 (pid: 4712)", "======"),
)


def how_words_are_read() -> Told:
    """Flags of launchers and of Python, last lines, names, and what an outer launcher has set."""
    told = Told()
    for line in (
        "-u -X dev -m a b",
        "-Xdev -um",
        "-uc x",
        "-Wx -W y -",
        "--x y",
        "-hV a",
        "-bB",
        "",
    ):
        told.of(f"python {line}", read_python(words_of(line)))
    for line in ("-np 4 -r3 --a=b -v x y", "-v --c", "-- x", "- x", "--d_e f --g-h", "-np=4 --v t"):
        flags, at = read_flags(words_of(line), ("v",), ("np",))
        told.of(
            f"flags {line}",
            *([flag.name, flag.words, flag.one_of(("c", "def", "d-e"))] for flag in flags),
            at=at,
        )
    for many in (20, 2, 1):
        told.of(f"last words {many}", *last_words(LINES, most=many))
    told.of("last words", last_words(LINES[3:4]), last_words(LINES[2:3]), last_words(()))
    told.of("failures", rank_of_failure(LINES), rank_of_failure(LINES[:3]), rank_of_failure(()))
    told.of("ends", end_by_torchrun(LINES), end_by_torchrun(LINES[:9]), end_by_torchrun(()))
    for version in ("2.11.3", "2.12.0+cu130", "3.0", "1.13", "2", "2.x", ""):
        told.of(f"torch {version}", why_killed_early(version))
    for text in ("", "a, b.c ,d", "a,,b", "a-b", "1a"):
        told.of(f"modules {text}")
        try:
            told.lines.append(f"- {module_names(text)}")
        except ValueError as exc:
            told.refused(exc)
    for environ in ({}, {"A": "1", "PET_NNODES": "1", "PET_TEE": "3"}, {"PYTHON_EXEC": "x"}):
        told.of(f"{environ}", in_the_way(environ), threads(1, environ), threads("gpu", environ))
    for environ in (
        *(
            {"HOME": "/h"},
            {"XDG_CACHE_HOME": "/c", "HOME": "/h"},
            {"HF_HOME": "~/hf", "HOME": "/h"},
        ),
        *(
            {"HF_HOME": "/hf", "XDG_CACHE_HOME": "/c"},
            {"XDG_CACHE_HOME": "/c"},
            {"HF_HOME": "~/hf"},
        ),
    ):
        told.of(f"{environ}", FRAMEWORKS["accelerate"].config_file(["train.py"], environ))
    told.of("OMP_NUM_THREADS", threads(4, {"OMP_NUM_THREADS": "2"}), threads(2, {}))
    told.of("outer", [*OUTER])
    theirs = dict.fromkeys(
        ("SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID", "PMI_", "PMIX_RANK"), "1"
    )
    told.of("matching", *matching(("SLURM_STEP_*", "PMI_*", "SLURM_PROC", "SLURM_PROCID"), theirs))
    return told.of(
        "without", without_outer(theirs, {}), without_outer(theirs, {"PMI_*": "", "A": ""})
    )


COURSES = {
    one.__name__: one
    for one in (which_framework_is_chosen, what_each_framework_takes, how_words_are_read)
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_made_of_a_command(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
