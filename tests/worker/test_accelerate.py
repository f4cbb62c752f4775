"""Accelerate starts one world of all nodes, whatever kind of job COMMAND or a file names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.dry_run import check_start, command_lines
from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable
from tests.launcher.command import plan_of
from tests.support.rows import rows
from tests.worker.test_contracts import table
from worker.contracts import Contract, check_command, make_contract
from worker.contracts.accelerate import ACCELERATE
from worker.contracts.advice import WrongCommand
from worker.contracts.choice import choose_framework
from worker.contracts.framework import Need, Paths
from worker.contracts.variables import ProgramOptions
from worker.preflight.needs import missing_here, read_config

CPUS = {"ACCELERATE_USE_CPU": "true"}
FILE = """compute_environment: LOCAL_MACHINE
# distributed_type: FSDP
debug: false
distributed_type: '{}'
fsdp_config: {{}}
num_machines: 1
num_processes: 1
use_cpu: {}
"""
ALONE = table(("10.0.0.1",), (1,))


def made(
    command: str,
    config: str = "",
    *,
    sealed: EndpointTable | None = None,
    environ: dict[str, str] | None = None,
) -> Contract:
    options = ProgramOptions("accelerate")
    sealed = sealed or table(nproc=(2, 2))
    slot, words = sealed.rows[-1].slot, command.split()
    known = environ or {}
    return make_contract(words, sealed, slot, known, options, paths=Paths(), config=config)


def kind_of(contract: Contract) -> tuple[list[str], dict[str, str]]:
    """The kind that rdzv names in accelerate's command line, and the device in its environment."""
    flags = [word for word in contract.argv if word in ("--multi_gpu", "--cpu")]
    return flags, {n: contract.variables[n] for n in CPUS if n in contract.variables}


def as_json(text: str) -> str:
    """The same file as JSON, on one line."""
    lines = [line.split(": ") for line in text.splitlines() if not line.startswith("#")]
    return json.dumps({key: value.strip("'") for key, value in lines})


@pytest.mark.parametrize(
    ("kind", "use_cpu", "flags", "variables"),
    [
        ("NO", "false", ["--multi_gpu"], {}),
        ("NO", "true", ["--multi_gpu"], CPUS),
        ("MULTI_CPU", "true", ["--multi_gpu"], CPUS),
        ("MULTI_CPU", "false", ["--multi_gpu"], CPUS),
        ("no", "true", ["--multi_gpu"], CPUS),
        # accelerate starts these by torchrun, and does not read use_cpu then.
        ("MULTI_GPU", "true", [], {}),
        ("MULTI_NPU", "false", [], {}),
        ("FSDP", "false", [], {}),
        ("DEEPSPEED", "false", [], {}),
        ("MEGATRON_LM", "false", [], {}),
    ],
)
@pytest.mark.parametrize("form", [str, as_json])
def test_a_file_whose_processes_would_train_alone_is_mended(
    form: Any, kind: str, use_cpu: str, flags: list[str], variables: dict[str, str]
) -> None:
    text = form(FILE.format(kind, use_cpu))
    found = made("accelerate launch --config_file c.yaml x.py", text)
    assert kind_of(found) == (flags, variables)
    alone = made("accelerate launch --config_file c.yaml x.py", text, sealed=ALONE)
    assert kind_of(alone) == ([], {})


def test_of_a_default_file_only_the_device_is_taken() -> None:
    for kind, expected in (("MULTI_CPU", CPUS), ("NO", CPUS), ("FSDP", {}), ("XLA", {})):
        found = made("accelerate launch x.py", FILE.format(kind, "true"))
        assert kind_of(found) == (["--multi_gpu"], expected)


def test_a_kind_in_command_is_stronger_than_that_of_a_file() -> None:
    file = FILE.format("NO", "true")
    assert kind_of(made("--config_file c --use_fsdp x.py", file)) == ([], {})
    assert kind_of(made("--config_file c --multi_gpu x.py", file)) == (["--multi_gpu"], {})


def test_the_users_own_device_is_left_alone() -> None:
    file = FILE.format("MULTI_CPU", "true")
    found = made("accelerate launch x.py", file, environ={"ACCELERATE_USE_CPU": "0"})
    assert found.environment({"ACCELERATE_USE_CPU": "0"})["ACCELERATE_USE_CPU"] == "0"


ALONE_OR_ELSEWHERE = """
--cpu x.py                | COMMAND contains --cpu: with it, accelerate starts one process on each
--use_fsdp --cpu x.py     | COMMAND contains --cpu: with it, accelerate starts one process on each
--tpu x.py                | COMMAND contains --tpu: with it, processes are numbered by the TPU, not
--tpu_cluster x.py        | COMMAND contains --tpu_cluster: with it, processes are numbered by the T
"""


