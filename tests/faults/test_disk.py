"""The disk of the state directory: too small, full for a while or for good, read-only, failing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.run.registry_process import server_command
from launcher.state.state_dir import StateDir
from tests.faults.late import late_slot_1
from tests.support.disks import failing_disk, fill, no_reserve, run, small_disk
from tests.support.launching import RDZV, Launched, Outcome, environment, launch, launching, shell
from tests.support.nightly import but_at_night
from tests.support.record import record
from tests.support.waiting import until

COMMAND = ("--framework", "command", "--nnodes", "2")

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system for the state directory."""
    with small_disk(tmp_path / "disk") as folder:
        yield folder


def until_told(folder: Path) -> list[str]:
    """COMMAND: runs until the folder holds a file `end`, and says so."""
    return shell(f"echo started; while [ ! -e {folder}/end ]; do sleep 0.05; done; echo ended")


def kinds(launched: Launched) -> list[object]:
    """What the journal holds."""
    return [event["kind"] for event in launched.events()]


def said(launched: Launched, words: str) -> Callable[[], bool]:
    """Whether an agent has said so; its log is on another disk than the journal."""
    logs = launched.state.parent / "logs"
    return lambda: any(words in log.read_text() for log in logs.glob("agent-*.log"))


def assert_ended_well(outcome: Outcome) -> None:
    """Both programs were let finish, and the launch knows it."""
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.split("\n")[:-1]) == sorted(
        f"[{rank}] {word}" for rank in range(2) for word in ("started", "ended")
    )
    assert "Traceback" not in outcome.err


# Before anything starts


@pytest.mark.parametrize(("size", "left"), [("4k", 4), ("7m", 7 << 10)])
def test_a_disk_without_room_for_a_run_is_refused_at_once(
    tmp_path: Path, size: str, left: int
) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        outcome = launch(disk, *COMMAND, command=["true"])
    assert outcome.code == 2
    assert outcome.err == (
        f"rdzv: the disk of the state directory {disk}/r has {left} kB left, and a run needs 8 MB "
        "there\n      make room, or name another one with --state-dir or RDZV_STATE_DIR\n"
    )
    record("launch on a disk with less than 8 MB left", outcome.err.splitlines()[0])


def test_a_read_only_state_directory_is_refused_at_once(disk: Path) -> None:
    run("mount", "-o", "remount,ro", str(disk))
    outcome = launch(disk, *COMMAND, command=["true"])
    assert outcome.code == 2
    assert outcome.err == (
        f"rdzv: the state directory {disk}/r cannot be used: Read-only file system\n"
        "      name another one with --state-dir or RDZV_STATE_DIR\n"
    )
    record("launch with a read-only state directory", outcome.err.splitlines()[0])


# A disk that fills up

MOMENTS = ("before a join", "while the programs run")


@pytest.mark.faults
@pytest.mark.parametrize("moment", but_at_night(MOMENTS, MOMENTS[1]))
def test_a_disk_that_fills_up_does_not_keep_a_run_from_ending_well(
    tmp_path: Path, disk: Path, moment: str
) -> None:
    options = (*COMMAND, *late_slot_1(tmp_path))
    with launching(disk, *options, command=until_told(tmp_path)) as launched:
        launched.wait_for("joined")
        if moment == "before a join":
            fill(disk)
        (tmp_path / "join").touch()
        launched.wait_for_phase("running")
        if moment == "while the programs run":
            fill(disk)
        (tmp_path / "end").touch()
        outcome = launched.finish()
        assert_ended_well(outcome)
        assert f"{disk}/r/result.json cannot be written: No space left on device" in outcome.err
        assert kinds(launched).count("exited") == 2
        record(f"the journal's disk fills up {moment} and stays full", outcome)


