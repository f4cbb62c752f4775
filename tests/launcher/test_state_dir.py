"""The state directory and its ledger: who may read them, who holds them, what survives what."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.cleanup.orphans import end_left
from launcher.plan.plan import Submission, WorkerRun
from launcher.plan.template import Value
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.manual import ManualScheduler
from launcher.state import state_dir
from launcher.state.former_launches import FORMER_LAUNCHES, former_launches
from launcher.state.ledger import Ledger, LedgerEntry
from launcher.state.prune import Pruned, prune
from launcher.state.state_dir import StateDir, known_runs
from rendezvous.feature import declared
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RunExists, UsageError
from rendezvous.wire.run import Result
from tests.launcher.command import record_of

PLACE = RegistryPlace(("10.0.0.1", "fd00::1"), 29600, "certificate", b"\x30\x82der")
RECORD = record_of(PLACE)
VARIABLES: dict[str, Value] = {"COMMAND": ["a b", "한", "x\ny"], "NAME": "x", "ZERO": "007"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refused(state: StateDir) -> str:
    """Why it cannot be taken."""
    with pytest.raises((UsageError, RunExists)) as caught:
        state.acquire()
    return f"{caught.value.message}; {caught.value.hint}"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDir]:
    """The folder of run 'llama', held by this process."""
    state = StateDir(tmp_path / "rdzv", "llama")
    state.acquire()
    yield state
    state.release()


@pytest.fixture
def other(state: StateDir) -> StateDir:
    """The same folder, in the hands of another launcher."""
    return StateDir(state.path.parent, "llama")


# ---- who may read it ----------------------------------------------------------------------------


def test_only_the_owner_can_read_what_is_kept(state: StateDir) -> None:
    left = state.path / ".secret.new"  # by a killed launcher, half written
    left.write_text("half")
    left.chmod(0o644)
    state.secret()
    state.write_record(RECORD)
    state.write("registry.json", b"{}")
    state.write("submissions/slot-1.sh", b"x")
    state.path.chmod(0o777)
    state.release()
    state.acquire()
    for path in [state.path, *state.path.rglob("*")]:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    names = {path.name for path in state.path.rglob("*") if path.is_file()}
    assert names == {"lock", "secret", "launch.json", "registry.json", "slot-1.sh"}


def test_a_place_where_no_folder_can_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(StateDir(tmp_path / "file", "llama")) == (
        f"the state directory {tmp_path / 'file' / 'llama'} cannot be used: Not a directory; "
        "choose another one with --state-dir or RDZV_STATE_DIR"
    )


def of_length(folder: Path, length: int) -> Path:
    """A folder below this one whose whole path has this length."""
    while length - len(str(folder)) > 102:
        folder /= "a" * 100
    return folder / ("b" * (length - len(str(folder)) - 1))


def test_the_longest_place_of_all_is_one_whose_journal_can_be_opened(tmp_path: Path) -> None:
    longest = StateDir(of_length(tmp_path, 504 - len("/llama/journal.sqlite")), "llama")
    longest.acquire()
    with closing(sqlite3.connect(longest.journal, isolation_level=None)) as journal:
        journal.execute("PRAGMA journal_mode = WAL")
        journal.execute("CREATE TABLE events (number INTEGER)")
    longest.release()
    too_long = StateDir(of_length(tmp_path, 505 - len("/llama/journal.sqlite")), "llama")
    assert "its journal's path has 505 bytes, and at most 504 are possible" in refused(too_long)
    assert not too_long.path.exists()


def test_12_a_disk_without_room_is_told_and_the_folder_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(total=1 << 40, used=0, free=(8 << 20) - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda path: tuple(vars(room).values()))
    state = StateDir(tmp_path, "llama")
    words = f"the disk of the state directory {state.path} has 8191 kB left, but a run needs 8 MB"
    assert refused(state).startswith(words)
    assert not state.is_held()
    room.free += 1
    state.acquire()
    assert (mode(state.path), mode(state.logs)) == (0o700, 0o700)
    state.release()


@pytest.mark.parametrize("whose", ["a link", "somebody else's"])
def test_12_a_folder_that_others_could_change_is_refused_and_left_as_it_is(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(tmp_path / "rdzv", "llama")
    there = tmp_path / "there" if whose == "a link" else state.path
    for folder in (tmp_path / "rdzv", there):
        folder.mkdir()
    there.chmod(0o750)
    if whose == "a link":
        state.path.symlink_to(there)
    else:
        others = SimpleNamespace(st_uid=os.getuid() + 1)  # that of what this process makes there
        monkeypatch.setattr("os.fstat", lambda fd: others)
    assert refused(state) == (
        f"the state directory {state.path} is {whose}; "
        "remove it, or choose another one with --state-dir or RDZV_STATE_DIR"
    )
    assert (mode(there), list(there.iterdir())) == (0o750, [])


# ---- who holds it -------------------------------------------------------------------------------


def test_a_second_launcher_is_refused_and_told_who_holds_the_run(
    state: StateDir, other: StateDir
) -> None:
    """The lock's file may hold more of a former launcher's name than the holder's own."""
    holder = f"run 'llama' is being launched by pid {os.getpid()} on {socket.gethostname()}, "
    words = refused(other)
    assert words.startswith(f"{holder}started ")
    assert "rdzv cancel llama" in words
    state.release()
    (state.path / "lock").write_text("pid 1234567890 on a host whose name is longer than ours" * 2)
    state.acquire()
    assert refused(other).startswith(f"{holder}started ")


