"""The run files of examples/runs: launch files of public projects, written anew.

Each is launched as it is but for its size and its scheduler, which are this machine's. In place of
the project's program there is one that forms the group on CPUs and tells what it got.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher.run_file.text import read_toml, read_yaml
from tests.frameworks.environments import ENVIRONMENTS
from tests.support.launching import RDZV

RUNS = Path(__file__).parents[2] / "examples" / "runs"
FILES = sorted(path.name for path in RUNS.iterdir())
PROGRAM = """\
import json, os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
rank, world = dist.get_rank(), dist.get_world_size()
with open(os.environ["TOLD"] + f"/{rank}", "w") as file:
    told = {"argv": sys.argv[1:], "env": dict(os.environ), "total": int(total), "world": world}
    json.dump(told, file)
dist.barrier()
sys.stdout.flush()
os._exit(0)
"""
LOCAL = ("--scheduler", "local", "--local-node", "--nnodes", "2", "--nproc-per-node", "1")

pytestmark = [pytest.mark.timeout(120), pytest.mark.frameworks("torch")]


def values_of(name: str) -> dict[str, Any]:
    """The values of a run file."""
    text = (RUNS / name).read_text()
    return dict((read_toml if name.endswith(".toml") else read_yaml)(text).values)


def program_of(values: dict[str, Any]) -> tuple[str, str, list[str]]:
    """The program of a run, as the file has it and as a relative path; and the words behind it."""
    command = values["command"]
    words = command.split() if isinstance(command, str) else [*map(str, command)]
    at = next(n for n, word in enumerate(words) if word.endswith(".py") or word == "-m")
    if words[at] == "-m":
        return words[at + 1], words[at + 1].replace(".", "/") + ".py", words[at + 2 :]
    return words[at], words[at].lstrip("./"), words[at + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_a_public_run_starts_from_its_file(name: str, tmp_path: Path) -> None:
    values = values_of(name)
    named, path, behind = program_of(values)
    program = tmp_path / path
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(PROGRAM)
    text = (RUNS / name).read_text()
    if named.endswith(".py"):
        text = text.replace(named, path)  # a path of theirs
    (tmp_path / name).write_text(text)
    for file in values.get("env-file", []):
        (tmp_path / file).write_text("FROM_FILE=yes\n")
    if "open-r1" in name:
        config = tmp_path / "recipes/accelerate_configs/zero3.yaml"
        config.parent.mkdir(parents=True)
        config.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\n")
    (tmp_path / "told").mkdir()
    environ = {
        **os.environ,
        "PATH": f"{ENVIRONMENTS['torch'].bin}:{os.environ['PATH']}",
        "RDZV_STATE_DIR": str(tmp_path / "state"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [RDZV, "launch", "-f", name, *LOCAL, "--env", f"TOLD={tmp_path}/told"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / "told" / str(rank)).read_text()) for rank in range(2)]
    assert [(one["total"], one["world"]) for one in told] == [(2, 2)] * 2
    for one in told:
        assert one["argv"] == behind
        env = {key: str(value) for key, value in values.get("env", {}).items()}
        env |= {"FROM_FILE": "yes"} if "env-file" in values else {}
        assert env.items() <= one["env"].items()
    assert "has a variable of that name" in done.stderr or "SBATCH" not in done.stderr


def test_there_are_six() -> None:
    assert len(FILES) == 6
