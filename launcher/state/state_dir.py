"""The state directory: what one launch keeps on disk, so that it can be resumed, asked and ended.

<root>/<run>/        0700
    lock             held by the launcher as long as it lives; says which process that is
    launch.json      launch id, place of the registry, who launches
    secret           256 bits, hex; everything else is derived from it
    key.pem certificate.pem certificate.der registry.json      what the registry process reads
    journal.sqlite   the run's events
    worker-runs.jsonl    which worker runs may exist at the scheduler, and how to find them there
    status.json      the nodes and their ranks, once they are known
    table.json       the endpoint table on which the programs were started
    report.json      what was checked before that
    run.toml         the launch as a run file, without secrets: 'rdzv launch -f RUN' reads it
    last-words/      what the ranks of programs that failed have printed last
    result.json      how the launch ended
    logs/            one file for each node, and the registry's own
    former-logs/     those of the former launch
    former-launches.jsonl    how the former launches ended, the newest first
    submissions/     rendered specs, where a scheduler needs them as files

Features have further files there: `Feature.run_files`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from launcher.state import run_secret
from launcher.state.former_launches import FORMER_LAUNCHES, FormerLaunch, with_former
from launcher.state.former_logs import FORMER_LOGS, set_aside, set_words_aside
from launcher.state.last_words import LAST_WORDS, LastWordsFolder
from launcher.state.launch_record import KeptResult, LaunchRecord
from launcher.state.ledger import Ledger
from rendezvous.feature import declared
from rendezvous.talk.credentials import RunKeys, new_secret
from rendezvous.wire.errors import RunExists, UsageError
from rendezvous.wire.run import Result
from rendezvous.wire.words import printable
from worker.program.output import make_private

Model = TypeVar("Model", bound=BaseModel)

RUN_FILE = "run.toml"

JOURNAL = "journal.sqlite"
_LEAST_ROOM = 8 << 20
_NAME_SECONDS = 1.0
_LOOKS_SECONDS = 0.2
"""Somebody who only looks whether the lock is held, or removes an old run, has it for a moment."""
_LONGEST_JOURNAL = 504
"""Bytes; SQLite takes paths of 512, and needs eight for the names of its own files beside it."""


class StateDir:
    """The folder of one run.

    Args:
        root: The folder of all runs.
        run: The run id.
    """

    def __init__(self, root: Path, run: str) -> None:
        self.run = run
        self.path = root / run
        self._lock: int | None = None

    @property
    def logs(self) -> Path:
        """Folder of the log files."""
        return self.path / "logs"

    @property
    def former_logs(self) -> Path:
        """Folder of the former launch's log files."""
        return self.path / FORMER_LOGS

    @property
    def journal(self) -> Path:
        """The run's journal."""
        return self.path / JOURNAL

    @property
    def last_words(self) -> LastWordsFolder:
        """What the ranks of programs that failed have printed last."""
        return LastWordsFolder(self.path / LAST_WORDS)

    @property
    def ledger(self) -> Ledger:
        """What is known of the newest launch's worker runs."""
        return Ledger(self.path / "worker-runs.jsonl")

    def acquire(self) -> None:
        """Make the folder and take its lock.

        Raises:
            RunExists: A live launcher holds it.
            UsageError: The folder cannot be made, is somebody else's, or has too long a name.
        """
        self._refuse_long()
        until = time.monotonic() + _LOOKS_SECONDS
        try:
            while not self._enter():
                if time.monotonic() > until:
                    raise self._held()
                time.sleep(0.01)
        except OSError as exc:
            raise UsageError(
                f"the state directory {self.path} cannot be used: {exc.strerror}",
                hint="choose another one with --state-dir or RDZV_STATE_DIR",
            ) from exc
        self._check_room()
        assert self._lock is not None
        with contextlib.suppress(OSError):  # a quota may be used up; the lock itself holds
            os.ftruncate(self._lock, 0)
            os.write(self._lock, f"pid {os.getpid()} on {socket.gethostname()}".encode())

    def _enter(self) -> bool:
        """Make the folder and try to take its lock."""
        with contextlib.suppress(FileNotFoundError):  # old, and removed by `rdzv prune` just now
            make_private(self.path)
            self._refuse_foreign()
            self.path.chmod(0o700)
            self.logs.mkdir(mode=0o700, exist_ok=True)
            return self.try_lock()
        return False

    def try_lock(self) -> bool:
        """Take the lock; not where somebody has it, or it was removed meanwhile. Raises OSError."""
        path = self.path / "lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), path.stat()):
                self._lock = fd
                return True
        os.close(fd)
        return False

    def _refuse_long(self) -> None:
        """SQLite refuses what the kernel takes, and would say so in the registry's log alone."""
        length = len(os.fsencode(os.path.realpath(self.journal)))
        if length > _LONGEST_JOURNAL:
            raise UsageError(
                f"the path of the state directory {self.path} is too long: its journal's path has "
                f"{length} bytes, and at most {_LONGEST_JOURNAL} are possible",
                hint="choose a shorter one with --state-dir or RDZV_STATE_DIR",
            )

    def _refuse_foreign(self) -> None:
        """Whoever owns the folder could put another secret into it, and read what we put there.

        The owner that counts is the one that our own files get: some file systems map all owners.
        """
        fd, name = tempfile.mkstemp(dir=self.path)
        with os.fdopen(fd), contextlib.suppress(FileNotFoundError):
            ours = os.fstat(fd).st_uid
            os.unlink(name)
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != ours:
            raise UsageError(
                f"the state directory {self.path} is "
                + ("a link" if stat.S_ISLNK(found.st_mode) else "somebody else's"),
                hint="remove it, or choose another one with --state-dir or RDZV_STATE_DIR",
            )

    def _check_room(self) -> None:
        """Say it now: on a full disk neither the journal nor the logs could say it later."""
        total, _, free = shutil.disk_usage(self.path)
        if total and free < _LEAST_ROOM:
            self.release()
            raise UsageError(
                f"the disk of the state directory {self.path} has {free >> 10} kB left, but a "
                f"run needs {_LEAST_ROOM >> 20} MB there",
                hint="make room, or choose another one with --state-dir or RDZV_STATE_DIR",
            )

    def _held(self) -> RunExists:
        lock = self.path / "lock"
        deadline = time.monotonic() + _NAME_SECONDS
        while not (holder := printable(lock.read_text("utf-8", "replace"), 300)):
            if time.monotonic() > deadline:
                holder = "another process"
                break
            time.sleep(0.01)  # whoever has just taken it writes its name at once
        age = max(0.0, time.time() - lock.stat().st_mtime)  # noqa: TID251 (a file has that clock)
        return RunExists(
            f"run '{self.run}' is being launched by {holder}, started {age:.0f} s ago",
            hint=(
                f"wait for it, cancel it with 'rdzv cancel {self.run}', or choose another --rdzv-id"
            ),
        )

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def keep_lock_over_exec(self) -> None:
        """Let the program that replaces this process hold the lock."""
        assert self._lock is not None
        os.set_inheritable(self._lock, True)

    def is_held(self) -> bool:
        """Whether a live launcher holds the folder."""
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two who look do not see each other
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def record(self) -> LaunchRecord | None:
        """The record of the newest launch; None when there is none that can be read."""
        try:
            record = self.read(run_secret.RECORD, LaunchRecord)
            if record is not None:
                record.registry_place()
        except (KeyError, TypeError, ValueError):
            return None
        return record

    def result(self) -> KeptResult | None:
        """How the newest launch ended; None when it runs, or was killed."""
        return self.read("result.json", KeptResult)

    def write_result(self, result: Result) -> None:
        """Write down how this launch ended."""
        now = time.time()  # noqa: TID251 (for people: when it ended)
        words = self.last_words
        where = str(words.path) if words.epochs() else ""
        kept = KeptResult(**result.model_dump(), ended_at=now, last_words=where)
        self.write("result.json", kept.model_dump_json(indent=1).encode())

    def write_record(self, record: LaunchRecord) -> None:
        """Write down this launch."""
        self.write(run_secret.RECORD, record.model_dump_json(indent=1).encode())

    def has_secret(self) -> bool:
        """Whether the newest launch's secret is there."""
        return os.access(self.path / run_secret.FILE, os.F_OK)  # also false in a closed folder

    def secret(self, make: Callable[[], bytes] = new_secret) -> bytes:
        """The launch's secret; made when there is none. Raises UsageError for a damaged one."""
        path = self.path / run_secret.FILE
        if not self.has_secret():
            self.write(run_secret.FILE, make().hex().encode())
        try:
            return run_secret.read_secret(self.path)
        except OSError as exc:
            raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
        except ValueError:
            raise UsageError(
                f"{path} is damaged: it does not hold {run_secret.BYTES} bytes in hex",
                hint="remove the file, and launch the run again",
            ) from None

    def keys(self) -> RunKeys | None:
        """The keys of the newest launch; None when there is none."""
        record = self.record()
        if record is None or not self.has_secret():
            return None
        return RunKeys(self.secret(), self.run, record.launch_id)

    def read(self, name: str, model: type[Model]) -> Model | None:
        """A file of the newest launch; None when there is none that can be read."""
        try:
            return model.model_validate_json((self.path / name).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, name: str, data: bytes) -> Path:
        """Write a file that only its owner can read, all or nothing. Raises UsageError."""
        path = self.path / name
        try:
            _write(path, data)
        except OSError as exc:
            raise UsageError(
                f"{path} cannot be written: {exc.strerror}",
                hint="check that disk, or choose another state directory with --state-dir",
            ) from exc
        return path

    def forget_launch(self, kept: Collection[str] = (), *, log_dir: Path | None = None) -> None:
        """Make room for a new launch; what may still exist at a scheduler stays, and the logs and
        how it ended do, out of its way.

        Args:
            kept: Names of worker runs that could not be ended.
            log_dir: A folder for logs that is the user's: nothing in it is moved.
        """
        if (record := self.record()) is not None:
            launch = FormerLaunch(record=record, result=self.result())
            with contextlib.suppress(UsageError):  # no reason not to launch
                self.write(FORMER_LAUNCHES, with_former(self.path, launch))
        if log_dir is None or not _is_within(log_dir, self.path):
            set_aside(self.path)
        set_words_aside(self.path)
        left = [entry for entry in self.ledger.left() if entry.name in kept]
        names = [run_secret.RECORD, run_secret.FILE, "registry.json", "key.pem", "certificate.pem"]
        names += ["result.json", "status.json", "table.json", "report.json", RUN_FILE]
        names += ["certificate.der", *(name for one in declared() for name in one.run_files)]
        names += [f"journal.sqlite{suffix}" for suffix in ("", "-wal", "-shm")]
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        handles = {entry.handle for entry in left}
        for path in (self.path / "submissions").glob("*"):
            if path.stem not in kept and str(path) not in handles:
                path.unlink(missing_ok=True)
        if left:  # all or nothing: what is not in the ledger cannot be ended by anybody
            lines = [replace(entry, former=True).line() for entry in left]
            self.write(self.ledger.path.name, "".join(lines).encode())
        else:
            self.ledger.path.unlink(missing_ok=True)


def _is_within(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o600)  # what a killed launcher had left may have another mode
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def recorded_runs(root: Path) -> list[tuple[StateDir, LaunchRecord | None]]:
    """The runs that have a folder here, each with its record, newest launch first."""
    states = [StateDir(root, path.parent.name) for path in root.glob("*/launch.json")]
    found = [(state, state.record()) for state in states]
    return sorted(found, key=lambda one: one[1].started_at if one[1] else 0.0, reverse=True)


def known_runs(root: Path) -> list[StateDir]:
    """The runs that have a folder here, newest launch first."""
    return [state for state, _ in recorded_runs(root)]


def outlives_launch() -> bool:
    """Whether the state folder stays: a container ends with its first process."""
    return os.getpid() != 1
