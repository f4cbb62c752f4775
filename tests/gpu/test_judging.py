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
from tests.gpu.parts import doctor, facts, looks, nccl, warm
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


def test_doctor() -> None:
    def judged(level: str, value: str, machine: Machine = HERE) -> list[str]:
        check = {"check": "L16", "level": level, "value": value}
        return unexpected(doctor.judge({"checks": [check], "seconds": 1.0}, machine))

    assert judged("ok", "1 x NVIDIA H200, no problems") == []
    assert judged("ok", "8 x NVIDIA H200, no problems") == ["L16 is ok and says 1 x NVIDIA H200"]
    assert judged("skipped", "no GPU here") == ["L16 is ok and says 1 x NVIDIA H200"]
    assert judged("skipped", "no GPU here", NONE) == []
    assert judged("ok", "1 x NVIDIA H200", NONE) == ["L16 is skipped without a GPU"]


def test_facts() -> None:
    own = {
        "gpus": 1,
        "gpu_models": ["NVIDIA H200"],
        "gpu_uuids": [UUID],
        "rdma": [],
        "driver_version": "580.159",
        "torch_version": "2.11.0+cu130",
        "wants_rdma": False,
        "cuda_version": "13.0",
        "nccl_version": "2.28.9",
    }

    def judged(total: int = 143771, problem: str = "", **changed: Any) -> list[str]:
        sample = {"gpus": [{"memory_total": total << 20}], "gpu_problem": problem}
        return unexpected(
            facts.judge({"machine": {"facts": own | changed, "sample": sample}}, HERE)
        )

    assert judged() == judged(total=143000) == []
    assert judged(gpus=0) == ["gpus is 1"]
    assert judged(nccl_version="") == ["nccl_version is '2.28.9'"]
    assert judged(gpu_uuids=["GPU-0"]) == [f"gpu_uuids is ['{UUID}']"]
    assert judged(total=70000) == ["MiB of GPU memory are about [143771]"]
    assert judged(problem="no answer") == ["the sample has no GPU problem"]


def test_looks() -> None:
    def judged(
        *functions: str | None, silent: tuple[int, ...] = (), rule: str = "behind", left: int = 0
    ) -> list[str]:
        shown = [name for name in functions if name is not None]
        ranks = [
            {
                "rank": rank,
                "stack": None if name is None else shown.index(name),
                "state": "S",
                "waits_in": "",
                "cpu": 0.0,
                "recorder": "read",
            }
            for rank, name in enumerate(functions)
        ]
        stacks = [{"frames": [["inner", "a.py", 1], [name, "b.py", 2]]} for name in shown]
        verdict = {"rule": rule, "silent": list(silent), "sentence": "..."}
        look = {"verdict": verdict, "nodes": [{"report": {"ranks": ranks, "stacks": stacks}}]}
        seen = {"look": look, "seconds": 6.0, "left": [7] * left, "ended_in": 1.0}
        return unexpected(looks.judge(seen, HERE))

    first, *stuck = looks.WAITS
    assert judged(first, *stuck) == []
    assert judged(first, *stuck[:2], None, silent=(3,)) == []
    assert judged(first, None, *stuck[1:], silent=(1,)) == [
        "all ranks but 3 answer",
        "rank 1 is seen in read_result",
    ]
    assert judged(first, *stuck[:2], "main") == [
        "rank 3 is seen in fill_queue, or its place is unknown"
    ]
    assert judged(first, *stuck, rule="unclear") == ["the others wait"]
    assert judged(first, *stuck, left=1) == ["all ranks ended with the run"]


def test_nccl() -> None:
    def judged(default: int, when_set: int, correct: bool = True) -> list[str]:
        seen: dict[str, Any] = {"ras": "no answer"}
        for name, count in (("default", default), ("set", when_set)):
            calls = [{"operation": "all_reduce", "done": False}] * count
            report = {"ranks": [{"groups": [{"calls": calls}]}]}
            look = {"verdict": {"sentence": "..."}, "nodes": [{"report": report}]}
            seen[name] = {"report": {"correct": correct, "recorded": {}}, "look": look}
        return unexpected(nccl.judge(seen, HERE))

    assert judged(0, 4) == judged(4, 4) == []
    assert judged(0, 0) == ["set: look shows the all-reduces"]
    assert len(judged(0, 4, correct=False)) == 2


def test_warm_starts() -> None:
    untouched = {"forked": True, "initialized": False, "bad_fork": False, "nvidia_files": []}

    def starts(first: float, later: float, **before: Any) -> list[dict[str, Any]]:
        return [
            {
                "first": 0.1,
                "imported": 0.2,
                "kernel": kernel,
                "correct": True,
                "private_mb": 9.0,
                "gpu_memory_used": 1,
                "before": untouched | before,
            }
            for kernel in (first, later, later)
        ]

    def judged(warm_starts: list[dict[str, Any]]) -> list[str]:
        cold = {"starts": starts(4.0, 4.0, forked=False), "lines": []}
        return unexpected(
            warm.judge({"off": cold, "on": {"starts": warm_starts, "lines": []}}, HERE)
        )

    assert judged(starts(5.0, 1.0)) == []
    assert judged(starts(1.0, 5.0)) == [
        "a warm restart's first kernel ends sooner than a cold one's"
    ]
    assert judged(starts(1.0, 1.0, forked=False)) == ["all warm starts were forked"]
    for name, value in (("initialized", True), ("bad_fork", True), ("nvidia_files", ["/dev/x"])):
        touched = starts(1.0, 1.0, **{name: value})
        assert judged(touched) == ["CUDA is untouched in a forked process"]
    wrong = [start | {"correct": False} for start in starts(1.0, 1.0)]
    assert judged(wrong) == ["warm: the first kernel's result is right"]