@pytest.mark.parametrize(("command", "message"), rows(ALONE_OR_ELSEWHERE))
def test_a_kind_that_makes_no_world_is_refused_where_there_are_several(
    command: str, message: str
) -> None:
    command = f"accelerate launch {command}"
    with pytest.raises(UsageError, match=f"^{message}"):
        made(command)
    with pytest.raises(UsageError, match=f"^{message}"):  # before anything is submitted
        check_start(plan_of(*command.split(), nnodes="2", framework="accelerate"))
    assert made(command, sealed=ALONE).argv[-2:] == command.split()[-2:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.format("XLA", "false"), "c says distributed_type: XLA: with it, processes are numb"),
        (FILE.format("TPU", "false"), "c says distributed_type: TPU: with it, processes are numb"),
        (
            FILE.format("NO", "false").replace("LOCAL_MACHINE", "AMAZON_SAGEMAKER"),
            "c says compute_environment: AMAZON_SAGEMAKER, so each node would submit a job to Sag",
        ),
    ],
)
def test_a_file_that_leads_elsewhere_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^accelerate's configuration file {message}"):
        made("--config_file c x.py", text)


def test_a_node_reads_its_own_file(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "c.yaml"
    command = ["accelerate", "launch", "--config_file", str(file), "x.py"]
    assert read_config("accelerate", command, {}) == ""
    file.write_text("mine")
    assert read_config("accelerate", command, {"HOME": str(home)}) == "mine"
    assert read_config("torchrun", command, {}) == ""
    default = home / ".cache/huggingface/accelerate/default_config.yaml"
    default.parent.mkdir(parents=True)
    default.write_text("default")
    assert read_config("accelerate", ["x.py"], {"HOME": str(home)}) == "default"
    assert read_config("accelerate", ["x.py"], {}) == ""


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HOME": "/h"}, "/h/.cache/huggingface/accelerate/default_config.yaml"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/accelerate/default_config.yaml"),
        ({"HOME": "/h", "HF_HOME": "~/hf"}, "/h/hf/accelerate/default_config.yaml"),
        ({"HF_HOME": "/hf"}, "/hf/accelerate/default_config.yaml"),
        ({}, ""),
    ],
)
def test_the_default_file_is_where_accelerate_looks(environ: dict[str, str], path: str) -> None:
    assert ACCELERATE.config_file(["accelerate", "launch", "x.py"], environ) == path


def test_a_file_that_is_not_on_the_node_is_told_of_before_it_joins(tmp_path: Path) -> None:
    for name in ("accelerate", "x.py"):
        (tmp_path / name).write_text("#!/bin/sh")
        (tmp_path / name).chmod(0o755)
    command = ["accelerate", "launch", "--config_file", "/no/c.yaml", str(tmp_path / "x.py")]
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    said = missing_here("accelerate", command, environ, leads=True)
    assert said == "/no/c.yaml does not exist on this node"
    assert missing_here("accelerate", [command[-1]], environ, leads=True) == ""


def test_the_dry_run_shows_what_this_machines_file_leads_to() -> None:
    command = ["accelerate", "launch", "--config_file", "c.yaml", "x.py"]
    plan = plan_of(*command, nnodes="2", framework="accelerate")
    assert "--multi_gpu" not in "".join(command_lines(plan))
    plan = replace(plan, config=FILE.format("NO", "true"))
    assert "--multi_gpu" in "".join(command_lines(plan))


@pytest.mark.parametrize(
    "words",
    ["python3 -m accelerate.commands.launch", "py3 -m accelerate.commands.accelerate_cli launch"],
)
def test_accelerate_as_a_module_is_accelerate(words: str) -> None:
    words = words.replace("py3", "/opt/bin/python3.12")
    command = [*words.split(), "--quiet", "x.py"]
    assert choose_framework(command).framework == "accelerate"
    found = made(" ".join(command))
    assert found.argv[: len(words.split())] == words.split()
    assert found.argv[-3:] == ["--multi_gpu", "--quiet", "x.py"]
    python = command[0]
    assert found.needs == (Need("accelerate", "pip install accelerate", python, ("accelerate",)),)


@pytest.mark.parametrize(
    ("given", "advised"),
    [
        ("--num_machines 3 --num_processes 12", "4"),
        ("--num_machines 3 --num_processes 2", "1"),
        ("--num_machines 0 --num_processes 6", "N"),
        ("--num_processes 6", "N"),
    ],
)
def test_a_total_of_processes_is_advised_as_those_of_a_node(given: str, advised: str) -> None:
    command = f"accelerate launch {given} x.py".split()
    with pytest.raises(WrongCommand) as caught:
        check_command(command, "accelerate")
    assert f"--nproc-per-node {advised} " in str(caught.value.hint)