def test_a_launcher_that_has_just_taken_the_run_is_named_all_the_same(
    state: StateDir, other: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(state.path / "lock", 0)
    named = lambda _: (state.path / "lock").write_text("pid 7 on h7")  # noqa: E731
    monkeypatch.setattr("time.sleep", named)
    assert "is being launched by pid 7 on h7, started" in refused(other)


def test_13_a_holder_without_a_name_is_another_process_after_a_second(
    state: StateDir, other: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    monkeypatch.setattr("time.sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    os.truncate(state.path / "lock", 0)
    assert "is being launched by another process, started" in refused(other)
    looks, names = 0.2, 1.0  # whether it is held, and by whom
    assert looks + names < clock.now < looks + names + 0.1


def test_looking_whether_it_is_held_neither_makes_nor_takes_it(tmp_path: Path) -> None:
    state = StateDir(tmp_path, "llama")
    assert not state.is_held()
    assert not state.path.exists()
    for _ in range(2):
        state.acquire()
        assert StateDir(tmp_path, "llama").is_held()
        state.release()
        assert not state.is_held()
    state.release()


@pytest.mark.real_time
def test_the_program_that_replaces_a_launcher_holds_on_until_it_is_killed(state: StateDir) -> None:
    state.keep_lock_over_exec()
    child = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(child, stdin=subprocess.PIPE, close_fds=False) as process:
        state.release()
        assert state.is_held()
        process.kill()
    assert not state.is_held()


# ---- what is written down -----------------------------------------------------------------------


def test_a_record_comes_back_as_it_was_written(state: StateDir, other: StateDir) -> None:
    more: dict[str, Any] = {"host": "h1", "pid": 7, "started_at": 1.5, "fingerprint": "f"}
    record = record_of(PLACE, owns_registry=False, options={"grace": 2.5}, **more)
    state.write_record(record)
    assert other.record() == record
    assert record.registry_place() == PLACE
    text = (state.path / "launch.json").read_text()
    state.write("launch.json", text.replace("{", '{"new": 1,', 1).encode())  # of a newer version
    assert state.record() == record


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff", b"[]"),
        b'{"run": "llama"}',
        b'{"run": "r", "launch_id": "x", "scheduler": "s", "place": {}}',
        b'{"run": "r", "launch_id": "x", "scheduler": "s", "place": {"a": [], "p": 1, "c": "="}}',
    ],
)
def test_a_damaged_record_counts_as_none(state: StateDir, content: bytes) -> None:
    assert (state.record(), state.keys()) == (None, None)  # it was never launched
    state.write("launch.json", content)
    assert (state.record(), state.keys()) == (None, None)


def test_the_secret_is_made_once_and_makes_the_keys(state: StateDir, other: StateDir) -> None:
    state.write_record(RECORD)
    assert other.keys() is None
    secret = state.secret()
    assert len(secret) == 32
    assert other.secret() == secret
    assert other.keys() == RunKeys(secret, "llama", "k7f2a9c1xy")


def test_a_secret_that_cannot_be_read_is_refused_in_words(state: StateDir) -> None:
    (state.path / "secret").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"/secret cannot be read: Is a directory"):
        state.secret()


