"""What is private stays private: folders, memory, logs; as root and as anybody else."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launcher.state.state_dir import StateDir
from rendezvous.isolated import isolated
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import NotFound, Unauthorized, UsageError
from rendezvous.wire.run import Phase
from tests.attack.server import Request, serving
from tests.attack.test_tls import join_text, worker
from tests.support.canaries import loose
from tests.support.launching import RDZV, environment, launch, launching, shell
from tests.support.registry import Launch, Node, running
from tests.support.waiting import until
from worker.program.output import make_private

pytestmark = pytest.mark.real_time

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")


# Folders


@needs_root
def test_a_state_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Root could write there all the same, and would read the secret that the other one wrote."""
    (tmp_path / "r").mkdir(mode=0o777)
    (tmp_path / "r" / "secret").write_text("00" * 32)
    os.chown(tmp_path / "r", NOBODY, NOBODY)
    with pytest.raises(UsageError, match="is somebody else's") as refusal:
        StateDir(tmp_path, "r").acquire()
    assert "--state-dir" in refusal.value.hint
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["secret"]


def test_a_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link"):
        StateDir(tmp_path, "r").acquire()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.fixture
def no_umask() -> Iterator[None]:
    """A user without a umask: everything would be open to everybody."""
    former = os.umask(0)
    yield
    os.umask(former)


@pytest.mark.usefixtures("no_umask")
def test_folders_are_private_with_all_that_is_missing_above_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o750)
    make_private(tmp_path / "a" / "b" / "c")
    modes = {p: (tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b", "a/b/c")}
    assert modes == {"a": 0o750, "a/b": 0o700, "a/b/c": 0o700}


@pytest.mark.usefixtures("no_umask")
def test_all_that_a_launch_leaves_is_private(tmp_path: Path) -> None:
    outcome = launch(
        tmp_path / "home" / "state", "--nnodes", "2", "--framework", "command", command=["true"]
    )
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "home" / "state" / "r" / "journal.sqlite").exists()
    assert loose(tmp_path) == []


# Memory


# The training program tries to read what each of the processes above it was given, and remembers.
CURIOUS = r"""
import os, pathlib
pid = os.getpid()
while pid > 1:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    pid = int(stat.rpartition(")")[2].split()[1])
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    try:
        os.listdir(f"/proc/{pid}/fd")
        open(f"/proc/{pid}/mem", "rb").close()
        seen = open(f"/proc/{pid}/environ").read(1)
    except PermissionError:
        seen = ""
    for word in ("/keeper.py", "\0worker", "\0launch"):
        if f"{word}\0" in words:
            print(word[1:], "seen" if seen else "hidden")
            break
"""


def without_rights() -> list[str]:
    """What a command line begins with to have no more rights than any user, or a container."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]


def test_a_training_program_cannot_look_into_its_agent_or_launcher(tmp_path: Path) -> None:
    """Root in a container, or any user: not even a program of the same user can."""
    (tmp_path / "curious.py").write_text(CURIOUS)
    command = [*without_rights(), RDZV, "launch", "--nnodes", "1", "--rdzv-id", "r"]
    done = subprocess.run(
        [*command, "--framework", "command", "--", sys.executable, f"{tmp_path}/curious.py"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["keeper.py seen", "worker hidden", "launch hidden"]


def test_a_registry_leaves_no_core_file_and_the_users_programs_may(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with launching(
        tmp_path,
        *("--nnodes", "1", "--framework", "command"),
        command=shell(f"ulimit -H -c; : > {tmp_path}/told; sleep 60"),
    ) as launched:
        until((tmp_path / "told").exists)
        registry = launched.child("rendezvous.server")
        assert psutil.Process(registry.pid).rlimit(psutil.RLIMIT_CORE) == (0, 0)
        launched.signal(signal.SIGTERM)
        told = launched.finish().out.split()[0]
    assert told == ("unlimited" if hard == resource.RLIM_INFINITY else str(hard // 512))


# What others say


@pytest.mark.parametrize(("status", "code", "end"), [(403, "forbidden", 77), (503, "busy", 80)])
async def test_what_a_registry_says_does_not_move_the_cursor_of_a_terminal(
    tmp_path: Path, status: int, code: str, end: int
) -> None:
    evil = "\\u001b[2J\\u001b]0;owned\\u0007 \\u202e all is well"

    def answer(request: Request) -> tuple[int, bytes]:
        if request.path == "/healthz":
            return 200, b"ok"
        said = f'"message": "{evil}", "hint": "{evil}", "retryable": {str(status == 503).lower()}'
        return status, f'{{"code": "{code}", {said}}}'.encode()

    async with serving(answer) as server:
        place = RegistryPlace(("127.0.0.1",), server.port)
        options = ("--join-timeout", "1", "--log-dir", str(tmp_path / "logs"))
        ended = await worker(tmp_path, join_text(Launch("r"), 1, place), *options)
    assert ended.code == end
    assert "all is well" in ended.said
    said = ended.said + (tmp_path / "logs" / "agent-1.log").read_text()
    assert [c for c in said if c != "\n" and not c.isprintable()] == []


# Without asserts


@pytest.fixture
def optimized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of this interpreter run without their asserts."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -O "$@"\n')
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.usefixtures("optimized")
async def test_a_registry_without_asserts_refuses_what_it_has_to_and_serves_the_rest(
    tmp_path: Path,
) -> None:
    (tmp_path / "registry").mkdir()
    with running(tmp_path / "registry", tls=True) as registry:
        until(lambda: "-O" in psutil.Process(registry.pid).cmdline())
        own, other = Launch("r"), Launch("r")
        await registry.create(own, 1)
        async with Node(registry.place, other, 0) as stranger:
            with pytest.raises(Unauthorized):
                await stranger.join()
        for credential in (other.keys.admin, other.keys.read, other.token(0)):
            async with registry.client(credential) as client:
                with pytest.raises(NotFound, match="or it is not yours"):
                    await client.status("r")
        async with Node(registry.place, own, 0) as node:
            assert (await node.run()).phase is Phase.RUNNING
            assert (await node.finish()).result is not None


def test_a_whole_launch_works_without_asserts(tmp_path: Path) -> None:
    command = isolated("rdzv_command", "launch", "--nnodes", "2")
    command.insert(1, "-O")
    done = subprocess.run(
        [*command, "--rdzv-id", "r", "--framework", "command", "--", "true"],
        env=environment(tmp_path, PYTHONOPTIMIZE="2"),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_variable_of_the_user_does_not_take_the_asserts_out_of_rdzv(tmp_path: Path) -> None:
    with launching(
        tmp_path,
        *("--nnodes", "1", "--framework", "command"),
        command=shell(f": > {tmp_path}/started; sleep 60"),
        env={"PYTHONOPTIMIZE": "2"},
    ) as launched:
        until((tmp_path / "started").exists)
        lines = [" ".join(p.cmdline()) for p in launched.children()]
        ours = [line for line in lines if "rdzv_command" in line or "rendezvous.server" in line]
        launched.signal(signal.SIGTERM)
        launched.finish()
    assert len(ours) == 2
    assert all(" -E " in line and "/isolated.py " in line for line in ours), ours
