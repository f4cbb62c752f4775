"""The disk of the state directory: full for a while or for good, read-only, failing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.disks import failing_disk, fill, no_reserve, run, small_disk
from tests.support.launching import Launched, Outcome, launching, rdzv, shell
from tests.support.missing import give_up
from tests.support.nightly import at_night
from tests.support.waiting import until

COMMAND = ("--framework", "command", "--nnodes", "2")
SHORT = ("--orphan-timeout", "3")

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(120)]


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
    lines = [f"[{rank}] {word}" for rank in range(2) for word in ("ended", "started")]
    assert sorted(outcome.out.splitlines()) == lines
    assert "Traceback" not in outcome.err


def assert_named(outcome: Outcome, journal: Path, words: str) -> None:
    """The run ended because of its journal, and that is said."""
    assert outcome.code == 85
    assert f"the journal {journal} could not be written" in outcome.last_line
    assert words in outcome.last_line
    assert "Traceback" not in outcome.err


def test_a_disk_that_fills_up_does_not_keep_a_run_from_ending_well(
    tmp_path: Path, disk: Path
) -> None:
    with launching(disk, *COMMAND, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        fill(disk)
        (tmp_path / "end").touch()
        outcome = launched.finish()
        assert_ended_well(outcome)
        # The journal has given its reserve back by then.
        assert (launched.folder / "result.json").exists(), outcome.err
        assert kinds(launched).count("exited") == 2


def test_a_run_whose_journal_has_no_room_goes_on_once_there_is_room_again(
    tmp_path: Path, disk: Path
) -> None:
    """The registry is killed meanwhile."""
    options = (*COMMAND, "--lease", "3", "--log-dir", str(tmp_path / "logs"))
    with launching(disk, *options, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        filler = fill(disk)
        with no_reserve(launched.folder / "journal.sqlite"):
            before = kinds(launched)
            launched.child("_registry").kill()
            time.sleep(4)  # longer than a lease: the beats must go on
            assert "running on 2 nodes" in rdzv(disk, "status", "r")
            (tmp_path / "end").touch()
            until(said(launched, "the registry has not accepted this node's report yet"))
            assert kinds(launched) == before
            filler.unlink()
            outcome = launched.finish()
        assert_ended_well(outcome)
        told = f"the journal {disk}/r/journal.sqlite could not be written: database or disk is full"
        assert f"rdzv: {told}; free space on that disk" in outcome.err
        after = kinds(launched)
    assert after[: len(before)] == before
    assert (after.count("exited"), after.count("lost")) == (2, 0)


def stay_full(launched: Launched) -> None:
    """The journal's disk has no room left, its reserve included, and not for anybody again."""
    fill(launched.state)
    with no_reserve(launched.folder / "journal.sqlite"):
        (launched.state.parent / "end").touch()
        until(lambda: launched.process.poll() is not None)


def exceed_its_limit(launched: Launched) -> None:
    """The journal's file has the size that the registry may write."""
    registry = launched.child("_registry")
    run("prlimit", f"--pid={registry.pid}", "--fsize=4096")
    (launched.state.parent / "end").touch()


@pytest.mark.parametrize(
    ("happens", "words"),
    [(stay_full, "free space on that disk"), at_night(exceed_its_limit, "raise ulimit -f")],
)
def test_a_journal_that_can_never_be_written_again_ends_the_run_and_is_named(
    tmp_path: Path, disk: Path, happens: Callable[[Launched], None], words: str
) -> None:
    options = (*COMMAND, *SHORT, "--log-dir", str(tmp_path / "logs"))
    with launching(disk, *options, command=until_told(tmp_path)) as launched:
        launched.wait_for_phase("running")
        happens(launched)
        outcome = launched.finish()
    assert_named(outcome, disk / "r" / "journal.sqlite", words)


def test_a_disk_that_fails_in_mid_run_is_named(tmp_path: Path) -> None:
    if shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        give_up("needs mkfs.ext4 (e2fsprogs) and loop devices")
    options = (*COMMAND, *SHORT, "--log-dir", str(tmp_path / "logs"))
    with (
        failing_disk(tmp_path / "disk") as (disk, trigger),
        launching(disk, *options, command=until_told(tmp_path)) as launched,
    ):
        launched.wait_for_phase("running")
        run("sync", "-f", str(disk))
        trigger.write_text("a damage")
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert_named(outcome, disk / "r" / "journal.sqlite", "check that disk (dmesg, mount)")
