"""Old runs are removed: which, what of them, and what is never touched."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.plan.plan import WorkerRun
from launcher.state import prune as pruning
from launcher.state.ledger import LedgerEntry
from launcher.state.prune import DAY_SECONDS, old_runs, prune, prune_after_launch
from launcher.state.state_dir import StateDir, known_runs
from rendezvous.feature import declared
from rendezvous.wire.errors import ExitCode, RunExists
from tests.launcher.command import NOWHERE, rdzv, record_of

OURS = f"""launch.json result.json secret key.pem certificate.pem certificate.der registry.json
status.json table.json report.json {" ".join(name for one in declared() for name in one.run_files)}
worker-runs.jsonl journal.sqlite journal.sqlite-wal journal.sqlite-shm .secret.new
logs/registry.log logs/agent-0.log logs/node-10.log logs/node-10.log.first logs/node-10.log.1
logs/rank-19.log logs/rank-19.log.first logs/rank-19.log.1 logs/rank-19.e2.log logs/rank-7.log.index
logs/launcher-3.log logs/launcher-3.e2.log logs/launcher-3.log.index
logs/rank-7.log.1.index logs/rank-7.e2.log.index
logs/node-10.log.index logs/node-10.log.first.index logs/node-10.e2.log.1.index
logs/node-10.e2.log logs/node-10.e2.log.first logs/node-10.e2.log.1 logs/nccl-k7f2/node-0.e2.47.log
logs/nccl-k7f2/node-0.4711.log logs/node-0/hostfile
logs/node-0/hostfile.mpich logs/node-0/table.json logs/node-0/notice.json
logs/node-0/bin/rdzv-rsh logs/node-0/bin/ssh
former-logs/registry.log former-logs/node-0.log former-logs/node-0.e3.log
former-logs/nccl-k7f2/node-0.4711.log
last-words/epoch-2/rank-5.txt last-words/epoch-2/node-1.txt
former-logs/last-words/epoch-1/rank-0.txt
former-logs/node-0/hostfile submissions/slot-1.sh"""


def made(root: Path, run: str, *, days: float = 0.0) -> StateDir:
    """The folder of a run that was over so long ago, with every file that rdzv writes."""
    state = StateDir(root, run)
    state.acquire()
    for name in OURS.split():
        state.write(name, b"")
    state.write_record(record_of(NOWHERE).model_copy(update={"run": run}))
    state.release()
    for path in state.path.rglob("*"):
        at = path.stat().st_mtime - days * DAY_SECONDS
        os.utime(path, (at, at))
    return state


def names(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_old_are_those_that_are_neither_young_nor_among_the_newest(tmp_path: Path) -> None:
    for number in range(6):
        made(tmp_path, f"r{number}", days=10 * number)
        (tmp_path / f"r{number}" / "journal.sqlite-wal").unlink()  # its registry has ended
    (tmp_path / "no-run").mkdir()
    assert old_runs(tmp_path, keep=2) == ["r3", "r4", "r5"]
    assert old_runs(tmp_path, keep=5) == ["r5"]
    assert old_runs(tmp_path, older_than=45 * DAY_SECONDS, keep=0) == ["r5"]
    assert old_runs(tmp_path) == []
    (tmp_path / "r5" / "result.json").touch()  # it began long ago, and ended just now
    assert old_runs(tmp_path, keep=2) == ["r3", "r4"]
    assert old_runs(tmp_path / "nowhere") == []


def test_all_that_rdzv_wrote_goes_and_nothing_else(tmp_path: Path) -> None:
    whole, mixed = made(tmp_path, "whole"), made(tmp_path, "mixed")
    theirs = ["checkpoint.pt", "logs/mine.txt", "logs/node-0/core", "empty/"]
    for name in theirs:
        path = mixed.path / name
        path.mkdir() if name.endswith("/") else path.write_text("x")
    (mixed.path / "logs" / "node-7.log").symlink_to(whole.path / "lock")
    assert prune(whole).kept == ""
    assert not whole.path.exists()
    done = prune(mixed)
    assert (done.removed, known_runs(tmp_path)) == (True, [])
    assert "checkpoint.pt, empty, logs/mine.txt, logs/node-0/core" in done.kept
    left = "checkpoint.pt empty lock logs logs/mine.txt logs/node-0 logs/node-0/core"
    assert names(mixed.path) == left.split()


def test_what_lives_may_have_worker_runs_or_is_not_ours_stays(tmp_path: Path) -> None:
    lives, left, foreign = (made(tmp_path, name, days=99) for name in ("lives", "left", "foreign"))
    lives.acquire()
    left.ledger.begin(LedgerEntry(WorkerRun(1, 1, "rdzv-k7f2-1-1", {}, "w.sh"), "slurm"))
    foreign.write("launch.json", b'{"version": "0.2.0", "configurations": []}')
    before = names(tmp_path)
    others = [StateDir(tmp_path, state.run) for state in (lives, left, foreign)]
    assert [prune(state).removed for state in others] == [False] * 3
    prune_after_launch(tmp_path)
    assert names(tmp_path) == before
    assert "rdzv cancel left" in prune(others[1]).kept
    lives.release()


def test_what_is_launched_again_meanwhile_or_has_a_ledger_of_another_version_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, again = made(tmp_path, "newer"), made(tmp_path, "again")
    newer.write("worker-runs.jsonl", b'{"name": "rdzv-k7f2-1-1", "says": "more"}\n')
    assert "cannot be read" in prune(newer).kept
    lock = again.try_lock

    def launched_first() -> bool:
        again.write_record(record_of(NOWHERE, started_at=1.0).model_copy(update={"run": "again"}))
        return lock()

    monkeypatch.setattr(again, "try_lock", launched_first)
    assert prune(again).kept == "it was launched again just now"
    assert [state.run for state in known_runs(tmp_path)] == ["again", "newer"]


def test_a_launch_that_comes_while_its_old_run_is_removed_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = made(tmp_path, "r"), StateDir(tmp_path, "r")
    remove = pruning._remove_files

    def remove_slowly(folder: Path) -> None:
        launch.start()
        while not begun.wait(0.01):
            pass
        remove(folder)

    begun = threading.Event()
    enter = new._enter

    def told() -> bool:
        begun.set()
        return enter()

    monkeypatch.setattr(new, "_enter", told)
    monkeypatch.setattr("launcher.state.state_dir._LOOKS_SECONDS", 20.0)
    monkeypatch.setattr(pruning, "_remove_files", remove_slowly)
    launch = threading.Thread(target=new.acquire)
    assert prune(old).removed
    launch.join(20)
    assert names(new.path) == ["lock", "logs"]
    monkeypatch.setattr("launcher.state.state_dir._LOOKS_SECONDS", 0.0)
    with pytest.raises(RunExists):
        StateDir(tmp_path, "r").acquire()
    new.release()


def test_a_lock_whose_file_was_removed_is_none(tmp_path: Path) -> None:
    old, new = made(tmp_path, "r"), StateDir(tmp_path, "r")
    assert old.try_lock()
    (old.path / "lock").unlink()
    assert new.try_lock()
    assert not StateDir(tmp_path, "r").try_lock()
    old.release()
    new.release()


def test_after_a_launch_old_runs_go_and_no_trouble_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning.old_runs, "__kwdefaults__", {"older_than": 0.0, "keep": 1})
    for number in range(3):
        made(tmp_path, f"r{number}", days=number)
    prune_after_launch(tmp_path)
    assert [state.run for state in known_runs(tmp_path)] == ["r0"]

    def broken(root: Path) -> list[str]:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(pruning, "old_runs", broken)
    prune_after_launch(tmp_path)


def test_a_run_is_old_from_its_last_second_on_and_the_oldest_go_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, at in enumerate((7_000, 6_000, 5_000, 4_000)):
        for path in made(tmp_path, f"r{number}").path.rglob("*"):
            os.utime(path, (at, at))
    clock = iter([0.0, 0.1, 0.3, 0.31])
    there = SimpleNamespace(time=lambda: 8_000.0, monotonic=lambda: next(clock))
    monkeypatch.setattr(pruning, "time", there)
    assert old_runs(tmp_path, older_than=1_000.0, keep=0) == ["r0", "r1", "r2", "r3"]
    assert old_runs(tmp_path, older_than=1_000.5, keep=0) == ["r1", "r2", "r3"]
    monkeypatch.setattr(pruning.old_runs, "__kwdefaults__", {"older_than": 0.0, "keep": 0})
    prune_after_launch(tmp_path)
    assert sorted(state.run for state in known_runs(tmp_path)) == ["r0", "r1"]


def test_the_command_tells_what_it_removes_and_what_stays(tmp_path: Path) -> None:
    for run, days in (("new", 0), ("old", 40), ("held", 50)):
        made(tmp_path, run, days=days)
    held = StateDir(tmp_path, "held")
    held.acquire()
    assert rdzv("prune", state=tmp_path).output == "there is nothing to remove\n"
    words = ("prune", "--keep", "0", "--older-than", "30d")
    assert "would remove run 'old'\n" in rdzv(*words, "--dry-run", state=tmp_path).stdout
    done = rdzv(*words, state=tmp_path)
    assert done.stdout == "removed run 'old'\n"
    assert (done.stderr, done.exit_code) == ("rdzv: run 'held' stays: its launcher runs\n", 0)
    assert rdzv("prune", "held", state=tmp_path).exit_code == 1
    held.release()

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "prune", broken)
        done = rdzv(*words, state=tmp_path)
    first = "rdzv: run 'held' stays: [Errno 30] Read-only file system\n"
    assert (done.stdout, done.stderr.startswith(first), done.exit_code) == ("", True, 1)
    (tmp_path / "new" / "notes").touch()
    done = rdzv("prune", "new", state=tmp_path)
    assert (done.stdout, done.exit_code) == ("removed run 'new'\n", 0)
    assert "still holds notes, which rdzv did not write" in done.stderr
    for wrong in (["nosuch"], ["--older-than", "30"], ["--older-than", "1 week"]):
        assert rdzv("prune", *wrong, state=tmp_path).exit_code == ExitCode.USAGE
