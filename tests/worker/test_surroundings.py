"""What is found around a program: of this machine, of trees of others, and of what hangs."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.disks import failing_disk, run, small_disk
from tests.support.fake_sysfs import efa_p5, nd_h100_v5
from worker.machine import aside, disk_probe, loadable, surroundings
from worker.machine.surroundings import (
    EFA_LIBRARIES,
    NO_ANSWER,
    Disk,
    Surroundings,
    look_around,
    rises,
)
from worker.preflight.needs import user_program


def around(limit_seconds: float = 20.0, environ: Any = (), **options: Any) -> Surroundings:
    given = {"PATH": "", **dict(environ)}
    return look_around("torchrun", [], given, limit_seconds=limit_seconds, **options)


def test_this_machine_is_described(tmp_path: Path) -> None:
    found = around(environ={"TMPDIR": str(tmp_path)}, folders=[tmp_path / "nosuch"])
    assert found.hostname == socket.gethostname()
    assert found.facts.cpus == os.cpu_count()
    assert found.temporary == str(tmp_path)
    own, temporary, absent = found.disks
    assert (own.path, temporary.path) == (str(Path.cwd()), str(tmp_path))
    path, problem = str(tmp_path / "nosuch"), "No such file or directory"
    assert absent == Disk(path, problem=problem, code=errno.ENOENT)
    assert 0 < temporary.free_bytes <= temporary.total_bytes
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "left_out"),
    [("", []), ("=mlx5_ib0:1,mlx5_ib1", [2, 3, 4, 5, 6, 7]), ("^=mlx5_an0,mlx5_ib2", [2])],
)
def test_the_ports_of_a_machine_are_facts_but_for_those_that_nccls_file_leaves_out(
    tmp_path: Path, words: str, left_out: list[int]
) -> None:
    nd_h100_v5(tmp_path)
    file = tmp_path / "cluster.conf"
    file.write_text(f"NCCL_IB_HCA={words}\n")
    here = around(environ={"NCCL_CONF_FILE": str(file)}, root=tmp_path)
    assert (len(here.rdma), here.rdma) == (9, here.facts.rdma)
    assert (here.libraries, here.rdma_errors) == ({}, {})  # nothing was opened
    out = [f"mlx5_ib{i}" for i in left_out]
    assert {p.device for p in here.rdma if not p.chosen} == {*out, *(["mlx5_an0"] if words else [])}


def test_where_there_is_efa_its_libraries_are_tried_whatever_nccls_list_is(tmp_path: Path) -> None:
    efa_p5(tmp_path)
    here = around(environ={"NCCL_IB_HCA": "mlx5"}, root=tmp_path)
    assert {port.chosen for port in here.rdma} == {True}
    assert [*here.libraries] == [*EFA_LIBRARIES]
    assert "libnccl-net.so" in here.libraries["libnccl-net.so"]


def test_counters_that_rise_are_told_by_port() -> None:
    before = {"mlx5_0:1": {"symbol_error": 3, "link_downed": 1}, "mlx5_1:1": {"symbol_error": 9}}
    after = {
        "mlx5_0:1": {"symbol_error": 7, "link_downed": 1, "port_xmit_wait": 5},
        "mlx5_1:1": {"symbol_error": 0},  # its driver was loaded anew
        "mlx5_2:1": {"symbol_error": 8},  # it has just come up
    }
    assert rises(before, after) == {"mlx5_0:1": {"symbol_error": 4}}
    assert rises({}, {}) == {}


def test_the_own_name_is_looked_up_in_the_hosts_file_and_nowhere_else(tmp_path: Path) -> None:
    own = socket.gethostname()
    (tmp_path / "etc").mkdir()
    hosts = tmp_path / "etc/hosts"
    assert around(root=tmp_path).hostname_addresses is None
    hosts.write_text(
        f"127.0.0.1 localhost\n127.0.1.1\tother {own.upper()} # {own}\n#10.0.0.1 {own}\n"
        f"10.0.0.2 {own}.example\nnonsense {own}\n10.0.0.3 {own}\n\n"
    )
    assert around(root=tmp_path).hostname_addresses == ("127.0.1.1", "10.0.0.3")


def test_who_waits_for_it_is_told_what_the_resolver_says() -> None:
    found = around(resolve=True)
    entries: list[Any] = []
    with contextlib.suppress(OSError):
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    assert {*(found.hostname_addresses or ())} == {entry[4][0] for entry in entries}
    assert not found.is_name_server_silent


def test_what_has_not_answered_in_time_is_left_out() -> None:
    found = around(0.0, {"TMPDIR": "/tmp"})
    assert found.disks == ()
    assert found.limits is not None
    assert found.facts.cpus == os.cpu_count()


@pytest.mark.real_time
@pytest.mark.netns
def test_a_disk_that_hangs_is_named_and_the_others_are_not(tmp_path: Path) -> None:
    with failing_disk(tmp_path / "disk") as (folder, _):
        expected = {str(Path.cwd()): "", str(tmp_path): "", str(folder): NO_ANSWER}
        run("fsfreeze", "--freeze", str(folder))
        try:
            for seconds in (1.0, 4.0, 16.0):  # a busy machine's other disks may be late as well
                found = around(seconds, {"TMPDIR": str(tmp_path)}, folders=[folder])
                by_path = {disk.path: disk.problem for disk in found.disks}
                if by_path == expected:
                    break
        finally:
            run("fsfreeze", "--unfreeze", str(folder))
    assert by_path == expected


def test_a_working_directory_that_was_removed_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = around(environ={"TMPDIR": str(tmp_path)})
    assert [disk.path for disk in found.disks] == [str(tmp_path)]


def test_only_what_concerns_the_transports_is_kept_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("NCCL_NET=Socket\nNCCL_IB_HCA=mlx5_9\n")
    topology = tmp_path / "topology.xml"
    environ = {"NCCL_IB_HCA": "mlx5_0", "NCCL_TOPO_FILE": str(topology), "AWS_SECRET": "x"}
    environ["NCCL_CONF_FILE"] = str(tmp_path / "nccl.conf")
    found = around(environ=environ)
    values = {name: given.value for name, given in found.given.items()}
    assert (values["NCCL_NET"], values["NCCL_IB_HCA"]) == ("Socket", "mlx5_0")
    assert "AWS_SECRET" not in values
    assert found.missing_files == {"NCCL_TOPO_FILE"}
    topology.write_text("<system/>")
    assert around(environ=environ).missing_files == frozenset()


# ---- programs of their own ----------------------------------------------------------------------


@pytest.mark.netns
@pytest.mark.parametrize("probe", ["space", "write"])
def test_a_read_only_disk_is_found_out(tmp_path: Path, probe: Any) -> None:
    with small_disk(tmp_path / "disk") as folder:
        run("mount", "-o", "remount,ro", str(folder))
        found = around(environ={"TMPDIR": str(folder)}, probe=probe)
    assert found.disks[-1].problem == "Read-only file system"
    assert found.disks[0].problem == ""


def test_a_library_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_text("no library")
    answer = aside.ask(Path(loadable.__file__), "libc.so.6", str(broken), limit_seconds=10.0)
    first, second = answer.text.splitlines()
    assert first == "libc.so.6\t"
    assert second.startswith(f"{broken}\t")
    assert "libbroken.so" in second.partition("\t")[2]


@pytest.mark.parametrize(
    ("command", "framework", "program"),
    [
        *(("train.py", name, name) for name in ("torchrun", "accelerate")),
        *((f"{name} train.py", "command", name) for name in ("python3", "./run")),
        *(("", "command", "torchrun"), ("--sizes 1", "bench", "torchrun")),
        ("./env/bin/torchrun train.py", "torchrun", "./env/bin/torchrun"),
        ("python3 train.py", "torchrun", "python3"),
        ("/env/bin/python train.py", "env", "/env/bin/python"),
        ("train.py", "lightning", "python3"),
        ("/env/bin/deepspeed train.py", "deepspeed", "/env/bin/deepspeed"),
    ],
)
def test_what_starts_the_program_is_its_launcher_or_command_itself(
    command: str, framework: str, program: str
) -> None:
    assert user_program(command.split(), framework) == program


@pytest.mark.parametrize("flag", [0, os.ST_RDONLY])
def test_the_room_of_a_file_system_is_said_and_that_it_is_read_only(
    monkeypatch: pytest.MonkeyPatch, flag: int
) -> None:
    about = SimpleNamespace(f_bavail=3, f_bfree=5, f_blocks=7, f_frsize=1 << 12, f_flag=flag)
    monkeypatch.setattr(os, "statvfs", lambda path: about)
    room = Disk("/dev/shm", 3 << 12, 7 << 12)
    why = replace(room, problem=os.strerror(errno.EROFS), code=errno.EROFS)
    assert surroundings._space(Path("/dev/shm")) == (why if flag else room)


def test_a_file_system_that_cannot_be_seen_has_its_error(tmp_path: Path) -> None:
    found = surroundings._space(tmp_path / "none")
    assert (found.problem, found.code) == ("No such file or directory", errno.ENOENT)


@pytest.mark.parametrize("error", [OSError(2, "no such name"), UnicodeError("label too long")])
def test_a_name_that_leads_nowhere_has_no_address(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert surroundings._addresses_of("gpu-17", Path("/"), resolve=True) == ()


FULL, NO_TMPFILE = (OSError(n, os.strerror(n)) for n in (errno.ENOSPC, errno.EOPNOTSUPP))


@pytest.mark.parametrize(
    ("how", "call", "error", "is_writable", "problem"),
    [
        ("write", "write", FULL, True, [errno.ENOSPC, "No space left on device"]),
        ("sync", "fsync", FULL, True, [errno.ENOSPC, "No space left on device"]),
        ("write", "fsync", FULL, True, [0, ""]),  # no start waits for a disk
        ("write", "open", FULL, True, [errno.ENOSPC, "No space left on device"]),
        # Where no file without a name can be made, the mode of the folder says more than nothing.
        ("write", "open", NO_TMPFILE, True, [0, ""]),
        ("write", "open", NO_TMPFILE, False, [errno.EACCES, "Permission denied"]),
    ],
)
def test_a_disk_that_takes_no_byte_is_found_out_by_writing_some(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
    call: str,
    error: OSError,
    is_writable: bool,
    problem: list[Any],
) -> None:
    def fails(*_: object) -> None:
        raise error

    def access(path: object, mode: int) -> bool:
        assert (path, mode) == (str(tmp_path), os.W_OK)
        return is_writable

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        patch.setattr(os, "access", access)
        disk_probe.main(how, [str(tmp_path)])
    begins, line = capsys.readouterr().out.split("\n", 1)
    number, free, total, *found = json.loads(line)
    assert (begins, number, found) == ("", 0, problem)
    assert 0 < free <= total


def test_of_each_library_it_is_told_at_once_since_the_next_may_end_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    out = SimpleNamespace(write=said.append, flush=lambda: said.append("flush"))
    monkeypatch.setattr(sys, "stdout", out)
    loadable.main(["libc.so.6", "libc.so.6"])
    assert said == ["libc.so.6\t\n", "flush"] * 2


@pytest.mark.parametrize(
    ("problem", "words"),
    [("", NO_ANSWER), ("it was ended by signal 11", "it was ended by signal 11")],
)
def test_a_library_after_one_that_ends_the_process_is_not_called_sound(
    monkeypatch: pytest.MonkeyPatch, problem: str, words: str
) -> None:
    answer = SimpleNamespace(text="liba.so\t\n", problem=problem)
    monkeypatch.setattr(aside, "ask", lambda *_, **__: answer)
    assert surroundings._load(["liba.so", "libb.so"], 1.0) == {"liba.so": "", "libb.so": words}
