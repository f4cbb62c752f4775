"""Every line of the right column of docs/migrate.md, executed as it stands there.

The programs that it names are stand-ins on PATH, which write down what they were started with; rdzv
and its launches are real. Slurm's srun sets the variables of a step of one node, the platforms
those of a job of one node.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from launcher.cli import main
from launcher.torchrun.asked import read_asked
from launcher.torchrun.head import head_words
from rendezvous.talk.join_string import group_token_text
from tests.support import environments as env
from tests.support.launching import RDZV
from tests.support.nightly import but_at_night
from tests.torchrun.test_asked import begin

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]

PAGE = Path(__file__).parent.parent.parent / "docs" / "migrate.md"
NAMES = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "singularity",
    "apptainer",
    "tune",
    "bash",
    "module",
)
STAND_IN = """#!/bin/sh
file=$RECORDS/$(basename "$0").$$
{ for word in "$0" "$@"; do echo "$word"; done; echo ===; env; } > $file.part
mv $file.part $file
"""
SRUN = """#!/bin/sh
while case $1 in -*) true;; *) false;; esac; do echo "$1" >> $RECORDS/../srun; shift; done
host=$(hostname)
export SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1 SLURM_LOCALID=0
export SLURM_STEP_NODELIST=${host%%.*} SLURMD_NODENAME=${host%%.*} SLURM_STEP_TASKS_PER_NODE=1
exec "$@"
"""
VESSL = """name: <<NAME>>
image: team
resources: {cluster: c, preset: p}
run: rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>
"""
TABLE = ["--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port"]
"""What rdzv decides of a torchrun."""
ONE_NODE = {"SLURM_NNODES": "1"}
RANKS = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
FOR_TORCHRUN = {"NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT"}
SKYPILOT = env.SKYPILOT | {
    "SKYPILOT_NODE_RANK": "0",
    "SKYPILOT_NUM_NODES": "1",
    "SKYPILOT_NODE_IPS": "127.0.0.1",
    "SKYPILOT_NUM_GPUS_PER_NODE": "2",
}
DSTACK = {
    "DSTACK_NODE_RANK": "0",
    "DSTACK_NODES_NUM": "1",
    "DSTACK_NODES_IPS": "127.0.0.1",
    "DSTACK_MASTER_NODE_IP": "127.0.0.1",
    "DSTACK_RUN_NAME": "otter",
    "DSTACK_GPUS_PER_NODE": "2",
}
PYTORCHJOB = env.NEWER_PYTORCHJOB | {
    "PET_NNODES": "1",
    "PET_NODE_RANK": "0",
    "PET_MASTER_ADDR": "localhost",
    "MASTER_ADDR": "localhost",
    "RANK": "0",
}
AZUREML = env.AZUREML_PYTORCH | {
    "NODE_RANK": "0",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "AZUREML_NODE_COUNT": "1",
    "MASTER_ADDR": "127.0.0.1",
    "AZ_BATCH_MASTER_NODE": "127.0.0.1:6000",
}


@dataclass(frozen=True)
class Starts:
    """What a row's line starts.

    Attributes:
        program: The stand-in.
        times: How often.
        words: What is among its words, next to each other.
        flags: Flags among them.
        sets: The variables that it sees.
        environ: What is set where the line stands.
        path: The end of the path of the stand-in that was taken.
        beside: What it printed, or submitted, too.
    """

    program: str = "torchrun"
    times: int = 1
    words: str = "train.py"
    flags: tuple[str, ...] = tuple(TABLE)
    sets: frozenset[str] = frozenset()
    environ: dict[str, str] = field(default_factory=dict)
    path: str = ""
    beside: tuple[str, ...] = ()


def of_two(words: str = "train.py", **more: object) -> Starts:
    return Starts(times=2, words=words, **more)  # type: ignore[arg-type]


def by_ranks(program: str, words: str) -> Starts:
    """Once for each of four ranks."""
    return Starts(program, 4, words, (), frozenset(RANKS))


def shown(*beside: str) -> Starts:
    """A dry run starts nothing."""
    return Starts(times=0, words="", flags=(), beside=beside)


EXPECTED: dict[str, Starts] = {
    "head_node_ip=": Starts(environ=ONE_NODE),
    "$SLURM_PROCID": Starts(words="--nproc-per-node 2", environ=ONE_NODE),
    "--kill-on-bad-exit": Starts(environ=ONE_NODE),
    "pyxis": Starts(environ=ONE_NODE, beside=("--container-image=IMAGE",)),
    "`sbatch job.sh`": shown("sbatch --partition=gpu --parsable", "rdzv worker --nnodes 2"),
    "--rdzv_backend=c10d": of_two("--nproc-per-node 2"),
    "`torchrun --max-restarts": of_two(),
    "--redirects": of_two("--tee 3 --log-dir logs --redirects 3"),
    "for a log of each rank": of_two(),
    "export MASTER_ADDR": of_two("--master-port 29511"),
    "module load": of_two(),
    "conda activate": of_two(path="env/bin/torchrun"),
    "singularity exec": by_ranks("singularity", "exec --nv i.sif python3 train.py"),
    "apptainer exec": by_ranks("apptainer", "exec --nv i.sif python3 train.py"),
    "`bash run.sh`": Starts("bash", 2, "run.sh", (), frozenset(FOR_TORCHRUN)),
    "tune run": by_ranks("tune", "run RECIPE --config C"),
    "llamafactory-cli": of_two("-m llamafactory.launcher c.yaml"),
    "axolotl train": of_two("-m axolotl.cli.train c.yaml"),
    "--machine_rank": Starts(
        *("accelerate", 2, "launch"),
        ("--mixed_precision", "--num_machines", "--num_processes", "--machine_rank"),
    ),
    "accelerate config": Starts(
        "accelerate", 2, "launch", ("--config_file", "--num_machines", "--main_process_ip")
    ),
    "--num_nodes 2": Starts(
        *("deepspeed", 2, "train.py --deepspeed"), ("--no_ssh", "--node_rank", "--master_addr")
    ),
    "--hostfile hosts": shown("ssh://", "--no_ssh", "--node_rank 1"),
    "mpirun -np 4": shown("ssh://", "mpirun -np 4"),
    "SkyPilot": Starts(words="--nproc-per-node 2", environ=SKYPILOT),
    "dstack": Starts(words="--nproc-per-node 2", environ=DSTACK),
    "| PyTorchJob": Starts(words="--nproc-per-node 2", environ=PYTORCHJOB),
    "elastic PyTorchJob": Starts(
        words="--rdzv-backend=rdzv --rdzv-id=bert train.py",
        flags=(),
        sets=frozenset({"PET_RDZV_ENDPOINT", "PET_NNODES"}),
        environ=env.ELASTIC_PYTORCHJOB,
    ),
    "Azure ML": Starts(words="--nproc-per-node 2", environ=AZUREML),
    "VESSL": shown("vessl run create -f", "rdzv worker --nnodes 2", "team"),
}
"""By what the left column of its row has alone."""


def rows() -> list[tuple[str, str]]:
    """Of each row, all of it and the line of its right column."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = line.split(" | ")
        if len(cells) == 3 and not line.startswith(("| in your", "| ---")):
            assert re.fullmatch(r"`[^`]+`", cells[1]), line
            found.append((line, cells[1].strip("`")))
    return found


