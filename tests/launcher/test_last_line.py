"""The last thing that a launch says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.show.last_line import last_line
from launcher.state.state_dir import StateDir
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.run import Result

PLACE = RegistryPlace(("10.0.0.1", "fd00::1"), 29_600, "certificate", b"\x30\x82der")


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path, "llama")
    state.acquire()
    state.write_record("k7f2a9c1xy", "slurm", PLACE, owns_registry=True)
    state.release()
    return state


def said(state: StateDir, status: str = "failed", **more: Any) -> str:
    values: dict[str, Any] = {"status": status, "exit_code": 3, "message": "node 1 failed"} | more
    return last_line("llama", Result(**values), state)


def test_96_a_good_end_is_a_line() -> None:
    end = said(StateDir(Path("nowhere"), "llama"), "ok", message="all 2 ended", log="/n/node-1.log")
    assert end == "rdzv: run 'llama' ok: all 2 ended"


def test_96_a_cancelled_run_is_named_by_its_message_alone(state: StateDir) -> None:
    assert said(state, "cancelled", message="run 'llama' was cancelled: enough") == (
        "rdzv: run 'llama' was cancelled: enough"
    )


def test_96_of_a_failure_the_tail_stands_above_with_the_last_words_the_hint_and_the_log(
    state: StateDir, tmp_path: Path
) -> None:
    log = tmp_path / "node-1.log"
    more: dict[str, Any] = {"tail": ["Traceback", "ValueError: x", "-----"], "hint": "mend it"}
    node: dict[str, Any] = {"rank": 1, "hostname": "h1", "log": str(log)}
    above = (
        "rdzv: last output of node 1 (h1):\nrdzv:   | Traceback\nrdzv:   | ValueError: x\n"
        "rdzv:   | -----\nrdzv: run 'llama' failed: node 1 failed; its last words: 'ValueError: x'"
    )
    assert said(state, **more, **node) == f"{above}; mend it; log: h1:{log}"
    log.touch()
    assert said(state, **more, **node) == f"{above}; mend it; log: {log}"


def test_96_without_a_log_of_its_own_a_failure_names_the_folder_of_all(state: StateDir) -> None:
    assert said(state) == f"rdzv: run 'llama' failed: node 1 failed; log: {state.logs}"


def test_96_who_waited_for_nodes_in_vain_hears_where_they_should_have_come(state: StateDir) -> None:
    where = "(port 29600 of 10.0.0.1, fd00::1)"
    assert f"node 1 failed {where}; log: " in said(state, code="join_timeout")
    assert where not in said(state, code="node_lost")
