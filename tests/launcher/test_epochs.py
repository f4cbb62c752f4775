"""`rdzv status RUN --epochs`: how each epoch of a run has ended."""

from __future__ import annotations

import json
from pathlib import Path

from rendezvous.run.events import Cancelled
from rendezvous.wire.run import EpochEnd, Phase, Result
from tests.launcher.command import launched, rdzv
from tests.launcher.drive import status
from tests.support.driver import in_phase

ENDS = [
    EpochEnd(
        epoch=1,
        ran_seconds=11_000.0,
        message="node 2 (n2) failed: rank 5 ended with exit code 1",
        exit_code=1,
        slot=2,
        then="restart 1 of 3 at once",
    ),
    EpochEnd(epoch=2, ran_seconds=4.0, message="its programs were stopped"),
]


def test_of_a_run_that_has_ended_its_files_tell_as_json(tmp_path: Path) -> None:
    state = launched(tmp_path)
    kept = status(phase=Phase.RUNNING, restarts=1, max_restarts=3, ended=ENDS)
    state.write("status.json", kept.model_dump_json().encode())
    state.write_result(Result(status="ok", exit_code=0, message="both nodes ended", epochs=ENDS))
    shown = json.loads(rdzv("status", "llama", "--epochs", "--json", state=tmp_path).stdout)
    assert shown == {
        "run": "llama",
        "restarts": 1,
        "max_restarts": 3,
        "replacements": 0,
        "resubmitted": 0,
        "max_replacements": 0,
        "epochs": [end.model_dump(mode="json") for end in ENDS],
    }
    whole = json.loads(rdzv("status", "llama", "--json", state=tmp_path).stdout)
    assert whole["epochs"] == shown["epochs"]


def test_a_restart_of_which_only_the_pause_came_is_counted_at_the_end_as_well(
    tmp_path: Path,
) -> None:
    state = launched(tmp_path)
    kept = status(phase=Phase.RUNNING, restarts=1, max_restarts=3, ended=ENDS[:1])
    state.write("status.json", kept.model_dump_json().encode())
    drive = in_phase(Phase.RUNNING, 1, max_restarts=3)
    drive.exit(0, 1)
    drive.arm().exit(0, 2)
    assert drive.phase is Phase.RESTARTING
    drive.apply(Cancelled(reason="enough"))
    state.write_result(drive.result)
    done = rdzv("status", "llama", "--epochs", state=tmp_path)
    assert done.stdout.startswith("2 of 3 restarts used\nepoch 1 ended within 10 s: ")


def test_replacements_are_told_of_a_run_that_has_outlived_nodes(tmp_path: Path) -> None:
    state = launched(tmp_path)
    ends = [EpochEnd(epoch=1, message="node 2 was lost", replaced=[2], then="2 replaced at once")]
    kept = status(phase=Phase.RUNNING, replacements=0, resubmitted=1, max_replacements=3)
    state.write("status.json", kept.model_dump_json().encode())
    ended = Result(status="ok", exit_code=0, message="all ended", epochs=ends, replacements=1)
    state.write_result(ended)
    lines = rdzv("status", "llama", "--epochs", state=tmp_path).stdout.splitlines()
    assert lines[0] == "1 of 3 replacements used, 1 node replaced"
    found = json.loads(rdzv("status", "llama", "--epochs", "--json", state=tmp_path).stdout)
    assert (found["replacements"], found["resubmitted"], found["max_replacements"]) == (1, 1, 3)
    assert [end["replaced"] for end in found["epochs"]] == [[2]]
    assert "ok after 1 replacement: " in rdzv("status", "llama", state=tmp_path).stdout
