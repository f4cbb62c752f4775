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
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from launcher.plan.plan import Site, Spec, Submission, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState
from tests.support.canaries import loose

JOIN = "rdzv1-the-join-string"
LIMIT_SECONDS = 20.0
OVER = (SlotState.ENDED, SlotState.FAILED)
SHELLS = [shell for shell in ("dash", "bash", "zsh", "busybox") if shutil.which(shell)]

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
name=${2#ssh://}
mkdir -p "$HOMES/$name"
cd "$HOMES/$name" && HOME=$PWD exec sh -c "$3"
"""
READS_JOIN = """#!/bin/sh
cat "$RDZV_JOIN_FILE" > "$HOME/join"
env > "$HOME/environ.part" && mv "$HOME/environ.part" "$HOME/environ"
umask > "$HOME/umask"
for word in "$@"; do printf '%s\\0' "$word"; done > "$HOME/argv.part"
mv "$HOME/argv.part" "$HOME/argv"
"""
ENDS_WHEN_TOLD = READS_JOIN + "echo begun; until [ -e end ]; do sleep 0.05; done; exit 0\n"
GENTLE = "#!/bin/sh\ntrap 'exit 83' TERM\necho begun\nwhile :; do sleep 0.1; done\n"
STUBBORN = "#!/bin/sh\ntrap '' TERM QUIT\necho stubborn; while :; do sleep 0.1; done\n"


class Place:
    """Hosts of one machine, and the scheduler that starts worker runs on them."""

    def __init__(self, folder: Path, shell: str = SHELLS[0]) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "sh").symlink_to(str(shutil.which(shell)))
        self._write("ssh", SSH)
        self.rdzv(ENDS_WHEN_TOLD)
        environ = {"PATH": f"{self.bin}:{path_without_rdzv()}", "HOMES": str(folder / "homes")}
        context = SchedulerContext(folder / "submissions", environ)
        made = scheduler_entry("ssh").make(context)
        assert isinstance(made, ProfileScheduler)
        made.looks, made.try_again_seconds = (0.0,), 0.0
        self.scheduler = made
        self.handles: list[str] = []

    def _write(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def rdzv(self, script: str) -> None:
        """What `rdzv` is on all hosts."""
        self._write("rdzv", script)

    def home(self, slot: int = 1) -> Path:
        """The home folder on a slot's host."""
        return self.folder / "homes" / f"n{slot}"

    @property
    def log(self) -> Path:
        """The log of the worker run of slot 1."""
        return self.home() / ".local/state/rdzv/ssh/rdzv-k7f2a9c1xy-1-1.log"

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

    async def described(self, handle: str, *wanted: SlotState) -> Description:
        """What is said of it, as soon as it is one of these states."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while (found := await self.scheduler.describe(self.run(), handle)).state not in wanted:
            assert time.monotonic() < deadline, f"still {found}"
            await asyncio.sleep(0.05)
        return found

    async def read(self, name: str) -> str:
        """What `rdzv` has written on the host, as soon as it has."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (path := self.home() / name).exists() or not path.read_text():
            assert time.monotonic() < deadline, f"no {name}"
            await asyncio.sleep(0.02)
        return path.read_text()

    def session(self, handle: str) -> list[psutil.Process]:
        """What lives of a worker run."""
        leader = int(handle.partition("-")[0])
        return [p for p in psutil.process_iter() if _session(p.pid) == leader and _lives(p)]

    def close(self) -> None:
        """End what is left."""
        for handle in self.handles:
            for process in self.session(handle):
                with contextlib.suppress(psutil.NoSuchProcess):  # a short one, which has ended
                    process.kill()


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A place whose hosts have the first of these shells."""
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=SHELLS)
async def shelled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A place whose hosts have each shell in turn as `sh`."""
    made = Place(tmp_path, request.param)
    yield made
    made.close()


async def test_a_worker_runs_in_a_session_of_its_own_until_it_ends(shelled: Place) -> None:
    handle = await shelled.submit()
    pid = handle.partition("-")[0]
    running = Description(SlotState.RUNNING, f"pid {pid}")
    assert await shelled.scheduler.describe(shelled.run(), handle) == running
    assert await shelled.scheduler.find(shelled.run()) == handle
    (shelled.home() / "end").touch()
    ended = await shelled.described(handle, *OVER)
    assert ended == Description(SlotState.ENDED, "ended: exit code 0")
    assert shelled.session(handle) == []
    assert shelled.log.read_text() == (
        f"rdzv: worker run {handle}\nbegun\nrdzv: worker run ended with exit code 0\n"
    )


async def test_a_worker_that_fails_tells_its_exit_code_and_last_words(shelled: Place) -> None:
    shelled.rdzv("#!/bin/sh\nprintf 'rdzv[slot 1]: no route to the registry'; exit 81\n")
    handle = await shelled.submit()
    failed = await shelled.described(handle, *OVER)
    assert failed == Description(SlotState.FAILED, "failed: exit code 81")
    logs = shelled.scheduler.logs(shelled.run(), handle, lines=5, follow=False)
    assert [line async for line in logs] == ["rdzv[slot 1]: no route to the registry"]


async def test_the_join_string_comes_on_a_pipe_and_is_in_no_environment(shelled: Place) -> None:
    before = os.umask(0)
    try:
        handle = await shelled.submit()
    finally:
        os.umask(before)
    assert await shelled.read("join") == JOIN + "\n"
    environ = await shelled.read("environ")
    assert JOIN not in environ
    assert "RDZV_JOIN_FILE=/proc/self/fd/3\n" in environ
    for process in shelled.session(handle):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert JOIN not in " ".join([*process.cmdline(), *process.environ().values()])
    assert [line for line in loose(shelled.home()) if line.startswith(".local")] == []
    assert int(await shelled.read("umask"), 8) == 0  # the program's files are the user's matter


async def test_every_word_and_variable_arrives_as_it_is(shelled: Place, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $folder 폴더"
    folder.mkdir()
    words = [
        "a b",
        "it's",
        'say "hi"',
        "$HOME `id` \\",
        "two\nlines",
        "",
        "--",
        "<<NAME>>",
        "漢 #",
    ]
    run = shelled.run(*words, cwd=str(folder), NCCL_DEBUG="a 'b' \"c\" $d", EMPTY="")
    await shelled.submit(run)
    environ = "\n" + await shelled.read("environ")
    assert "\nNCCL_DEBUG=a 'b' \"c\" $d\n" in environ
    assert "\nEMPTY=\n" in environ
    assert f"\nPWD={folder}\n" in environ
    argv = (await shelled.read("argv")).split("\0")[:-1]
    assert argv[argv.index("--") + 1 :] == words


async def test_a_folder_that_the_host_does_not_have_is_no_obstacle(place: Place) -> None:
    await place.submit(place.run(cwd="/nonexistent/project"))
    assert f"\nPWD={place.home()}\n" in await place.read("environ")


async def test_a_worker_run_that_is_submitted_twice_is_started_once(shelled: Place) -> None:
    first = await shelled.submit()
    assert await shelled.submit() == first
    (shelled.home() / "end").touch()
    await shelled.described(first, *OVER)
    assert await shelled.submit() == first


async def test_two_submissions_at_the_same_time_start_one_worker_run(place: Place) -> None:
    found = await asyncio.gather(*(place.submit() for _ in range(4)))
    assert len(set(found)) == 1
    assert place.log.read_text().count("begun") <= 1


async def test_half_of_a_script_does_nothing(place: Place) -> None:
    run = place.run()
    text = place.scheduler.render(run, JOIN)
    environ = {**os.environ, "PATH": f"{place.bin}:{os.environ['PATH']}", "HOME": str(place.folder)}
    before = sorted(path.name for path in place.folder.iterdir())
    lines = text.splitlines(keepends=True)
    for cut in range(len(lines)):
        subprocess.run(
            ["sh", "-s"], input="".join(lines[:cut]), env=environ, text=True, capture_output=True
        )
    assert sorted(path.name for path in place.folder.iterdir()) == before


async def test_a_worker_that_is_cancelled_gets_the_grace_to_end_by_itself(shelled: Place) -> None:
    shelled.rdzv(GENTLE)
    handle = await shelled.submit()
    await until_async(lambda: "begun" in shelled.log.read_text())
    await shelled.scheduler.cancel(shelled.run(), handle, grace_seconds=20.0)
    found = await shelled.described(handle, *OVER)
    assert found == Description(SlotState.FAILED, "failed: exit code 83")
    await shelled.scheduler.cancel(shelled.run(), handle, grace_seconds=20.0)


async def test_a_worker_that_does_not_end_is_killed_after_the_grace(shelled: Place) -> None:
    shelled.rdzv(STUBBORN)
    handle = await shelled.submit()
    await shelled.scheduler.cancel(shelled.run(), handle, grace_seconds=0.0)
    found = await shelled.described(handle, *OVER)
    assert found.state is SlotState.FAILED
    assert "it was killed, or the host was started anew" in found.detail
    await until_async(lambda: not shelled.session(handle))  # killed at once, they end one by one


async def test_another_process_with_its_number_is_not_taken_for_it(shelled: Place) -> None:
    handle = await shelled.submit()
    (shelled.home() / "end").touch()
    await shelled.described(handle, *OVER)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        start = handle.partition("-")[2]
        recycled = f"{stranger.pid}-{start}"
        found = await shelled.scheduler.describe(shelled.run(), recycled)
        await shelled.scheduler.cancel(shelled.run(), recycled, grace_seconds=0.0)
        assert stranger.poll() is None
        stranger.kill()
    assert found == Description(SlotState.ENDED, "ended: exit code 0")


async def test_a_worker_whose_shell_is_killed_is_told_to_end(place: Place) -> None:
    place.rdzv(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "$PROGRAM" "$@"\n')
    program = (
        "import sys, time; sys.path.insert(0, '.'); "
        "from worker.program.process import die_with_parent; "
        "die_with_parent(15, int(sys.argv[sys.argv.index('--parent') + 1])); "
        "print('begun', flush=True); time.sleep(600)"
    )
    handle = await place.submit(place.run(PROGRAM=program, PYTHONPATH=os.getcwd()))
    await until_async(lambda: "begun" in place.log.read_text())
    os.kill(int(handle.partition("-")[0]), signal.SIGKILL)
    await until_async(lambda: not place.session(handle))


def path_without_rdzv() -> str:
    """PATH, but for where this machine has a rdzv of its own."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(f for f in folders if not Path(f, "rdzv").exists())


async def until_async(look: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not look():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.05)


async def refused(place: Place) -> SchedulerError:
    with pytest.raises(SchedulerError) as caught:
        await place.submit()
    assert not place.log.exists()
    return caught.value


async def test_a_host_without_rdzv_is_named_with_what_to_do(place: Place) -> None:
    (place.bin / "rdzv").unlink()
    error = await refused(place)
    assert error.message.endswith("; n1: there is no command 'rdzv' on it")
    assert "install it on that host" in error.hint


async def test_a_home_folder_that_takes_no_log_is_told(place: Place) -> None:
    place.home().mkdir(parents=True)
    (place.home() / ".local").write_text("a file")
    error = await refused(place)
    assert "n1: no place for the worker run's log" in error.message
    assert "/.local" in error.message
    assert error.hint == "the home folder on that host must be one where you can write"


async def test_a_handle_of_a_host_that_has_lost_its_files_is_gone(place: Place) -> None:
    handle = await place.submit()
    (place.home() / "end").touch()
    await place.described(handle, *OVER)
    shutil.rmtree(place.home())
    assert (await place.scheduler.describe(place.run(), handle)).state is SlotState.ENDED


async def test_its_log_is_followed_until_it_ends(place: Place) -> None:
    handle = await place.submit()
    found = []
    async for line in place.scheduler.logs(place.run(), handle, lines=100, follow=True):
        found.append(line)
        if line == "begun":
            (place.home() / "end").touch()
    assert found == [
        f"rdzv: worker run {handle}",
        "begun",
        "rdzv: worker run ended with exit code 0",
    ]
