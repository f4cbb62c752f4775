"""The judgements of `make test-gpu` by value: what is right, and each way to be wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import __main__ as command
from tests.gpu.__main__ import Part, carry_out, main
from tests.gpu.findings import (
    NOTHING_TESTED,
    PASSED,
    UNEXPECTED,
    Finding,
    Result,
    exit_code,
    holds,
    lines,
    recorded,
)
from tests.gpu.machine import Machine, smi_rows
from tests.gpu.session import Failed, Session

UUID = "GPU-8a1f"
SMI = smi_rows(f"0, NVIDIA H200, {UUID}, 580.159, 143771 MiB, Default, Disabled\n")
TORCH = {"available": True, "torch": "2.11.0+cu130", "cuda": "13.0", "nccl": "2.28.9"}
HERE = Machine(smi=SMI, devices=["/dev/nvidia0"], torch=TORCH, python="/opt/bin/python3")
NONE = Machine(torch=TORCH | {"available": False, "torch": "2.13.0+cpu"}, python="/opt/bin/python3")


def unexpected(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.verdict == "unexpected"]


def test_a_machine_without_a_gpu_is_said_to_be_one() -> None:
    why = "(torch 2.13.0+cpu of /opt/bin/python3 has no usable CUDA)"
    assert HERE.obstacle == ""
    assert NONE.obstacle == f"no GPU here: nothing was tested {why}"
    hidden = Machine(smi=SMI, torch=NONE.torch, python=NONE.python)
    cannot = "a GPU is here (NVIDIA H200) that cannot be used: nothing was tested"
    assert hidden.obstacle == f"{cannot} {why}"
    bare = Machine(torch_problem="torch of python3 does not answer: No module named 'torch'")
    assert bare.obstacle.endswith("No module named 'torch')")


def test_no_gpu_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "look_at_machine", lambda *_: NONE)
    monkeypatch.setenv("OUT", str(tmp_path))
    assert main([]) == NOTHING_TESTED == 77
    assert capsys.readouterr().out == f"{NONE.obstacle}\n"
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["verdict"] == NONE.obstacle
    assert report["parts"] == []


def test_missing_wheels_are_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "look_at_machine", lambda *_: HERE)
    out = tmp_path / "gpu.json"
    assert main(["--wheels", str(tmp_path), "--out", str(out)]) == UNEXPECTED
    assert "make wheels-gpu" in json.loads(out.read_text())["verdict"]


def test_a_part_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    def fail(session: Session, seen: dict[str, Any]) -> None:
        seen["so far"] = 1
        raise Failed("no")

    def judge(seen: dict[str, Any], machine: Machine) -> list[Finding]:
        return [holds("there", seen["there"] == 1, 1)]

    parts = (
        Part("fails", 9.0, fail, judge),
        Part("strange", 9.0, lambda *_: None, judge),
        Part("works", 9.0, lambda _, seen: seen.update(there=1), judge),
    )
    session = Session(Path("rdzv"), Path("python"), "cuda", tmp_path, time.monotonic() + 99.0)
    first, second, third = carry_out(parts, session, HERE)
    assert (first.state, first.problem, first.seen) == ("failed", "no", {"so far": 1})
    assert (second.state, second.problem) == ("failed", "KeyError: 'there'")
    assert (third.state, third.findings) == ("done", [holds("there", True, 1)])
    late = carry_out(parts, session.within(0.0), HERE)
    assert {result.state for result in late} == {"not begun"}


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], UNEXPECTED),
        ([Result("a", "done", findings=[holds("x", True, 1)])], PASSED),
        ([Result("a", "done", findings=[holds("x", False, 1)])], UNEXPECTED),
        ([Result("a", "done", findings=[recorded("x", 1)]), Result("b")], UNEXPECTED),
        ([Result("a", "done", findings=[holds("x", True, 1)]), Result("b", "failed")], UNEXPECTED),
    ],
)
def test_a_pass_needs_every_part(results: list[Result], code: int) -> None:
    assert exit_code(results) == code
    assert len(list(lines(results))) == len(results) + sum(len(one.findings) for one in results)
