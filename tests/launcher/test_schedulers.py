"""What the schedulers that are code add to the contract (`tests/schedulers/test_contract.py`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from launcher.plan.plan import HIDDEN, Submission
from launcher.processes import OwnProcesses
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.external import ExternalScheduler
from launcher.schedulers.local import LocalScheduler
from launcher.schedulers.manual import ManualScheduler
from rendezvous.compat import timeout
from rendezvous.wire.errors import SchedulerError, TemplateError
from rendezvous.wire.run import SlotState
from tests.support.bed import COMMAND, join_text, worker_run
from tests.support.launching import lives
from tests.support.waiting import SECONDS, soon

PLAIN_FILE = "/proc/self/environ"
LIVING = (SlotState.SUBMITTED, SlotState.QUEUED, SlotState.RUNNING)
DUMP = """
import json, os, pathlib, sys
join = pathlib.Path(os.environ["RDZV_JOIN_FILE"]).read_text()
found = {"argv": sys.argv[2:], "env": dict(os.environ), "join": join}
pathlib.Path(sys.argv[1] + ".new").write_text(json.dumps(found))
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


async def ended(scheduler: Scheduler, handle: str) -> Description:
    """The description of a worker run, once it lives no longer."""
    found = Description(SlotState.RUNNING)
    async with timeout(SECONDS):
        while found.state in LIVING:
            await asyncio.sleep(0.02)
            found = await scheduler.describe(own_run(spec("true")), handle)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The launch's folder for submissions; not made yet."""
    return tmp_path / "submissions"


# ---- local --------------------------------------------------------------------------------------


def local(folder: Path, environ: Mapping[str, str] | None = None) -> LocalScheduler:
    return LocalScheduler(SchedulerContext(folder, os.environ if environ is None else environ))


def spec(*argv: str, **env: str) -> str:
    return yaml.safe_dump({"argv": list(argv), "env": env})


def own_run(template: str, slot: int = 1) -> Submission:
    return worker_run("local", slot, template=template)


