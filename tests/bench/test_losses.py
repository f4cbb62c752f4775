"""Killed workers and lost nodes are measured as they happen, beside what torchrun offers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench import killed, lost, pages

pytestmark = pytest.mark.real_time


def program_at(first: float, imported: float, ready: float) -> killed.Program:
    spent = {"import_seconds": imported - first, "torchrun_import_seconds": 5.0}
    return {"first": first, "imported": imported, "ready": ready, **spent}


def test_the_imports_of_the_node_that_came_last_are_told_apart() -> None:
    begun = [program_at(1.0, 2.0, 3.0)]
    again = [program_at(13.0, 14.0, 17.0), program_at(12.0, 16.0, 17.5)]
    fresh = killed.after_kill(killed.RDZV_LAUNCH, begun, again, 10.0, [2.5, 12.0])
    assert fresh == killed.Restarted(3.0, 7.5, 9.0, (0.5, 5.5))
    assert killed.after_kill(killed.C10D, begun, again, 10.0, []) == killed.Restarted(3.0, 7.5, 4.0)


def test_ways_are_measured_in_turn_and_never_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs, never = (way.name for way in (killed.RDZV_LAUNCH, *killed.PEERS))
    restarted = killed.Restarted
    took: dict[str, list[killed.Restarted | None]] = {
        ours: [restarted(1.0, 4.0, 3.5, (2.0, 3.0)), restarted(1.0, 6.0, 5.0, (2.0, 5.0))],
        theirs: [restarted(2.0, 8.0, 2.0), None],
        never: [None, None],
    }
    monkeypatch.setattr(killed, "restarted", lambda way: took[way.name].pop(0))
    made = list(killed.in_turn(2, (killed.RDZV_LAUNCH, *killed.PEERS)))
    assert [(one.what.partition(", ")[2], one.median, one.rounds) for one in made] == [
        *[(f"{ours}, first", 1.0, 2), (f"{ours}, all", 5.0, 2), (f"{ours}, bare", 0.75, 2)],
        *[("first start", 2.0, 2), ("restart", 4.0, 2)],
        *[(f"{theirs}, first", 2.0, 1), (f"{theirs}, all", 8.0, 1), (f"{theirs}, bare", 6.0, 1)],
        (never, 0, 2),
    ]
    assert (made[-1].unit, made[-1].note) == ("of 2", "never within 60 s of the kill")


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


@pytest.mark.nightly
def test_a_killed_agent_is_replaced_with_a_standby_and_without() -> None:
    known, ready, again, standby = lost.killed_agent(1)
    assert 0 < known.median < min(ready.median, again.median)
    assert (standby.unit, 20 < standby.median < 200) == ("MB", True)


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.timeout(120)
def test_a_silent_host_s_place_is_not_taken_before_its_fence_is_over() -> None:
    [made] = lost.silent_host(1, lease=3, fence=7)
    assert made.median > 7 - 3  # the fence counts from its last word, at most a lease ago


def test_without_root_the_silent_host_is_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert list(lost.silent_host(1)) == []
    assert "a silent host is not measured: emulated hosts need root" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_page_of_emulated_nodes_is_open_while_its_registry_is_measured() -> None:
    [made] = pages.of_registry(4, pairs=1, seconds=0.5)
    assert (made.what, made.nodes, made.rounds) == ("page, CPU of registry", 4, 1)