@pytest.mark.faults
@pytest.mark.parametrize("registry_killed", but_at_night([False, True], True))
def test_a_run_whose_journal_has_no_room_goes_on_once_there_is_room_again(
    tmp_path: Path, disk: Path, registry_killed: bool
) -> None:
    options = (*COMMAND, "--lease", "6", "--log-dir", str(tmp_path / "logs"))
    with launching(disk, *options, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        filler = fill(disk)
        with no_reserve(launched.folder / "journal.sqlite"):
            before = kinds(launched)
            if registry_killed:
                launched.child("rendezvous.server").kill()
            time.sleep(8)  # longer than a lease: the beats must go on
            shown = subprocess.run(
                [RDZV, "status", "r"], capture_output=True, text=True, env=environment(disk)
            )
            assert "running on 2 nodes" in shown.stdout
            (tmp_path / "end").touch()
            until(said(launched, "the registry has not taken in this node's report yet"))
            assert kinds(launched) == before
            filler.unlink()
            outcome = launched.finish()
        assert_ended_well(outcome)
        told = f"the journal {disk}/r/journal.sqlite could not be written: database or disk is full"
        assert f"rdzv: {told}; free space on that disk" in outcome.err
        after = kinds(launched)
        assert after[: len(before)] == before
        assert (after.count("exited"), after.count("lost")) == (2, 0)
        killed = ", the registry is killed meanwhile" if registry_killed else ""
        record(f"a full disk and a used-up reserve; later there is room{killed}", f"rdzv: {told}")


@pytest.mark.faults
def test_a_node_joins_once_there_is_room_again(tmp_path: Path, disk: Path) -> None:
    options = (*COMMAND, *late_slot_1(tmp_path), "--log-dir", str(tmp_path / "logs"))
    (tmp_path / "end").touch()
    with launching(disk, *options, command=until_told(tmp_path)) as launched:
        launched.wait_for("joined")
        filler = fill(disk)
        with no_reserve(launched.folder / "journal.sqlite"):
            (tmp_path / "join").touch()
            until(said(launched, "could not be written: database or disk is full"))
            assert said(launched, "cannot join yet")()
            assert kinds(launched).count("joined") == 1
            filler.unlink()
            outcome = launched.finish()
        assert_ended_well(outcome)
        words = "rdzv: cannot join yet, 599 s left: the journal ... could not be written"
        record("a node joins while the disk is full; later there is room", words)


@pytest.mark.faults
def test_a_disk_that_stays_full_ends_the_run_and_is_named(tmp_path: Path, disk: Path) -> None:
    options = (*COMMAND, "--orphan-timeout", "3", "--log-dir", str(tmp_path / "logs"))
    with launching(disk, *options, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        fill(disk)
        with no_reserve(launched.folder / "journal.sqlite"):
            (tmp_path / "end").touch()
            started = time.monotonic()
            outcome = launched.finish()
    record(
        "a full disk and a used-up reserve, for ever (orphan time-out 3 s)",
        outcome,
        time.monotonic() - started,
    )
    assert outcome.code == 85
    assert f"the journal {disk}/r/journal.sqlite could not be written" in outcome.last_line
    assert "free space on that disk" in outcome.last_line
    assert "Traceback" not in outcome.err


@pytest.mark.faults
@pytest.mark.parametrize("needed_by", but_at_night(["a join", "the join time-out"], "a join"))
def test_a_journal_that_cannot_be_written_while_a_run_gathers_is_named(
    tmp_path: Path, needed_by: str
) -> None:
    options = ("--orphan-timeout", "5", "--join-timeout", "600" if needed_by == "a join" else "20")
    late = late_slot_1(tmp_path)
    with launching(tmp_path / "s", *COMMAND, *late, *options, command=["true"]) as launched:
        launched.wait_for("joined")
        registry = launched.child("rendezvous.server")
        run("prlimit", f"--pid={registry.pid}", "--fsize=4096")
        if needed_by == "a join":
            (tmp_path / "join").touch()
        started = time.monotonic()
        env = environment(tmp_path / "s")

        def status_names_it() -> bool:
            shown = subprocess.run([RDZV, "status", "r"], capture_output=True, text=True, env=env)
            return "raise ulimit -f" in " ".join(shown.stdout.split())

        until(status_names_it)
        outcome = launched.finish()
    words = f"a journal beyond the registry's file limit (ulimit -f), needed by {needed_by}"
    record(f"{words} (orphan time-out 5 s)", outcome, time.monotonic() - started)
    assert outcome.code == 85
    assert f"the journal {tmp_path}/s/r/journal.sqlite could not be written" in outcome.last_line
    assert "at most 4096 bytes: raise ulimit -f" in outcome.last_line
    assert "never called" not in outcome.err


# A disk that fails, a journal that goes away


@pytest.mark.faults
def test_a_disk_that_fails_in_mid_run_is_named(tmp_path: Path) -> None:
    if shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("needs mkfs.ext4 (e2fsprogs) and loop devices")
    options = (*COMMAND, "--orphan-timeout", "3", "--log-dir", str(tmp_path / "logs"))
    with (
        failing_disk(tmp_path / "disk") as (disk, trigger),
        launching(disk, *options, command=until_told(tmp_path)) as launched,
    ):
        launched.wait_for_phase("running")
        run("sync", "-f", str(disk))
        trigger.write_text("a damage")
        (tmp_path / "end").touch()
        started = time.monotonic()
        outcome = launched.finish()
    record(
        "the journal's disk fails and turns read-only (orphan time-out 3 s)",
        outcome,
        time.monotonic() - started,
    )
    assert outcome.code == 85
    assert f"the journal {disk}/r/journal.sqlite could not be written" in outcome.last_line
    assert "look after that disk (dmesg, mount)" in outcome.last_line
    assert "Traceback" not in outcome.err


@pytest.mark.faults
@pytest.mark.parametrize("registry_killed", but_at_night([False, True], True))
def test_a_journal_that_is_deleted_in_mid_run(tmp_path: Path, registry_killed: bool) -> None:
    with launching(tmp_path / "s", *COMMAND, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        for path in launched.folder.glob("journal.sqlite*"):
            path.unlink()
        if registry_killed:
            launched.child("rendezvous.server").kill()
        (tmp_path / "end").touch()
        outcome = launched.finish()
    killed = ", then the registry is killed" if registry_killed else ""
    record(f"the journal is deleted under the registry{killed}", outcome)
    if registry_killed:
        assert outcome.code == 77
        assert "there is no run 'r'" in outcome.last_line
    else:
        assert_ended_well(outcome)


@pytest.mark.faults
def test_two_registries_on_one_journal_write_one_history(tmp_path: Path) -> None:
    with launching(tmp_path / "s", *COMMAND, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        state = StateDir(tmp_path / "s", "r")
        with socket.create_server(("127.0.0.1", 0)) as sock:
            other = subprocess.Popen(
                server_command(state, sock.fileno()),
                pass_fds=(sock.fileno(),),
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            launched.wait_for("restarted")
            (tmp_path / "end").touch()
            outcome = launched.finish()
        finally:
            other.terminate()
            other.communicate()
        assert_ended_well(outcome)
        numbers = [event["number"] for event in launched.events()]
        assert numbers == list(range(1, len(numbers) + 1))
        record("a second registry writes the same journal", outcome)