async def dumped(folder: Path, template: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """What a worker run of the local scheduler is started with."""
    scheduler = local(folder, environ)
    out = folder.parent / "dump"
    text = template.replace("PROGRAM", json.dumps([sys.executable, "-c", DUMP, str(out)])[1:-1])
    handle = await scheduler.submit(own_run(text), join_text(1))
    assert (await ended(scheduler, handle)).state is SlotState.ENDED
    found: dict[str, Any] = json.loads(out.read_text())
    return found


async def test_a_local_worker_run_gets_its_words_and_the_launchers_environment_and_its_specs(
    folder: Path,
) -> None:
    """What the launcher itself has read does not count again for its nodes."""
    argv = "argv: [PROGRAM, <<COMMAND>>, 0755, yes, 1.10, ~, 12:30, '<<IMAGE>>']"
    template = f"{argv}\nenv: {{<<: {{A: on, B: <<SLOT>>}}, HOME: /h}}"
    environ = {"HOME": "/root", "PYTHONPATH": ".", "NUM_NODES": "4", "RDZV_STATE_DIR": "/state"}
    read = ("FILE", "ENV", "ENV_FILE", "SECRET_ENV", "HOSTS", "NNODES", "ADDRESS", "LOG_LEVEL")
    own = {f"RDZV_{name}": "9" for name in read} | {"NODE_RANK": "0"}
    found = await dumped(folder, template, environ | own)
    assert found["argv"] == [*COMMAND, "0755", "yes", "1.10", "~", "12:30", "registry/image:tag"]
    del found["env"]["RDZV_JOIN_FILE"]
    found["env"].pop("LC_CTYPE", None)  # Python's own, where no locale is set
    assert found["env"] == environ | {"A": "on", "B": "1", "HOME": "/h"}


async def test_67_102_a_local_worker_run_ends_with_its_launcher_and_no_later_one_finds_it(
    folder: Path,
) -> None:
    started = list[list[str]]()

    class Processes(OwnProcesses):
        async def start(self, argv: Any, environ: Any, **how: Any) -> Any:
            started.append(argv)
            return SimpleNamespace(pid=4711, returncode=None)

    run = own_run(spec("rdzv", "worker", "--", "true"))
    scheduler = LocalScheduler(SchedulerContext(folder, os.environ, processes=Processes()))
    handle = await scheduler.submit(run, join_text(1))
    assert started[0][-5:] == ["worker", "--parent", str(os.getpid()), "--", "true"]
    assert await scheduler.find(run) == handle == "4711"
    later = local(folder)
    assert await later.find(run) is None
    assert (await later.describe(run, handle)).state is SlotState.ENDED


async def test_a_local_worker_run_gets_what_is_passed_on_and_its_spec_counts_more(
    folder: Path,
) -> None:
    scheduler, out = local(folder, {"A": "0", "HOME": "/"}), folder.parent / "dump"
    run = own_run(spec(sys.executable, "-c", DUMP, str(out), B="2"))
    passed = {"PASS_ENV": ["A=1=1", "B=1", "C="]}
    given = replace(run, variables=run.variables | passed)
    assert (
        await ended(scheduler, await scheduler.submit(given, join_text(1)))
    ).state is SlotState.ENDED
    found = json.loads(out.read_text())["env"]
    assert [found.get(name) for name in ("A", "B", "C", "HOME")] == ["1=1", "2", "", "/"]


@pytest.mark.parametrize("has_variable", [True, False])
async def test_the_secret_of_a_local_worker_run_is_in_no_environment_and_on_no_disk(
    folder: Path, has_variable: bool
) -> None:
    template = "argv: [PROGRAM]" + ("\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}" if has_variable else "")
    secrets = {"RDZV_JOIN": "a", "RDZV_TOKEN": "b", "RDZV_REGISTRY_FILE": "c"}
    found = await dumped(folder, template, secrets | {"LC_ALL": "C.UTF-8"})
    assert found["join"] == join_text(1)
    assert set(found["env"]) == {"LC_ALL", "RDZV_JOIN_FILE"}
    assert found["env"]["RDZV_JOIN_FILE"].startswith("/proc/self/fd/")
    assert not folder.exists()


@pytest.mark.parametrize(
    "template",
    [
        "argv: [rdzv, worker, <<RDZV_JOIN>>]",
        "argv: [sh, -c, 'X=<<RDZV_JOIN>> rdzv worker']",
        "argv: [rdzv, worker]\nenv: {JOIN: <<RDZV_JOIN>>}",
    ],
)
def test_a_secret_where_others_can_read_it_is_refused(folder: Path, template: str) -> None:
    for join in (HIDDEN, join_text(1)):
        with pytest.raises(TemplateError) as caught:
            local(folder).prepare(own_run(template), join)
        assert caught.value.message.endswith(
            "<<RDZV_JOIN>> is a secret, but is in a place that others can read"
        )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", ": must be a table of keys"),
        ("argv: []", "argv: List should have at least 1 item"),
        ("argv: rdzv worker", "argv: must be a list"),
        ("argv: [a]\nenv: {A: [b]}", "env.A: must be text"),
        ("argv: [a]\nimage: b", "image: unknown key"),
        ("argv: [a]\n---\nargv: [b]", " is not one YAML document: "),
    ],
)
def test_what_the_local_scheduler_cannot_start_is_refused(
    folder: Path, template: str, message: str
) -> None:
    with pytest.raises(TemplateError) as caught:
        local(folder).prepare(own_run(template), HIDDEN)
    assert message in caught.value.message
    assert caught.value.message.startswith(own_run(template).source)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["/nonexistent/rdzv"], "'/nonexistent/rdzv' cannot be started: No such file or directory"),
        ([PLAIN_FILE], f"'{PLAIN_FILE}' cannot be started: Permission denied"),
        (["true", "x" * 150_000], "'true' cannot be started: Argument list too long"),
    ],
    ids=["missing", "not executable", "too long"],
)
async def test_a_program_that_cannot_be_started_is_named(
    folder: Path, argv: list[str], message: str
) -> None:
    with pytest.raises(SchedulerError) as caught:
        await local(folder).submit(own_run(spec(*argv), slot=3), join_text(3))
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("exit 0", SlotState.ENDED, "exit code 0"),
        ("exit 3", SlotState.FAILED, "exit code 3"),
        ("kill -9 $$", SlotState.FAILED, "signal 9"),
    ],
)
async def test_how_a_local_worker_run_ended_is_told(
    folder: Path, script: str, state: SlotState, words: str
) -> None:
    scheduler = local(folder)
    handle = await scheduler.submit(own_run(spec("sh", "-c", script)), join_text(1))
    assert await ended(scheduler, handle) == Description(state, f"pid {handle} ended with {words}")


