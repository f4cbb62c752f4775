"""A program that PATH has not is found in rdzv's own environment, where it can start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.test_user_python import interpreter, script, with_torch
from worker.agent.early import look_script
from worker.contracts import needs_of
from worker.contracts.framework import Need
from worker.machine.user_python import look_user_python
from worker.preflight.needs import missing_of
from worker.preflight.own_environment import Completed, complete_path, own_folders

TORCHRUN = needs_of("torchrun", ["train.py"], leads=True)
SHIM = "#!{}\nfrom torch.distributed.run import main\n"


def own(prefix: Path, name: str = "torchrun") -> Path:
    """An environment with torch, and this program in its folder."""
    python = with_torch(prefix)
    return script(prefix / "bin" / name, SHIM.format(python).rstrip("\n"))


def completed(path: Path | str, *folders: Path, needs: tuple[Need, ...] = TORCHRUN) -> Completed:
    return complete_path(needs, {"PATH": str(path), "A": "1"}, [str(one) for one in folders])


def test_a_torchrun_that_only_rdzvs_own_environment_has_is_used_and_named(tmp_path: Path) -> None:
    torchrun = own(tmp_path / "own")
    found = completed("/nowhere", torchrun.parent)
    assert found.environ == {"PATH": f"/nowhere:{torchrun.parent}", "A": "1"}
    assert found.sentence == (
        f"'torchrun' is not on PATH: using {torchrun}, of rdzv's own environment"
    )
    assert missing_of(TORCHRUN, found.environ) == ""
    assert look_user_python("torchrun", found.environ).torch == "2.9.0+cu128"
    assert look_script("torchrun", found.environ)[0] == str(torchrun)
    assert completed("", torchrun.parent).environ["PATH"] == str(torchrun.parent)


def test_the_torchrun_of_path_always_wins(tmp_path: Path) -> None:
    theirs = script(tmp_path / "theirs/torchrun", "#!/bin/sh")
    torchrun = own(tmp_path / "own")
    found = completed(theirs.parent, torchrun.parent)
    assert (found.environ["PATH"], found.sentence) == (str(theirs.parent), "")


@pytest.mark.parametrize("lacks", ["torch", "interpreter", "torchrun"])
def test_a_torchrun_that_cannot_start_does_not_count(tmp_path: Path, lacks: str) -> None:
    torchrun = own(tmp_path / "own")
    if lacks == "torch":
        (tmp_path / "own/lib/python3.12/site-packages/torch/version.py").unlink()
        (tmp_path / "own/lib/python3.12/site-packages/torch").rmdir()
    elif lacks == "interpreter":
        (tmp_path / "own/bin/python3").unlink()
    else:
        torchrun.unlink()
    assert completed("/nowhere", torchrun.parent) == Completed({"PATH": "/nowhere", "A": "1"})


@pytest.mark.parametrize(
    ("framework", "command", "name", "module"),
    [
        ("accelerate", "accelerate launch train.py", "accelerate", "accelerate"),
        ("deepspeed", "train.py", "deepspeed", "deepspeed"),
        ("lightning", "train.py", "python3", "pytorch_lightning"),
        ("openmpi", "./x", "mpirun", ""),
        ("env", "python train.py", "python", ""),
        ("command", "mytool --x", "mytool", ""),
        ("bench", "--size 1", "torchrun", "torch"),
    ],
)
def test_so_are_the_programs_of_other_frameworks(
    tmp_path: Path, framework: str, command: str, name: str, module: str
) -> None:
    python = interpreter(tmp_path / "own")
    program = python.parent / name
    if not program.exists():
        script(program, f"#!{python}")
    if module:
        (tmp_path / f"own/lib/python3.12/site-packages/{module}").mkdir()
    needs = needs_of(framework, command.split(), leads=True)
    found = completed("/nowhere", program.parent, needs=needs)
    assert found.added == str(program)
    assert missing_of(needs, found.environ) == ""


def test_a_program_with_a_path_is_not_looked_for() -> None:
    needs = needs_of("command", ["./tool"], leads=True)
    assert completed("/nowhere", Path("/bin"), needs=needs).added == ""


def test_the_own_folder_is_that_of_the_running_python() -> None:
    import sys

    assert str(Path(sys.executable).parent) in own_folders()
