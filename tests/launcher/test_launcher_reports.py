"""Node logs without what a launcher printed at its end, and when `rdzv logs` shows all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.show.logs import may_have_reports, show_logs, was_stopped, without_reports
from launcher.state.state_dir import StateDir
from rendezvous.wire.run import EpochEnd, Result

OUTPUTS = Path(__file__).parents[1] / "worker" / "launcher_outputs"
FAILED = (OUTPUTS / "torchrun-failed.txt").read_text("utf-8").splitlines()
STOPPED = (OUTPUTS / "torchrun-stopped.txt").read_text("utf-8").splitlines()
PROGRAM = [
    "step 1",
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    main()",
    "ValueError: nan",
]


def ended(status: str, node: int | None = None) -> Result:
    values = {"status": status, "exit_code": 1, "message": "m", "node": node}
    return Result.model_validate(values)


AFTER_RESTARTS = ended("ok").model_copy(
    update={
        "epochs": [
            EpochEnd(epoch=1, message="node 0 failed", code="program_failed", node=0),
            EpochEnd(epoch=2, message="somebody asked for a restart"),
            EpochEnd(epoch=3, message="nothing moved", code="stalled"),
        ]
    }
)


def test_a_programs_lines_stay_and_a_launchers_report_goes() -> None:
    for report, stopped in ((FAILED[4:], False), (STOPPED[4:], True)):
        kept = without_reports([*PROGRAM, *report], is_stopped=stopped)
        assert kept == (PROGRAM, len(report))
    banner = STOPPED[:4]
    kept = without_reports([*banner, *PROGRAM, *STOPPED[4:]], is_stopped=False)
    assert kept == ([*PROGRAM, *STOPPED[4:]], 0)


@pytest.mark.parametrize(
    ("name", "result", "stopped"),
    [
        ("logs/node-1.log", ended("failed", 0), True),
        ("logs/node-1.e2.log", ended("failed", 0), True),
        ("logs/node-0.log", ended("failed", 0), False),
        ("logs/node-0.log", ended("failed"), False),
        ("logs/node-0.log", ended("cancelled"), True),
        ("logs/node-0.log", ended("ok"), False),
        ("logs/node-0.log", None, False),
        ("queue 17", ended("failed", 0), False),
        ("logs/node-1.log", AFTER_RESTARTS, True),
        ("logs/node-0.log", AFTER_RESTARTS, False),
        ("logs/node-1.e2.log", AFTER_RESTARTS, True),
        ("logs/node-0.e2.log", AFTER_RESTARTS, True),
        ("logs/node-1.e3.log", AFTER_RESTARTS, False),
        ("logs/node-1.e4.log", AFTER_RESTARTS, False),
    ],
)
def test_what_a_launcher_says_of_a_stop_may_be_a_cause_on_the_node_that_failed(
    name: str, result: Result | None, stopped: bool
) -> None:
    assert was_stopped(name, result) is stopped


def test_only_a_nodes_log_has_a_launchers_lines_among_those_of_its_ranks() -> None:
    assert may_have_reports("/x/logs/node-3.e2.log")
    assert not may_have_reports("/x/logs/rank-3.log")
    assert not may_have_reports("/x/logs/launcher-3.log")


async def shown(state: StateDir, lines: int | None) -> None:
    await show_logs(state, os.environ, lines=lines, follow=False)


async def test_a_launchers_report_is_left_out_unless_a_number_of_lines_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir(tmp_path, "r")
    state.acquire()
    state.release()
    log = str(state.logs / "node-0.log")
    state.write_result(ended("failed", 0).model_copy(update={"log": log}))
    state.write("status.json", b"{}")
    state.write("logs/node-0.log", "\n".join([*PROGRAM, *FAILED]).encode())
    state.write("logs/node-1.log", "\n".join(["step 1", *STOPPED]).encode())
    await shown(state, None)
    out, err = capsys.readouterr()
    logs = state.logs
    assert out.splitlines() == [
        f"==> {logs}/node-1.log",
        "step 1",
        f"==> {logs}/node-0.log",
        *PROGRAM,
    ]
    more = 20 + len(FAILED[4:])  # but for the banner
    words = "what the launchers printed at their end is left out"
    assert err == f"rdzv: {words}; --lines {more} shows it\n"
    await shown(state, more)
    out, err = capsys.readouterr()
    assert FAILED[-1] in out
    assert err == ""
