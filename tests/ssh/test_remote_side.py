"""What the profile's commands do on a host, done by a real shell; `ssh` itself only hands them on.

The fake `ssh` gives each host a home folder of its own, and `rdzv` on the hosts is a short script.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from launcher.plan.plan import Site, Spec, Submission, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import NothingSubmitted, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState
from tests.support.bed import Bed, join_text
from tests.support.canaries import loose
from tests.support.waiting import soon

JOIN = "rdzv1-the-join-string"
OVER = (SlotState.ENDED, SlotState.FAILED)
SHELLS = [shell for shell in ("dash", "bash", "zsh", "busybox") if shutil.which(shell)]

SSH = """while [ "$1" != -- ]; do shift; done
name=${2#ssh://}
mkdir -p "$HOMES/$name"
cd "$HOMES/$name" && HOME=$PWD exec sh -c '[ ! -e .startup ] || . ./.startup; eval "$0"' "$3"
"""
"""As sshd: the user's shell reads its start-up file, and then runs the command."""
READS_JOIN = """cat "$RDZV_JOIN_FILE" > "$HOME/join"
env > "$HOME/environ"
umask > "$HOME/umask"
for word in "$@"; do printf '%s\\0' "$word"; done > "$HOME/argv.part"
mv "$HOME/argv.part" "$HOME/argv"
"""
ENDS_WHEN_TOLD = READS_JOIN + "echo begun; until [ -e end ]; do sleep 0.05; done; exit 0\n"
GENTLE = "trap 'exit 83' TERM\necho begun\nwhile :; do sleep 0.1; done\n"
STUBBORN = "trap '' TERM QUIT\necho begun; while :; do sleep 0.1; done\n"


class Place:
    """Hosts of one machine, and the scheduler that starts worker runs on them."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "sh").symlink_to(str(shutil.which(shell)))
        self.write("ssh", SSH)
        self.write("rdzv", ENDS_WHEN_TOLD)
        # Without the folder where this machine has a rdzv of its own.
        path = [f for f in os.environ["PATH"].split(os.pathsep) if not Path(f, "rdzv").exists()]
        environ = {"PATH": ":".join([str(self.bin), *path]), "HOMES": str(folder / "homes")}
        made = scheduler_entry("ssh").make(SchedulerContext(folder / "submissions", environ))
        assert isinstance(made, ProfileScheduler)
        made.looks, made.try_again_seconds = (0.0,), 0.0
        self.scheduler = made
        self.handles: list[str] = []
        self.home = folder / "homes" / "n1"
        self.log = self.home / ".local/state/rdzv/ssh/rdzv-k7f2a9c1xy-1-1.log"

    def write(self, name: str, script: str) -> None:
        """What a command is, here and on all hosts."""
        (self.bin / name).write_text(f"#!/bin/sh\n{script}")
        (self.bin / name).chmod(0o755)

    def run(self, *command: str, cwd: str = "", **environ: str) -> Submission:
        """The worker run of slot 1."""
        path = specs_folder() / "ssh/worker.sh"
        plan = make_plan(
            LaunchSettings(nnodes="3", pass_env=list(environ), hosts="off"),
            command or ["train.py"],
            environ,
            Site(Spec(str(path), path.read_text()), hosts=("n0", "n1", "n2"), cwd=cwd),
            run="llama",
            launch_id="k7f2a9c1xy",
        )
        return plan.submission(1, 1)

    async def submit(self, run: Submission | None = None) -> str:
        """Submit the worker run of slot 1."""
        handle = await self.scheduler.submit(run or self.run(), JOIN)
        self.handles.append(handle)
        return handle

    async def end(self, handle: str, *, told: bool = False) -> Description:
        """What is said of it once it is over; unless it is told otherwise, its program ends."""
        if not told:
            (self.home / "end").touch()
        while (found := await self.scheduler.describe(self.run(), handle)).state not in OVER:
            await asyncio.sleep(0.05)
        return found

    async def read(self, name: str) -> str:
        """What `rdzv` has written on the host, as soon as it has written its argv."""
        await soon((self.home / "argv").exists)
        return (self.home / name).read_text()

    async def begun(self) -> None:
        """Until the program runs."""
        await soon(lambda: "begun" in self.log.read_text())

    def session(self, handle: str) -> list[psutil.Process]:
        """What lives of a worker run."""
        leader = int(handle.partition("-")[0])
        return [p for p in psutil.process_iter() if _is_of(p, leader)]


def _is_of(process: psutil.Process, leader: int) -> bool:
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        alive = process.status() != psutil.STATUS_ZOMBIE
        return os.getsid(process.pid) == leader and bool(alive)
    return False


IN_ONE_SHELL = pytest.mark.parametrize("place", SHELLS[:1], indirect=True)


@pytest.fixture(params=SHELLS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place whose hosts have each shell in turn as `sh`."""
    made = Place(tmp_path, request.param)
    yield made
    for handle in made.handles:
        for process in made.session(handle):
            with contextlib.suppress(psutil.NoSuchProcess):  # a short one, which has ended
                process.kill()


async def test_a_worker_runs_in_a_session_of_its_own_until_it_ends(place: Place) -> None:
    handle = await place.submit()
    running = Description(SlotState.RUNNING, f"pid {handle.partition('-')[0]}")
    assert await place.scheduler.describe(place.run(), handle) == running
    assert await place.scheduler.find(place.run()) == handle
    lines = []
    async for line in place.scheduler.logs(place.run(), handle, lines=100, follow=True):
        lines.append(line)
        if line == "begun":
            assert await place.end(handle) == Description(SlotState.ENDED, "ended: exit code 0")
    assert lines == place.log.read_text().splitlines()
    end = "rdzv: worker run ended with exit code 0"
    assert lines == [f"rdzv: worker run {handle}", "begun", end]
    assert place.session(handle) == []
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        # Another process that has its number now is not taken for it.
        recycled = f"{stranger.pid}-{handle.partition('-')[2]}"
        found = await place.scheduler.describe(place.run(), recycled)
        await place.scheduler.cancel(place.run(), recycled, grace_seconds=0.0)
        assert stranger.poll() is None
        stranger.kill()
    assert found == Description(SlotState.ENDED, "ended: exit code 0")
    shutil.rmtree(place.home)
    assert (await place.scheduler.describe(place.run(), handle)).state is SlotState.ENDED


async def test_a_worker_that_fails_tells_its_exit_code_and_last_words(place: Place) -> None:
    place.write("rdzv", "printf 'rdzv[slot 1]: no route to the registry'; exit 81\n")
    handle = await place.submit()
    assert await place.end(handle) == Description(SlotState.FAILED, "failed: exit code 81")
    logs = place.scheduler.logs(place.run(), handle, lines=5, follow=False)
    assert [line async for line in logs] == ["rdzv[slot 1]: no route to the registry"]


async def test_the_join_string_comes_on_a_pipe_and_is_in_no_environment(place: Place) -> None:
    before = os.umask(0)
    try:
        handle = await place.submit()
    finally:
        os.umask(before)
    assert await place.read("join") == JOIN + "\n"
    environ = await place.read("environ")
    assert JOIN not in environ
    assert "RDZV_JOIN_FILE=/proc/self/fd/3\n" in environ
    for process in place.session(handle):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert JOIN not in " ".join([*process.cmdline(), *process.environ().values()])
    assert [line for line in loose(place.home) if line.startswith(".local")] == []
    assert int(await place.read("umask"), 8) == 0  # the program's files are the user's matter


async def test_every_word_and_variable_arrives_as_it_is(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $folder 폴더"
    folder.mkdir()
    words = ["a b", "it's", 'say "hi"', "$HOME `id` \\", "two\nlines", "", "--", "<<NAME>>", "漢 #"]
    await place.submit(place.run(*words, cwd=str(folder), NCCL_DEBUG="a 'b' \"c\" $d", EMPTY=""))
    environ = "\n" + await place.read("environ")
    for line in ("NCCL_DEBUG=a 'b' \"c\" $d", "EMPTY=", f"PWD={folder}"):
        assert f"\n{line}\n" in environ
    argv = (await place.read("argv")).split("\0")[:-1]
    assert argv[argv.index("--") + 1 :] == words


@IN_ONE_SHELL
async def test_a_folder_that_the_host_does_not_have_is_no_obstacle(place: Place) -> None:
    await place.submit(place.run(cwd="/nonexistent/project"))
    assert f"\nPWD={place.home}\n" in await place.read("environ")


@IN_ONE_SHELL
async def test_a_worker_run_that_is_submitted_several_times_is_started_once(place: Place) -> None:
    first, *others = await asyncio.gather(*(place.submit() for _ in range(4)))
    await place.end(first)
    assert [*others, await place.submit()] == [first] * 4
    assert place.log.read_text().count("begun") == 1


@IN_ONE_SHELL
def test_half_of_a_script_does_nothing(place: Place) -> None:
    text = place.scheduler.render(place.run(), JOIN)
    environ = {**os.environ, "PATH": f"{place.bin}:{os.environ['PATH']}", "HOME": str(place.folder)}
    before = sorted(path.name for path in place.folder.iterdir())
    lines = text.splitlines(keepends=True)
    for cut in range(len(lines)):
        subprocess.run(["sh", "-s"], input="".join(lines[:cut]).encode(), env=environ)
    assert sorted(path.name for path in place.folder.iterdir()) == before


async def test_a_worker_that_is_cancelled_gets_the_grace_to_end_by_itself(place: Place) -> None:
    place.write("rdzv", GENTLE)
    handle = await place.submit()
    await place.begun()
    await place.scheduler.cancel(place.run(), handle, grace_seconds=20.0)
    found = await place.end(handle, told=True)
    assert found == Description(SlotState.FAILED, "failed: exit code 83")
    await place.scheduler.cancel(place.run(), handle, grace_seconds=20.0)


@IN_ONE_SHELL
async def test_a_worker_that_does_not_end_is_killed_after_the_grace(place: Place) -> None:
    place.write("rdzv", STUBBORN)
    handle = await place.submit()
    await place.scheduler.cancel(place.run(), handle, grace_seconds=0.0)
    found = await place.end(handle, told=True)
    assert found.state is SlotState.FAILED
    assert "it was killed, or the host restarted" in found.detail
    await soon(lambda: not place.session(handle))  # killed at once, they end one by one


@IN_ONE_SHELL
async def test_a_worker_whose_shell_is_killed_is_told_to_end(place: Place) -> None:
    place.write("rdzv", f'exec {shlex.quote(sys.executable)} -c "$PROGRAM" "$@"\n')
    program = (
        "import sys, time; sys.path.insert(0, '.'); "
        "from worker.program.process import die_with_parent; "
        "die_with_parent(15, int(sys.argv[sys.argv.index('--parent') + 1])); "
        "print('begun', flush=True); time.sleep(600)"
    )
    handle = await place.submit(place.run(PROGRAM=program, PYTHONPATH=os.getcwd()))
    await place.begun()
    os.kill(int(handle.partition("-")[0]), signal.SIGKILL)
    await soon(lambda: not place.session(handle))


async def refused(place: Place) -> SchedulerError:
    with pytest.raises(SchedulerError) as caught:
        await place.submit()
    assert not place.log.exists()
    return caught.value


@IN_ONE_SHELL
async def test_a_host_without_rdzv_is_named_with_what_to_do(place: Place) -> None:
    (place.bin / "rdzv").unlink()
    error = await refused(place)
    assert error.message.endswith("; n1: there is no command 'rdzv' on it")
    assert "install rdzv on that host" in error.hint


@IN_ONE_SHELL
async def test_a_home_folder_that_takes_no_log_is_told(place: Place) -> None:
    place.home.mkdir(parents=True)
    (place.home / ".local").write_text("a file")
    error = await refused(place)
    assert "n1: no place for the worker run's log" in error.message
    assert "/.local" in error.message
    assert error.hint == "your home folder on that host must be writable"


# ---- start-up files of the shell there -----------------------------------------------------------


def starts_up(place: Place, script: str) -> None:
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / ".startup").write_text(script)


@IN_ONE_SHELL
@pytest.mark.parametrize(
    "script",
    [
        "printf 'Welcome to n1'\n",
        "printf 'Welcome to n1' >&2\n",
        "printf 'rdzv: worker run 1-1'\n",
        "head -c 2000000 /dev/zero | tr '\\0' x\n",
        "read line; cd /; alias cd=false sh=false\n",
    ],
)
async def test_what_a_start_up_file_prints_hides_nothing(place: Place, script: str) -> None:
    starts_up(place, script)
    handle = await place.submit()
    assert await place.scheduler.find(place.run()) == handle
    found = await place.scheduler.describe(place.run(), handle)
    assert found == Description(SlotState.RUNNING, f"pid {handle.partition('-')[0]}")
    await place.begun()
    logs = place.scheduler.logs(place.run(), handle, lines=5, follow=False)
    assert [line async for line in logs] == ["begun"]
    await place.scheduler.cancel(place.run(), handle, grace_seconds=0.0)
    await soon(lambda: not place.session(handle))


NOT_RUN = "n1 did not run the command that ssh gave it: a start-up file of the shell there"
NOT_GIVEN = "sh has started on n1, and did not get the whole worker spec: a start-up file"


@IN_ONE_SHELL
@pytest.mark.parametrize(
    ("script", "words", "hint"),
    [
        ("exit 0\n", "ended with 0, but gave no id of a worker run; it printed nothing", NOT_RUN),
        ("echo no; exit 0\n", "its last line on standard output: 'no'", NOT_RUN),
        ("echo no >&2; exit 0\n", "its last line on standard error: 'no'", NOT_RUN),
        ("set -e; false\n", "ended with exit code 1 and printed nothing", NOT_RUN),
        ("exec true\n", "it printed nothing", NOT_RUN),
        ("exec sh\n", "n1: a start-up file of the shell there replaces the shell", NOT_RUN),
        ("cat > /dev/null\n", "on standard output: 'rdzv: sh has started'", NOT_GIVEN),
        ("head -c 1500 > /dev/null\n", "ended with exit code 2: ", NOT_GIVEN),
    ],
)
async def test_a_start_up_file_in_the_way_is_told_with_how_to_test_it(
    place: Place, script: str, words: str, hint: str
) -> None:
    starts_up(place, script)
    error = await refused(place)
    assert words in error.message
    assert error.hint.startswith(hint)
    assert isinstance(error, NothingSubmitted) is (hint == NOT_RUN)
    test = "\"ssh n1 'echo ok'\" must print" if hint == NOT_RUN else '"echo ok | ssh n1 cat"'
    assert test in error.hint


@IN_ONE_SHELL
async def test_an_answer_that_a_start_up_file_has_cut_off_says_nothing(place: Place) -> None:
    handle = await place.submit()
    starts_up(place, "exit 0\n")
    for asked in (
        place.scheduler.find(place.run()),
        place.scheduler.describe(place.run(), handle),
        place.scheduler.cancel(place.run(), handle, grace_seconds=0.0),
    ):
        with pytest.raises(SchedulerError, match="ended with exit code 0 and printed nothing"):
            await asked
    assert place.session(handle)


@IN_ONE_SHELL
async def test_a_worker_run_is_ended_by_its_name_where_its_id_was_not_read(place: Place) -> None:
    handle = await place.submit()
    words = place.scheduler.cancel_words(place.run(), None)
    environ = {**os.environ, **place.scheduler._runner._environ}
    subprocess.run(shlex.split(words), env=environ, check=True)
    await soon(lambda: not place.session(handle))
    shutil.rmtree(place.home / ".local")
    subprocess.run(shlex.split(words), env=environ, check=True)


async def test_a_login_that_takes_too_long_is_told(tmp_path: Path) -> None:
    bed = Bed("ssh", tmp_path, faults={"hangs"})
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert "did not answer in time" in caught.value.message
    assert caught.value.hint.startswith("nothing had run on n1 by then: its login or a start-up")


@pytest.mark.parametrize(
    ("said", "hint", "final"),
    [
        ("Host key verification failed.", "the key of n1 is not known here, or has changed", True),
        ("root@n1: Permission denied (publickey).", "'ssh -oBatchMode=yes n1 true' must", True),
        (
            "ssh: Could not resolve hostname n1: Name or service not known",
            "check the name, or add a HostName",
            True,
        ),
        (
            "ssh: Could not resolve hostname n1: Temporary failure in name resolution",
            "check the name, or add a HostName",
            False,
        ),
        ("ssh: connect to host n1 port 22: Connection refused", "check that the host is up", False),
        ("ssh: connect to host n1 port 22: No route to host", "check that the host is up", False),
        ("sh: printf: I/O error: No space left on device", "make room in your home folder", False),
    ],
)
async def test_what_ssh_says_comes_with_what_to_do(
    tmp_path: Path, said: str, hint: str, final: bool
) -> None:
    bed = Bed("ssh", tmp_path, says={"ssh": (255, said)})
    with pytest.raises(SchedulerError) as caught:
        await bed.scheduler().submit(bed.run(), join_text())
    assert said in caught.value.message
    assert caught.value.hint.startswith(hint)
    assert isinstance(caught.value, NothingSubmitted)
    assert caught.value.final is final
    assert len(bed.calls()) == 1  # for certain: then nobody asks any more
