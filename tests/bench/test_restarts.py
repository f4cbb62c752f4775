"""Restarts are measured as nodes make them: every end reported, every next table acknowledged."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from bench import killed
from bench.meeting import meeting
from bench.restarted import started_at
from bench.restarts import of_registry, works
from bench.rows import Figure, Row
from tests.support.nightly import but_at_night

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("at_once", but_at_night([True, False], True))
def test_all_nodes_of_a_real_registry_start_again_as_often_as_asked(at_once: bool) -> None:
    with meeting(4, tls=True, journal="sqlite", processes=2) as met:
        met.open()
        found = met.restarts(2, 3, at_once=at_once)
    assert len(found) == 6
    for one in found:
        assert 0 < one.told < one.table <= one.go
        assert one.first_go > 0


def test_a_restart_is_said_beside_the_first_start_of_its_run() -> None:
    made = list(of_registry(3, 1, tls=False))
    named = [
        (one.system, one.what, one.rounds, one.journal) for one in made if isinstance(one, Row)
    ]
    assert named == [("rdzv", "restart", 2, "sqlite"), ("rdzv", "restart_new", 2, "sqlite")]
    assert all(" first go " in one.note for one in made if isinstance(one, Row))
    [ratio] = [one for one in made if isinstance(one, Figure)]
    assert (ratio.what, ratio.nodes, ratio.target, ratio.rounds) == ("restart_by_go", 3, 1.5, 2)


def program_at(rank: int, first: float, imported: float, ready: float) -> killed.Program:
    return killed.Program(
        rank,
        100 + rank,
        10.25,
        first,
        imported,
        ready,
        import_seconds=imported - first,
        torchrun_import_seconds=5.0,
    )


def test_the_imports_of_the_node_that_came_last_are_told_apart() -> None:
    again = [program_at(0, 13.0, 14.0, 17.0), program_at(1, 12.0, 16.0, 17.5)]
    fresh = killed.after_kill(again, 10.0, imports_torchrun=True)
    assert fresh == killed.Restarted(0.25, 3.0, 7.5, 9.0, 5.0)
    same = killed.after_kill(again, 10.0, imports_torchrun=False)
    assert (same.imports, same.torchrun_imports) == (4.0, 0.0)


def test_ways_are_compared_round_by_round_and_never_is_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarted = killed.Restarted
    took: dict[str, list[killed.Restarted | None]] = {
        "rdzv-launch": [restarted(0.2, 1.0, 4.0, 3.5, 0.7), restarted(0.4, 1.0, 6.0, 5.0, 0.8)],
        "rdzv-plugin": [restarted(-30.0, 1.0, 2.0, 1.5, 0.0), restarted(-30.0, 1.0, 3.0, 2.0, 0.0)],
        "c10d-unshared": [restarted(-30.0, 2.0, 8.0, 2.0, 0.0), None],
        "torchrun-loop": [None, None],
        "c10d": [None],
    }
    monkeypatch.setattr(killed, "restarted", lambda way: took[way.system].pop(0))
    made = list(killed.beside_torchrun(2, killed.PEERS)) + list(killed.as_shipped())
    rows = [one for one in made if isinstance(one, Row)]
    assert [(one.system, one.what, one.median_ms, one.rounds) for one in rows] == [
        ("rdzv-launch", "killed_first", 1000.0, 2),
        ("rdzv-launch", "killed_ready", 5000.0, 2),
        ("rdzv-plugin", "killed_first", 1000.0, 2),
        ("rdzv-plugin", "killed_ready", 2500.0, 2),
        ("c10d-unshared", "killed_first", 2000.0, 1),
        ("c10d-unshared", "killed_ready", 8000.0, 1),
    ]
    assert rows[1].note.startswith("0.75 s without torchrun's and the program's import of torch")
    assert rows[5].note.startswith("1 of 2 rounds never ended; 6 s without the program's import")
    assert rows[0].note == "new torchruns after 0.3 s; --max-restarts 1"
    figures = [one for one in made if isinstance(one, Figure)]
    assert [(one.what, one.value, one.unit) for one in figures] == [
        ("restart_left", 0.25, "s"),
        ("restart_started", 0.3, "s"),
        ("restarted", 0, "of 2"),
        ("restart_ratio", 2.0, "times"),
        ("restart_ratio", 0.5, "times"),
        ("plugin_ratio", 0.25, "times"),
        ("restarted", 0, "of 1"),
    ]
    assert "never within 60 s" in figures[6].note


def test_the_shell_loop_starts_all_again_when_one_has_failed(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(
        '#!/bin/sh\n[ "$2" = 2 ] && mkdir "$4/failed" 2>/dev/null && exit 1\n'
        '[ -d "$4/failed" ] || exec sleep 9\necho "$@" >> "$4/ended"\n'
    )
    torchrun.chmod(0o755)
    environ = {**os.environ, "NODES": "4", "PROGRAM": "train.py", "FOLDER": str(tmp_path)}
    command = ["bash", "-c", killed.LOOP_SCRIPT, "loop", str(torchrun)]
    assert subprocess.run(command, env=environ, timeout=8, check=False).returncode == 0
    ended = (tmp_path / "ended").read_text().splitlines()[-4:]
    assert sorted(line.split()[1] for line in ended) == ["0", "1", "2", "3"]


def test_quick_measures_no_peer() -> None:
    assert len([*works((8, 64), 1, 1, peers=False)]) == 5
    assert len([*works((8, 64), 1, 1, peers=True)]) == 6
    assert len([*works((8,), 1, 0, peers=True)]) == 2


def test_the_start_of_a_process_is_on_the_clock_that_its_program_reads() -> None:
    began = time.monotonic()
    with subprocess.Popen(["sleep", "9"]) as process:
        found = started_at(process.pid)
        process.kill()
    assert began - 0.1 < found < time.monotonic() + 0.1
