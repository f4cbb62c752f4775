"""How full file systems are, and which do not answer: of real ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rendezvous.wire.evidence import Fact
from tests.support.disks import fill
from worker.evidence.parsing.places import place_facts
from worker.evidence.places import look_places

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
MIB = 1 << 20


def told(kind: str, **fields: object) -> Fact:
    return Fact.model_validate({"kind": kind, **fields})


@contextlib.contextmanager
def mounted(kind: str, options: str, folder: Path, *files: int) -> Iterator[Path]:
    """A file system of a kind, which may be given open files."""
    folder.mkdir()
    argv = ["mount", "-i", "-t", kind, "-o", options, "rdzvtest", str(folder)]
    done = subprocess.run(argv, pass_fds=files, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no {kind} can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def looked(*paths: str, folders: tuple[str, ...] = ()) -> list[Fact]:
    """With much time for the process, and without shared memory."""
    facts = look_places(folders, paths, 20.0)
    return [fact for fact in facts if fact.kind != "shared_memory"]


# ---- what the probe prints ----------------------------------------------------------------------

ROOM = '[0, 5, "/dev/shm", 4096, 8192, 1, 9]\n'


def test_shared_memory_is_always_told() -> None:
    told_always = told("shared_memory", path="/dev/shm", value=1e6, limit=1e9)
    line = '[0, 5, "/dev/shm", 1000000, 1000000000, 1, 9]\n'
    assert place_facts(["/dev/shm"], line.replace("1000000,", "2000000,", 1)) == [
        told_always.model_copy(update={"value": 2e6})
    ]
    space = told("space", path="/dev/shm", value=1e6, limit=1e9)
    assert place_facts(["/dev/shm"], line) == [space, told_always]


@pytest.mark.parametrize(
    ("numbers", "kinds"),
    [
        ("1048575, 100000000, 5, 9", ["space"]),
        ("1048576, 100000000, 5, 9", []),
        ("99999999, 100000000000, 5, 9", ["space"]),
        ("100000000, 100000000000, 5, 9", []),
        ("0, 0, 0, 0", []),  # /proc
        ("100000000, 100000000000, 0, 9", ["inodes"]),
        ("100000000, 100000000000, 0, 0", []),  # btrfs counts none
        ("0, 100000000000, 0, 9", ["space", "inodes"]),
    ],
)
def test_a_file_system_is_told_when_nearly_nothing_is_free(numbers: str, kinds: list[str]) -> None:
    facts = place_facts(["/dev/shm", "/a", "/b"], f'[1, 7, "/", {numbers}]\n[2, 7, "/", {numbers}]')
    assert [fact.kind for fact in facts] == kinds


def test_a_path_that_fails_or_says_nothing_is_told() -> None:
    printed = f'{ROOM}[1, 116, "Stale file handle"]\n[2, 13, "Permission denied"]\n[3, 5, "cut'
    paths = ["/dev/shm", "/nfs", "/private", "/slow"]
    stale = told("files", path="/nfs", words="Stale file handle")
    silent = told("files", path="/slow", words="no answer in time")
    assert [f for f in place_facts(paths, printed) if f.kind == "files"] == [stale]
    assert [f for f in place_facts(paths, f"{printed}\nend\n") if f.kind == "files"] == [
        stale,
        silent,
    ]
    assert place_facts(paths, "") == []


# ---- real file systems --------------------------------------------------------------------------


def test_a_machine_with_room_tells_its_shared_memory_alone(tmp_path: Path) -> None:
    facts = look_places([str(tmp_path)], ["a/b", "/proc/1/x", "", "a\0b", "x" * 5000], 20.0)
    size = os.statvfs("/dev/shm")
    assert [(fact.kind, fact.path, fact.limit) for fact in facts] == [
        ("shared_memory", "/dev/shm", float(size.f_blocks * size.f_frsize))
    ]


@needs_root
def test_a_full_file_system_is_told_once_by_where_it_is_mounted(tmp_path: Path) -> None:
    with mounted("tmpfs", "size=1m", tmp_path / "full disk") as disk:
        (disk / "run").mkdir()
        fill(disk)
        facts = looked("not/yet/there.pt", f"{disk}/other", folders=(f"{disk}/run", str(disk)))
        assert facts == [told("space", path=str(disk), value=0.0, limit=float(MIB))]


@needs_root
def test_a_file_system_without_inodes_is_told(tmp_path: Path) -> None:
    with mounted("tmpfs", "size=8m,nr_inodes=4", tmp_path / "disk") as disk:
        for name in "abc":
            (disk / name).touch()
        assert looked(f"{disk}/d") == [told("inodes", path=str(disk), limit=4.0)]


@needs_root
def test_a_file_system_that_hangs_is_told_and_holds_nobody(tmp_path: Path) -> None:
    """A FUSE whose server never answers, beside a full disk; then its server is gone."""
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
    with (
        mounted("tmpfs", "size=1m", tmp_path / "disk") as disk,
        mounted("fuse", options, tmp_path / "hung", server) as hung,
    ):
        try:
            fill(disk)
            began = time.monotonic()
            facts = looked(f"{hung}/a.pt", str(disk))
            took = time.monotonic() - began
        finally:
            os.close(server)
        full = told("space", path=str(disk), value=0.0, limit=float(MIB))
        assert facts == [told("files", path=f"{hung}/a.pt", words="no answer in time"), full]
        assert took < 10.0
        gone = told("files", path=str(hung), words="Transport endpoint is not connected")
        assert looked(str(hung)) == [gone]


def test_no_time_is_no_evidence() -> None:
    assert look_places(["/"], ["/etc"], 0.0) == []