async def test_of_an_agents_log_only_what_this_worker_run_has_said_is_its_cause(
    folder: Path, tmp_path: Path
) -> None:
    """A former launch of this name may have left a cause of its own in the same file."""
    log = tmp_path / "logs" / "agent-1.log"
    log.parent.mkdir()
    log.write_text("2026-11-20 20:00:00,000 ERROR no GPU is here\n")
    scheduler = LocalScheduler(SchedulerContext(folder, os.environ, log.parent))
    quiet = await scheduler.submit(own_run(spec("false")), join_text(1))
    assert (await ended(scheduler, quiet)).detail == f"pid {quiet} ended with exit code 1"
    says = f"echo 'now ERROR no disk is here' >> {log}; exit 1"
    other = await scheduler.submit(own_run(spec("sh", "-c", says)), join_text(1))
    words = f"pid {other} ended with exit code 1: no disk is here"
    assert (await ended(scheduler, other)).detail == words


async def test_a_wrapped_local_worker_run_ends_with_all_that_it_started(
    folder: Path, tmp_path: Path
) -> None:
    scheduler, pids = local(folder), tmp_path / "pids"
    wraps = f"sleep 1000 & echo $! > {pids}.new; mv {pids}.new {pids}; wait"
    run = own_run(spec("sh", "-c", wraps))
    handle = await scheduler.submit(run, join_text(1))
    await soon(pids.exists)
    await scheduler.cancel(run, handle, grace_seconds=50.0)
    words = f"pid {handle} ended with signal {int(signal.SIGTERM)}"
    assert await scheduler.describe(run, handle) == Description(SlotState.FAILED, words)
    await soon(lambda: not lives(int(pids.read_text())))