@pytest.mark.parametrize("content", ["", "00" * 31, "zz" * 32, "00" * 33])
def test_a_damaged_secret_is_refused_and_not_shown(state: StateDir, content: str) -> None:
    state.write("secret", content.encode())
    with pytest.raises(UsageError) as caught:
        state.secret()
    path = state.path / "secret"
    assert caught.value.message == f"{path} is damaged: it does not hold 32 bytes in hex"


def test_15_what_is_written_takes_the_place_of_what_was_once_it_is_on_disk(
    state: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = state.write("secret", b"first"), []

    def full(fd: int) -> None:
        seen.append((os.fstat(fd).st_size, path.read_bytes()))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError) as caught:
        state.write("secret", b"the second")
    assert caught.value.message == f"{path} cannot be written: No space left on device"
    assert (seen, path.read_bytes()) == ([(10, b"first")], b"first")


# ---- what is forgotten --------------------------------------------------------------------------


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_how_each_of_the_newest_launches_ended_is_kept_the_newest_first(state: StateDir) -> None:
    for number in range(23):
        state.write_record(RECORD.model_copy(update={"launch_id": f"launch-{number}"}))
        if number % 2:
            state.write_result(Result(status="failed", exit_code=number, message="boom"))
        state.forget_launch()
    found = former_launches(state.path)
    assert [one.record.launch_id for one in found] == [f"launch-{n}" for n in range(22, 2, -1)]
    codes = [one.result.exit_code if one.result else None for one in found[:4]]
    assert codes == [None, 21, None, 19]


def test_a_launch_that_was_half_forgotten_is_kept_once(state: StateDir) -> None:
    state.write_record(RECORD)
    state.forget_launch()
    state.write_record(RECORD)
    state.forget_launch()
    assert [one.record for one in former_launches(state.path)] == [RECORD]


def test_former_launches_that_cannot_be_kept_do_not_keep_a_launch_from_its_start(
    state: StateDir,
) -> None:
    state.write_record(RECORD)
    (state.path / FORMER_LAUNCHES).mkdir()
    state.forget_launch()
    assert former_launches(state.path) == []
    assert state.record() is None


def test_a_line_of_former_launches_that_cannot_be_read_is_passed_over(state: StateDir) -> None:
    state.write_record(RECORD)
    state.forget_launch()
    path = state.path / FORMER_LAUNCHES
    path.write_bytes(b"{half\n" + path.read_bytes() + b"\xff\n")
    assert [one.record for one in former_launches(state.path)] == [RECORD]


def documented() -> list[str]:
    """The files that the module's first lines list, by their names."""
    lines = [line for line in (state_dir.__doc__ or "").splitlines() if line.startswith("    ")]
    return [name for line in lines for name in line.split("  ")[2].split() if "." in name]


def test_all_that_is_documented_of_a_launch_is_forgotten_and_pruned(state: StateDir) -> None:
    names = [*documented(), "secret", "last-words/epoch-2/rank-3.txt"]
    assert len(names) == 15
    names += [name for feature in declared() for name in feature.run_files]
    names += ["journal.sqlite-wal", "journal.sqlite-shm", "submissions/slot-1.sh"]
    for _ in range(2):
        for name in names:
            state.write(name, b"x")
        state.forget_launch()
        former = {"lock", "former-logs/last-words/epoch-2/rank-3.txt"}
        former.add("former-launches.jsonl")
        assert files_of(state.path) == former
    for name in names:
        state.write(name, b"x")
    state.write("worker-runs.jsonl", b"")
    state.write_record(RECORD.model_copy(update={"run": state.run}))
    state.release()
    assert prune(state) == Pruned(state.run, removed=True)
    assert not state.path.exists()


