"""`make test-gpu` itself, rehearsed on the CPU: real commands, real ranks, no CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


def rehearse(out: Path, *words: str, within: tuple[str, ...] = ()) -> dict[str, Any]:
    """Rehearse, and return the report."""
    command = [*within, sys.executable, "-m", "tests.gpu", "--out", str(out), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(out.read_text())
    assert report["verdict"] == "rehearsal on the CPU, no GPU was tested: all as expected"
    return report


@pytest.mark.frameworks
@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_a_rehearsal_finds_all_as_expected(tmp_path: Path) -> None:
    rdzv = Path(sys.executable).parent / "rdzv"
    only = ("doctor", "facts", "look")
    report = rehearse(
        tmp_path / "gpu.json", "--device", "cpu", "--rdzv", str(rdzv), "--only", *only
    )
    assert [part["name"] for part in report["parts"]] == list(only)
    assert report["output"]["look"]


@pytest.mark.frameworks
def test_without_a_gpu_it_says_so_and_does_not_pass(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (77, "")
    assert "nothing was tested (torch" in done.stdout
    assert done.stdout.count("\n") == 1
    assert json.loads(out.read_text())["verdict"] == done.stdout.strip()


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.timeout(600)
def test_carried_wheels_suffice_without_a_network(tmp_path: Path) -> None:
    subprocess.run(["make", "wheels-gpu"], cwd=ROOT, check=True, capture_output=True)
    own = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    report = rehearse(tmp_path / "gpu.json", "--device", "cpu", within=own)
    assert len(report["parts"]) == 5
    assert "rdzv-gpu-" in report["rdzv"]
    carried = ROOT / "build" / "wheels"
    # What travels is bounded, next to the checkout: docs/internals/maintaining.md.
    assert sum(path.stat().st_size for path in carried.iterdir()) < 50 << 20
