"""The Azure ML specs, loaded, validated and turned into requests by the official SDK, offline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.schedulers.shipped import specs_folder
from tests.support.bed import join_text
from tests.support.vendor_specs import NAME, UGLY, rendered, worker_run
from tests.support.vendors import AZURE, python_with

pytestmark = [pytest.mark.schedulers, pytest.mark.timeout(600)]

FOLDER = specs_folder() / "azureml"
LOAD = str(Path(__file__).parent / "load_jobs.py")


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has the SDK."""
    return python_with(AZURE)


def loaded(python: str, paths: Sequence[Path]) -> list[Any]:
    """The SDK's verdict on each file, and the request that it would send."""
    argv = [python, LOAD, *map(str, paths)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def request(command: str, code: str, image: str, **more: Any) -> dict[str, Any]:
    return {
        "jobType": "Command",
        "command": command,
        "codeId": code,
        "environmentId": image,
        "computeId": "gpu-cluster",
        "experimentName": "rdzv",
        "displayName": "llama slot 1",
        "properties": {},
        "isArchived": False,
        "inputs": {},
        "outputs": {},
        "tags": {"rdzv_launch": "12e4567890"},
        "environmentVariables": {"RDZV_JOIN": join_text()},
        "resources": {"instanceCount": 1, "shmSize": "16g", "properties": {}},
    } | more


def test_the_requests_hold_every_value_as_it_was(python: str, tmp_path: Path) -> None:
    paths, expected = [FOLDER / "symmetric.yaml", FOLDER / "launcher.yaml"], []
    code = tmp_path / "code"
    code.mkdir()
    for number, value in enumerate([*UGLY, "registry.example:5000/team/image@sha256:00"]):
        image = value or "image"  # the SDK knows none that is empty
        more = {"of": "azureml", "image": image, "CODE": str(code)}
        run = worker_run(["train.py", value], passed=[value], **more)
        text = rendered(tmp_path, run, "azureml")
        paths.append(tmp_path / f"{number}.yaml")
        paths[-1].write_text(text, encoding="utf-8")
        sent = request(yaml.safe_load(text)["command"], str(code), image)
        expected.append({"faults": {}, "name": NAME, "sent": {"name": NAME, "properties": sent}})
    symmetric, launcher, *workers = loaded(python, paths)
    assert workers == expected
    assert symmetric["faults"] == launcher["faults"] == {}
    assert symmetric["sent"]["properties"] == request(
        "exec rdzv launch --nproc-per-node 8 -- train.py --epochs 3",
        ".",
        "registry/image:tag",
        displayName="symmetric",
        tags={},
        environmentVariables={"RDZV_TOKEN": "GROUP-TOKEN"},
        resources={"instanceCount": 4, "shmSize": "16g", "properties": {}},
        distribution={"distributionType": "PyTorch", "processCountPerInstance": 1},
    )
    sent = launcher["sent"]["properties"]
    assert sent["command"].startswith("az login --identity --client-id ")
    assert "\n" not in sent["command"]
    assert sent["resources"]["instanceCount"] == 1