def test_only_the_former_launchs_logs_are_kept_next_to_the_newest(state: StateDir) -> None:
    for name in ("node-0.log", "node-0.log.first", "node-1.e2.log", "node-0/hostfile"):
        state.write(f"logs/{name}", b"first")
    state.forget_launch()
    assert not (state.logs / "node-0").exists()
    for name in ("node-0.log", "registry.log", "nccl-k7/node-0.17.log"):
        state.write(f"logs/{name}", b"second")
    state.forget_launch()
    former = {"node-0.log", "registry.log", "nccl-k7/node-0.17.log"}
    assert files_of(state.former_logs) == former
    assert (state.former_logs / "node-0.log").read_bytes() == b"second"
    assert not (state.former_logs / "node-0").exists()
    assert list(state.logs.iterdir()) == []


def test_the_former_launchs_last_words_are_kept_with_its_logs(state: StateDir) -> None:
    state.write("last-words/epoch-1/rank-0.txt", b"first")
    state.write("last-words/epoch-2/rank-0.txt", b"first")
    state.forget_launch()
    assert not state.last_words.path.exists()
    assert len(files_of(state.former_logs)) == 2
    state.write("last-words/epoch-1/rank-1.txt", b"second")
    state.write("former-logs/last-words/mine", b"x")
    state.forget_launch()
    former = {"last-words/mine", "last-words/epoch-1/rank-1.txt"}
    assert files_of(state.path) == {"lock"} | {f"former-logs/{name}" for name in former}
    state.forget_launch()
    assert files_of(state.former_logs) == {"last-words/mine"}


def test_the_result_names_the_folder_of_last_words_where_there_is_one(state: StateDir) -> None:
    for words in ("", str(state.last_words.path)):
        state.write_result(Result(status="failed", exit_code=1, message="boom"))
        kept = state.result()
        assert kept is not None
        assert kept.last_words == words
        state.write("last-words/epoch-1/rank-0.txt", b"x")


def test_what_rdzv_did_not_write_among_the_logs_stays_there(state: StateDir) -> None:
    for name in ("node-0.log", "profile.json", "node-0/notes"):
        state.write(f"logs/{name}", b"x")
    state.write("former-logs/mine", b"x")
    state.forget_launch()
    assert files_of(state.logs) == {"profile.json", "node-0/notes"}
    assert files_of(state.former_logs) == {"mine", "node-0.log"}


def test_a_log_folder_of_the_users_is_not_touched(state: StateDir, tmp_path: Path) -> None:
    state.write("logs/node-0.log", b"x")
    link = tmp_path / "link"
    link.symlink_to(state.logs)
    state.forget_launch(log_dir=state.logs)
    state.forget_launch(log_dir=link)
    assert files_of(state.logs) == {"node-0.log"}
    theirs = tmp_path / "theirs" / "node-0.log"
    theirs.parent.mkdir()
    theirs.write_text("x")
    state.forget_launch(log_dir=theirs.parent)
    assert files_of(state.former_logs) == {"node-0.log"}
    assert theirs.read_text() == "x"


def test_logs_that_cannot_be_moved_do_not_keep_a_launch_from_its_start(state: StateDir) -> None:
    state.write("logs/node-0.log", b"x")
    state.former_logs.write_text("no folder")
    state.forget_launch()
    assert files_of(state.path) >= {"former-logs", "logs/node-0.log"}


def test_two_launches_entries_of_one_slot_are_told_apart(state: StateDir) -> None:
    old, gone, new = entry(1, 3), entry(1, 1), entry(1, 1, "new")
    state.ledger.begin(old)
    state.ledger.begin(gone)
    state.forget_launch([old.name])
    state.ledger.begin(new)
    assert state.ledger.entries() == [replace(old, former=True), new]


def test_the_runs_of_a_folder_come_newest_first(tmp_path: Path) -> None:
    for name, at in (("a", 20.0), ("b", 30.0), ("c", 10.0)):
        StateDir(tmp_path, name).write_record(record_of(PLACE, started_at=at))
    (tmp_path / "not-a-run").mkdir()
    StateDir(tmp_path, "damaged").write("launch.json", b"{")
    assert [state.run for state in known_runs(tmp_path)] == ["b", "a", "c", "damaged"]
    assert known_runs(tmp_path / "nowhere") == []


# ---- the ledger ---------------------------------------------------------------------------------