def test_each_row_of_the_page_is_expected_once() -> None:
    lines = [line for line, _ in rows()]
    for mark in EXPECTED:
        assert sum(mark in line for line in lines) == 1, mark
    assert len(lines) == len(EXPECTED)


ALL_DAYS = ("pyxis", "conda activate", "elastic PyTorchJob")


@pytest.mark.parametrize("mark", EXPECTED)
def test_what_a_row_would_start(mark: str, tmp_path: Path) -> None:
    """The shell reads the line, and rdzv's words become a dry run."""
    [line] = [line for row, line in rows() if mark in row]
    expected, place = EXPECTED[mark], bench(tmp_path)
    if "rdzv launch" not in line:
        return
    (tmp_path / "bin" / "rdzv").unlink()
    executable(tmp_path / "bin" / "rdzv", STAND_IN)
    around = expected.environ | surroundings(tmp_path, symmetric=bool(expected.environ))
    subprocess.run(["/bin/sh", "-c", line], cwd=place, env=around, check=True)
    found = [read(file) for file in sorted((tmp_path / "records").glob("rdzv.*"))]
    [(argv, seen)] = [one for one in found if one[0][1] == "launch"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        told = {name: seen.get(name) for name in {*os.environ, *seen}}
        given = ["--dry-run=full" if word == "--dry-run" else word for word in argv[2:]]
        done = CliRunner().invoke(main, ["launch", "--dry-run=full", *given], env=told)
    said = done.output
    assert done.exit_code == 0, said
    for words in (*expected.flags, *expected.beside) if not expected.environ else expected.flags:
        assert words in said
    assert expected.words in said


@pytest.mark.parametrize("mark", but_at_night(EXPECTED, *ALL_DAYS))
def test_the_line_of_a_row_works_as_it_stands(mark: str, tmp_path: Path) -> None:
    [line] = [line for row, line in rows() if mark in row]
    expected = EXPECTED[mark]
    place = bench(tmp_path)
    done = subprocess.run(
        ["/bin/sh", "-c", line.replace("--dry-run", "--dry-run full")],
        cwd=place,
        env=expected.environ | surroundings(tmp_path, symmetric=bool(expected.environ)),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    records = [file for file in (tmp_path / "records").iterdir() if file.suffix != ".part"]
    started = [read(file) for file in records if file.name.startswith(f"{expected.program}.")]
    assert len(started) == expected.times, said
    for argv, seen in started:
        assert f" {expected.words} " in f" {' '.join(argv[1:])} ", argv
        assert set(expected.flags) <= {word.partition("=")[0] for word in argv}, argv
        assert expected.sets <= set(seen), seen
        assert argv[0].endswith(expected.path)
        assert "RDZV_TOKEN_FILE" not in seen or mark == "elastic PyTorchJob"
    if (tmp_path / "srun").exists():
        said += (tmp_path / "srun").read_text()
    for words in expected.beside:
        assert words in said


def test_the_elastic_jobs_variables_are_what_the_plug_in_takes() -> None:
    asked = read_asked(begin(env.ELASTIC_PYTORCHJOB["PET_RDZV_ENDPOINT"], run="bert"))
    assert (asked.host, asked.port, asked.run, asked.size) == ("lm-worker-0", 23456, "bert", (2, 4))
    assert "--rdzv-endpoint=10.0.0.7:23456" in head_words(asked, ["10.0.0.7"])


def bench(folder: Path) -> Path:
    """The folder where the line stands, with what it names."""
    place, programs = folder / "job", folder / "bin"
    for made in (place / "env" / "bin", programs, folder / "records"):
        made.mkdir(parents=True)
    for name in NAMES:
        executable(programs / name, STAND_IN)
    executable(programs / "srun", SRUN)
    (programs / "rdzv").symlink_to(RDZV)
    executable(place / "env" / "bin" / "torchrun", STAND_IN)
    (place / "env" / "bin" / "activate").write_text("PATH=$PWD/env/bin:$PATH\n")
    for name in ("train.py", "c.yaml", "run.sh"):
        (place / name).write_text("")
    (place / "worker.yaml").write_text(VESSL)
    (place / "hosts").write_text("a slots=2\nb slots=2\n")
    return place


def surroundings(folder: Path, *, symmetric: bool) -> dict[str, str]:
    """What is set where a line stands; on a platform also the group token."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = folder / "token"
    token.write_text(group_token_text(bytes(range(32))))
    token.chmod(0o600)
    return {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        "HOME": str(folder),
        "RECORDS": str(folder / "records"),
        "RDZV_STATE_DIR": str(folder / "state"),
        "RDZV_HOSTS": "off",
        **({"RDZV_TOKEN_FILE": str(token), "RDZV_PORT": str(port)} if symmetric else {}),
        **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE")},
    }


def executable(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def read(file: Path) -> tuple[list[str], dict[str, str]]:
    """A stand-in's words, and its variables."""
    words, _, variables = file.read_text().partition("\n===\n")
    seen = (line.partition("=") for line in variables.splitlines())
    return words.splitlines(), {name: value for name, _, value in seen}