@pytest.mark.parametrize(
    ("trap", "number"), [("", signal.SIGQUIT), ("trap '' QUIT; ", signal.SIGKILL)]
)
async def test_without_a_grace_a_local_worker_run_is_told_to_quit_and_killed_if_it_does_not(
    trap: str, number: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.schedulers.local._KILL_SECONDS", 0.1 if trap else SECONDS)
    begins = f"{trap}touch {tmp_path}/ready; exec sleep 1000"
    # Below a shell's `&` the signal is ignored, which no shell can undo.
    heeding = ("env", "--default-signal=QUIT", "sh", "-c", begins)
    scheduler, run = local(folder), own_run(spec(*heeding))
    handle = await scheduler.submit(run, join_text(1))
    await soon((tmp_path / "ready").exists)
    await scheduler.cancel(run, handle, grace_seconds=0.0)
    found = await scheduler.describe(run, handle)
    assert found.detail == f"pid {handle} ended with signal {int(number)}"


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What our own command writes down in place of joining."""
    own = (sys.executable, "-c", DUMP, str(tmp_path / "dump"))
    monkeypatch.setattr("launcher.schedulers.local.OWN_COMMAND", own)
    return tmp_path / "dump"


async def test_a_process_that_was_made_ready_joins_when_it_is_submitted_and_not_before(
    folder: Path, dump: Path
) -> None:
    scheduler, run = local(folder), own_run(spec("rdzv", "worker", "--", "a"))
    others = {child.pid for child in psutil.Process().children()}
    await scheduler.make_ready(run)
    [ready] = {child.pid for child in psutil.Process().children()} - others
    assert await scheduler.find(run) is None
    handle = await scheduler.submit(run, join_text(1))
    assert (handle, (await ended(scheduler, handle)).state) == (str(ready), SlotState.ENDED)
    found = json.loads(dump.read_text())
    assert found["join"] == join_text(1)
    assert found["argv"][-2:] == ["--", "a"]
    assert join_text(1) not in found["env"].values()


@pytest.mark.parametrize("spoiled", ["it ended", "it was begun as another"])
async def test_a_process_that_was_made_ready_in_vain_ends_and_another_one_joins(
    folder: Path, dump: Path, spoiled: str
) -> None:
    scheduler, run = local(folder), own_run(spec("rdzv", "worker", "--", "a"))
    others = {child.pid for child in psutil.Process().children()}
    await scheduler.make_ready(run)
    [ready] = {child.pid for child in psutil.Process().children()} - others
    if spoiled == "it ended":
        os.kill(ready, signal.SIGKILL)
        await soon(lambda: not lives(ready))
    else:
        run = own_run(spec("rdzv", "worker", "--", "b"))
    handle = await scheduler.submit(run, join_text(1))
    assert handle != str(ready)
    assert (await ended(scheduler, handle)).state is SlotState.ENDED
    await scheduler.close()
    await soon(lambda: not lives(ready))


async def test_a_command_that_is_not_ours_is_not_begun_before_it_is_submitted(
    folder: Path, tmp_path: Path
) -> None:
    scheduler, run = local(folder), own_run(spec("touch", str(tmp_path / "begun")))
    others = {child.pid for child in psutil.Process().children()}
    await scheduler.make_ready(run)
    assert {child.pid for child in psutil.Process().children()} == others
    await scheduler.close()


# ---- manual -------------------------------------------------------------------------------------


def manual(folder: Path) -> ManualScheduler:
    return ManualScheduler(SchedulerContext(folder, {}))


@pytest.mark.parametrize("scheduler", [ManualScheduler, ExternalScheduler])
async def test_a_file_that_cannot_be_reached_is_not_one_that_was_removed(
    folder: Path, tmp_path: Path, scheduler: type[ManualScheduler | ExternalScheduler]
) -> None:
    own = scheduler(SchedulerContext(folder, {}))
    (tmp_path / "loop").symlink_to("loop")  # as a folder that was closed, or a dead server
    handle = str(tmp_path / "loop" / "name.join")
    with pytest.raises(SchedulerError, match=r"/loop/name\S* cannot be reached: Too many"):
        await own.describe(own_run(spec("true")), handle)
    with pytest.raises(SchedulerError, match="cannot be reached"):
        await own.cancel(own_run(spec("true")), handle, grace_seconds=1)
    removed = await own.describe(own_run(spec("true")), str(tmp_path / "gone.join"))
    assert removed.state is SlotState.ENDED


async def test_the_script_of_a_manual_worker_run_starts_rdzv_with_the_words_as_they_are(
    folder: Path, tmp_path: Path
) -> None:
    handle = await manual(folder).submit(worker_run("manual"), join_text(1))
    assert handle == str(folder / "slot-1.sh")
    modes = [stat.S_IMODE(Path(path).stat().st_mode) for path in (handle, folder)]
    assert modes == [0o600, 0o700]
    found = await manual(folder).describe(worker_run("manual"), handle)
    assert found == Description(SlotState.SUBMITTED, "start slot-1.sh by hand")
    assert manual(folder).start_words(handle) == f"sh {handle}"
    program, out = tmp_path / "bin" / "rdzv", tmp_path / "out.json"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump([sys.argv[1:], os.environ['RDZV_JOIN']], open({str(out)!r}, 'w'))\n"
    )
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    subprocess.run(["sh", handle], env={"PATH": path, "LC_ALL": "C.UTF-8"}, check=True)
    options = worker_run("manual").variables["WORKER_OPTIONS"]
    assert isinstance(options, list)
    assert json.loads(out.read_text()) == [["worker", *options, "--", *COMMAND], join_text(1)]


async def test_a_new_generation_replaces_the_script_of_its_slot(folder: Path) -> None:
    scheduler = manual(folder)
    old, new = worker_run("manual"), worker_run("manual", generation=2)
    handle = await scheduler.submit(old, join_text(1))
    assert await scheduler.submit(new, join_text(1, 2)) == handle
    assert join_text(1, 2) in Path(handle).read_text()
    assert await scheduler.find(old) is None
    assert (await scheduler.describe(old, handle)).state is SlotState.ENDED
    await scheduler.cancel(old, handle, grace_seconds=0.0)
    assert (await scheduler.describe(new, handle)).state is SlotState.SUBMITTED
    await scheduler.cancel(new, handle, grace_seconds=0.0)
    assert not Path(handle).exists()


async def test_a_script_that_cannot_be_written_is_a_scheduler_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SchedulerError, match=r".*slot-1.sh cannot be written: File exists"):
        await manual(tmp_path / "file").submit(worker_run("manual"), join_text(1))