def entry(
    slot: int, generation: int = 1, launch: str = "k7f2", starter: str = "slurm"
) -> LedgerEntry:
    name = f"rdzv-{launch}-{slot}-{generation}"
    run = WorkerRun(slot, generation, name, VARIABLES | {"SLOT": slot}, "w.sh")
    return LedgerEntry(run, starter)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "worker-runs.jsonl")


def test_what_became_known_last_counts_and_what_is_gone_is_not_left(ledger: Ledger) -> None:
    assert (ledger.entries(), ledger.left()) == ([], [])
    first, second, third = entry(2), entry(1), entry(1, 2)
    for each in (first, second, third):
        ledger.begin(each)
    assert mode(ledger.path) == 0o600
    made, gone = replace(second, handle="17"), replace(first, handle="16", gone=True)
    ledger.note(made)
    ledger.note(gone)
    ledger.note(entry(9))  # its beginning is lost
    ledger.begin(entry(0, starter="local"))  # children of the launcher end with it
    ledger.note(entry(0, starter="local"))
    assert ledger.entries() == [made, third, gone]
    assert ledger.left() == [made, third]


def test_what_the_last_release_has_written_is_read(ledger: Ledger) -> None:
    ledger.path.write_text(
        '{"name": "rdzv-k7f2-3-1", "slot": 3, "generation": 1, "starter": "slurm", "source": '
        '"w.sh", "variables": {"SLOT": 3, "COMMAND": ["x"]}, "handle": "", "gone": false, '
        '"former": true}\n{"name": "rdzv-k7f2-3-1", "handle": "17", "gone": false}\n'
    )
    run = WorkerRun(3, 1, "rdzv-k7f2-3-1", {"SLOT": 3, "COMMAND": ["x"]}, "w.sh")
    assert ledger.entries() == [LedgerEntry(run, "slurm", "17", former=True)]
    assert ledger.entries()[0].line() == (
        '{"slot": 3, "generation": 1, "name": "rdzv-k7f2-3-1", "variables": {"SLOT": 3, '
        '"COMMAND": ["x"]}, "source": "w.sh", "starter": "slurm", "handle": "17", "gone": false, '
        '"former": true}\n'
    )


@pytest.mark.parametrize("torn", [b'{"name": "rdzv-k7f2-2-1", "sl', b"\xff\xfe", b"[1]\n", b"7"])
def test_a_line_that_was_cut_short_spoils_no_other(ledger: Ledger, torn: bytes) -> None:
    ledger.begin(entry(1))
    with ledger.path.open("ab") as file:
        file.write(torn)
    ledger.begin(entry(3))
    assert [found.run.slot for found in ledger.entries()] == [1, 3]


def test_a_folder_that_is_gone_is_an_error_before_anything_is_submitted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Ledger(tmp_path / "nowhere" / "worker-runs.jsonl").begin(entry(1))


async def test_what_a_former_launch_has_left_is_ended_and_noted(
    tmp_path: Path, ledger: Ledger
) -> None:
    context = SchedulerContext(tmp_path / "submissions", {})
    run = Submission(1, 1, "rdzv-k7f2-1-1", {"NAME": "rdzv-k7f2-1-1"}, "w.sh", "# <<NAME>> it is\n")
    script = await ManualScheduler(context).submit(run, "")
    ledger.begin(LedgerEntry(run, "manual"))
    ledger.note(LedgerEntry(run, "manual", script))
    said: list[str] = []
    for _ in range(2):
        assert await end_left(ledger, context, said.append, grace=0.0)
        assert said == ["1 worker run of the previous launch may still exist: ending them"]
    assert (Path(script).exists(), ledger.left()) == (False, [])


async def test_what_was_left_at_a_scheduler_that_is_no_longer_known_is_listed(
    tmp_path: Path, ledger: Ledger
) -> None:
    profile = str(tmp_path / "gone.toml")
    ledger.begin(entry(1, starter=profile))
    said: list[str] = []
    assert not await end_left(ledger, SchedulerContext(tmp_path, {}), said.append, grace=0.0)
    (words,) = said
    assert words.startswith("worker run rdzv-k7f2-1-1 may still exist: ")
    assert profile in words
    assert len(ledger.left()) == 1
