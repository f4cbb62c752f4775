"""A torchrun that is begun before the go is the one that would have been begun at the go."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rendezvous.background import in_background
from tests.support import seen
from tests.support.nightly import at_night
from tests.support.waiting import soon
from tests.worker.programs.started import PROGRAMS, Recording, is_gone
from tests.worker.test_table import join, table
from worker.agent import early as early_module
from worker.agent.early import EarlyTorchrun, changes, order_of
from worker.contracts import FRAMEWORKS, make_contract
from worker.contracts.framework import HOOK, Paths
from worker.contracts.variables import ProgramOptions
from worker.machine.user_python import script_start
from worker.program.ending import Ending
from worker.program.kept import Kept, start_keeper
from worker.program.process import Program
from worker.programs import early_torchrun

SCRIPT = """
import re
import sys
from torch.distributed.run import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
TABLE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NNODES": "2", "NODE_RANK": "0"}
GRACE = 1.0
BINARY = os.fsdecode(b"\xff\xe9 \xc3\xa9")


class World:
    """A user's torchrun, and the environment that finds it."""

    def __init__(self, folder: Path, first_line: str = f"#!{sys.executable}") -> None:
        self.script = folder / "bin" / "torchrun"
        package = folder / "packages" / "torch"
        (package / "distributed").mkdir(parents=True)
        for each in (package, package / "distributed"):
            (each / "__init__.py").touch()
        self.module = package / "distributed" / "run.py"
        shutil.copy(PROGRAMS / "run_like.py", self.module)
        shutil.copy(seen.__file__, package.parent)
        self.write(first_line + SCRIPT)
        self.environ = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "PYTHONPATH": f"{folder}/packages",
            "PYTHONDONTWRITEBYTECODE": "1",
            "NODE_RANK": "a guess",
            "PET_NNODES": "9",
            "NAME": BINARY,
            "RDZV_TOKEN": "a secret",
        }
        self.output = Recording()

    def write(self, text: str) -> None:
        self.script.parent.mkdir(exist_ok=True)
        self.script.write_text(text)
        self.script.chmod(0o755)

    def env(self, **changes: str) -> dict[str, str]:
        """The program's environment, as a contract makes it."""
        kept = {n: v for n, v in self.environ.items() if n not in ("PET_NNODES", "RDZV_TOKEN")}
        return {**kept, **TABLE, **changes}

    async def early(self, *words: str) -> EarlyTorchrun:
        """One that was begun."""
        early = EarlyTorchrun(["torchrun", *words], self.environ, GRACE, in_background)
        await early.begin()
        return early

    async def cold(self, argv: list[str], env: Mapping[str, str]) -> Program:
        return await Program.start(argv, env, grace_seconds=GRACE, output=self.output)

    async def outcome(self, argv: list[str], *, early: bool) -> tuple[Ending, str, str]:
        """How it ends, and what it has printed."""
        self.output = Recording()
        if early:
            begun = await self.early(*argv[1:])
            program = await begun.start(argv, self.env(), output=self.output)
            assert program is not None
        else:
            program = await self.cold(argv, self.env())
        ending = await program.wait()
        return ending, self.output.of("stdout").decode(), self.output.of("stderr").decode()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_it_sees_of_itself_what_one_that_is_begun_at_the_go_sees(world: World) -> None:
    argv = ["torchrun", "show", "--lr", "3", BINARY]
    told: list[tuple[dict[str, Any], dict[str, str]]] = []
    for early in (False, True):
        ending, said, errors = await world.outcome(argv, early=early)
        assert (ending.exit_code, errors) == (0, "")
        told.append(json.loads(said))
    assert told[0][0]["argv"] == [str(world.script), *argv[1:]]
    assert told[0][0]["environ"].items() >= {**TABLE, "NAME": BINARY}.items()
    assert told[1] == told[0]


@pytest.mark.parametrize(
    "first_lines",
    [
        f"#!{sys.executable}",
        f"#!{sys.executable} -s\n# -*- coding: utf-8 -*-",
        f"#!/bin/sh\n'''exec' {sys.executable} \"$0\" \"$@\"\n' '''\n# -*- coding: utf-8 -*-",
    ],
    ids=["plain", "flags", "long path"],
)
async def test_it_is_begun_before_the_go(tmp_path: Path, first_lines: str) -> None:
    _, said, _ = await World(tmp_path, first_lines).outcome(["torchrun", "early"], early=True)
    assert said == "a guess 0\n"


@pytest.mark.parametrize(
    "words",
    [
        at_night(["returns", "none"]),
        ["returns", "number"],
        ["returns", "words"],
        at_night(["returns", "large"]),
        ["exits", "0"],
        at_night(["exits", "3"]),
        ["exits", "-1"],
        ["raises"],
        ["killed", "9"],
        at_night(["killed", "15"]),
        ["late"],
        at_night(["nothing of the kind"]),
    ],
    ids=" ".join,
)
async def test_it_ends_as_the_other_does(world: World, words: list[str]) -> None:
    (cold, *said), (early, *said_early) = [
        await world.outcome(["torchrun", *words], early=early) for early in (False, True)
    ]
    assert (early.exit_code, *said_early) == (cold.exit_code, *said)


async def test_an_interrupt_ends_it_as_an_interrupt(world: World) -> None:
    endings = [await world.outcome(["torchrun", "interrupted"], early=e) for e in (False, True)]
    assert [ending.exit_code for ending, *_ in endings] == [130, 130]


async def test_it_ends_without_taking_its_modules_apart(world: World) -> None:
    text = world.module.read_text()
    world.module.write_text(
        text + "\n\nclass Slow:\n    def __del__(self):\n        print('gone')\n"
    )
    world.module.write_text(world.module.read_text() + "\n\nHELD = [Slow()]\n")
    assert "gone" in (await world.outcome(["torchrun", "exits", "0"], early=False))[1]
    assert "gone" not in (await world.outcome(["torchrun", "exits", "0"], early=True))[1]
    world.environ["LD_PRELOAD"] = ""  # of a tool that may have something to write at the end
    assert "gone" in (await world.outcome(["torchrun", "exits", "0"], early=True))[1]


async def test_its_command_shows_the_users_words_and_a_stop_ends_it(world: World) -> None:
    early = await world.early("train.py", "--lr", "3")
    program = await early.start(["torchrun", "waits"], world.env(), output=world.output)
    assert program is not None
    await soon(lambda: world.output.pids() != [])
    [pid] = world.output.pids()
    assert pid == program.main_pid
    shown = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:-1]
    assert shown[1:] == [bytes(world.script), b"train.py", b"--lr", b"3"]
    assert (await program.stop()).exit_code == 143
    assert is_gone(pid)


async def test_one_that_would_begin_too_late_does_not(world: World) -> None:
    early = await world.early("train.py")
    until = time.monotonic() - 0.01
    argv = ["torchrun", "waits"]
    program = await early.start(argv, world.env(), output=world.output, until=until)
    assert program is not None
    assert (await program.wait()).exit_code == 137
    assert world.output.pids() == []


async def test_one_that_nobody_wants_is_gone_at_once(world: World) -> None:
    world.module.write_text("import time\ntime.sleep(60)\n")  # a long import
    early = await world.early("train.py")
    await soon(lambda: found(world.script) != [])
    began = time.monotonic()
    await early.end()
    assert time.monotonic() - began < 1.0
    assert found(world.script) == []
    await early.end()


def found(script: Path) -> list[int]:
    """The processes that have this script among their words."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            pids += [int(entry.name)] * (bytes(script) in words)
    return pids


def is_keeper(pid: int) -> bool:
    return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    "why", ["never begun", "another's", "a wrapper", "no python", "changed", "killed"]
)
async def test_where_it_does_not_fit_nothing_is_left_of_it(world: World, why: str) -> None:
    env, argv = world.env(), ["torchrun", "exits", "0"]
    early = EarlyTorchrun(["torchrun", "train.py"], world.environ, GRACE, in_background)
    match why:
        case "another's":
            world.write(f"#!{sys.executable}\nprint('another')\n")
        case "a wrapper":
            world.write(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, '/other'){SCRIPT}")
        case "no python":
            world.write("#!/bin/sh\n" + SCRIPT)
        case "changed":
            env["OMP_NUM_THREADS"] = "4"
    if why != "never begun":
        await early.begin()
    if why == "killed":
        [pid] = await soon(lambda: [p for p in found(world.script) if not is_keeper(p)])
        os.kill(pid, signal.SIGKILL)
        await soon(lambda: found(world.script) == [])
    assert await early.start(argv, env, output=world.output) is None
    assert found(world.script) == []


async def test_where_torch_cannot_be_imported_torchrun_itself_says_so(world: World) -> None:
    """Before the go or after it; and what an import of ours has not found may be there for it."""
    world.module.write_text("import time\ntime.sleep(0.2)\nraise ImportError('no such library')\n")
    cold, early = [await world.outcome(["torchrun"], early=early) for early in (False, True)]
    assert (early[0].exit_code, *early[1:]) == (cold[0].exit_code, *cold[1:])
    assert "no such library" in early[2]
    tried = world.module.with_name("tried")
    world.module.write_text(f"open({str(tried)!r}, 'w').close()\nraise ImportError('not yet')\n")
    begun = await world.early()
    await soon(tried.exists)
    whole = Path(shutil.copy(PROGRAMS / "run_like.py", world.module.with_name("whole")))
    whole.replace(world.module)  # never seen half written
    program = await begun.start(["torchrun", "exits", "5"], world.env(), output=Recording())
    assert program is not None
    assert (await program.wait()).exit_code == 5


async def test_what_was_registered_before_it_for_the_end_runs_too(world: World) -> None:
    site = Path(world.environ["PYTHONPATH"], "sitecustomize.py")
    site.write_text("import atexit\natexit.register(print, 'the site has ended')\n")
    said = [(await world.outcome(["torchrun", "late"], early=e))[1] for e in (False, True)]
    assert said[1] == said[0]
    assert said[0].endswith("the site has ended\n")


async def test_a_disk_that_hangs_is_not_waited_for(world: World) -> None:
    hangs = asyncio.Event()

    async def in_thread(work: Any, *args: Any, **options: Any) -> Any:
        await hangs.wait()
        return work(*args, **options)

    early = EarlyTorchrun(["torchrun"], world.environ, GRACE, in_thread)
    beginning = asyncio.create_task(early.begin())
    await asyncio.sleep(0)
    assert await early.start(["torchrun", "exits", "0"], world.env(), output=world.output) is None
    hangs.set()
    await beginning
    assert found(world.script) == []


async def test_one_that_is_still_being_started_at_the_go_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> Kept:
        kept = await start_keeper(*args, **options)
        await go_on.wait()
        return kept

    monkeypatch.setattr(early_module, "start_keeper", slowly)
    early = EarlyTorchrun(["torchrun"], world.environ, GRACE, in_background)
    beginning = asyncio.create_task(early.begin())
    await soon(lambda: found(world.script) != [])
    assert await early.start(["torchrun", "exits", "0"], world.env(), output=world.output) is None
    go_on.set()
    await beginning
    assert found(world.script) == []


# --- by value -------------------------------------------------------------------------------------


def test_what_an_import_may_have_read_must_not_have_changed() -> None:
    given = {"PATH": "/bin", "HOME": "/root", "PET_NNODES": "2"}
    changed = {"PATH": "/bin", "HOME": "/root", "NCCL_DEBUG": "INFO", "NNODES": BINARY}
    assert json.loads(order_of(["torchrun", BINARY], given, changed) or b"") == {
        "argv": ["torchrun", "\xff\xe9 \xc3\xa9"],
        "set": {"NCCL_DEBUG": "INFO", "NNODES": "\xff\xe9 \xc3\xa9"},
        "unset": ["PET_NNODES"],
    }
    for name in (
        "OMP_NUM_THREADS",
        "PYTHONPATH",
        "TORCH_LOGS",
        "LD_LIBRARY_PATH",
        "PATH",
        "XNCCL_A",
    ):
        assert order_of(["torchrun"], given, {**changed, name: "1"}) is None
    assert order_of(["torchrun"], given, {"PATH": "/bin", "PET_NNODES": "2"}) is None


def test_a_secret_that_comes_later_is_none_that_an_import_of_torchruns_has_read() -> None:
    order = order_of(["torchrun"], {"A": "1"}, {"A": "1", "HF_TOKEN": "x", "API_KEY": "y"})
    assert json.loads(order or b"")["set"] == {"HF_TOKEN": "x", "API_KEY": "y"}
    assert order_of(["torchrun"], {"A": "1"}, {"A": "1", "HF_TOKEN": "x", "B": "2"}) is None
    assert changes({}, {"HF_TOKEN": "x"}).seen == {"HF_TOKEN"}  # of a person's imports one may


@pytest.mark.parametrize(("theirs", "path"), [({}, HOOK), ({"PYTHONPATH": "/a"}, f"{HOOK}:/a")])
def test_the_hook_in_front_of_a_path_is_for_the_ranks(theirs: dict[str, str], path: str) -> None:
    order = order_of(["torchrun"], theirs, {"PYTHONPATH": path, "RDZV_LOOK_FOLDER": "/run/look"})
    assert json.loads(order or b"")["set"] == {"PYTHONPATH": path, "RDZV_LOOK_FOLDER": "/run/look"}
    assert order_of(["torchrun"], theirs, {"PYTHONPATH": f"{path}:/b"}) is None


def test_all_that_a_contract_changes_is_free_to_change() -> None:
    environ = {"PATH": "/bin", "PET_NNODES": "2", "MASTER_ADDR": "a guess", "NCCL_DEBUG": "INFO"}
    options = ProgramOptions(framework="torchrun", env_for=["ucx", "mpi"], require_rdma=True)
    paths = Paths(folder="/f", python="/p", bin="/b", socket="/s", look="/run/look")
    contract = make_contract(["train.py"], table(), join().slot, environ, options, paths=paths)
    assert contract.variables
    assert order_of(contract.argv, environ, contract.environment(environ)) is not None


@pytest.mark.parametrize(
    ("framework", "command", "call"),
    [
        ("torchrun", "train.py --lr 3", "torchrun train.py --lr 3"),
        ("torchrun", "torchrun --max-restarts 1 train.py", "torchrun --max-restarts 1 train.py"),
        ("torchrun", "/opt/bin/torchrun train.py", "/opt/bin/torchrun train.py"),
        ("torchrun", "python -m torch.distributed.run train.py", ""),
        ("torch.distributed.launch", "train.py", ""),
        ("command", "torchrun train.py", ""),
        ("accelerate", "accelerate launch train.py", ""),
    ],
)
def test_what_is_started_by_torchruns_script(framework: str, command: str, call: str) -> None:
    assert FRAMEWORKS[framework].torchrun(command.split()) == call.split()


@pytest.mark.parametrize(
    ("first_line", "flags"),
    [
        ("#!{}", []),
        ("#!{} -sP", ["-sP"]),
        ("#! {} ", []),
        ("#!/usr/bin/env python3", []),
        ("#!/usr/bin/env -S python3 -s", None),
        ("#!/bin/sh\n'''exec' {} \"$0\" \"$@\"\n' '''", []),
        ("#!/bin/sh", None),
        ("", None),
    ],
)
def test_the_start_of_a_script(tmp_path: Path, first_line: str, flags: list[str] | None) -> None:
    python, script = tmp_path / "python3", tmp_path / "torchrun"
    python.symlink_to(sys.executable)
    script.write_text(first_line.format(python) + SCRIPT)
    python.chmod(0o755)
    found = script_start(script, {"PATH": str(tmp_path)})
    assert found == ([] if flags is None else [str(python), *flags])


# --- the store ------------------------------------------------------------------------------------


def test_a_node_waits_until_the_store_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    with socket.socket() as store:
        store.bind(("127.0.0.1", 0))
        place = {**TABLE, "MASTER_PORT": f"{store.getsockname()[1]}", "NODE_RANK": "1"}

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                store.listen()

        monkeypatch.setattr(time, "sleep", pause)
        early_torchrun.await_store({**place, "NODE_RANK": "0"})
        early_torchrun.await_store({})
        assert pauses == []
        early_torchrun.await_store(place)
        assert len(pauses) == 3
        assert all(0.005 <= one <= 0.015 for one in pauses)
        pauses.clear()
        early_torchrun.await_store({**place, "MASTER_ADDR": "no-such-host.invalid"})
        assert pauses == []


def test_many_nodes_dial_the_store_more_slowly_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pauses = [0.0], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        place = {**TABLE, "MASTER_PORT": f"{closed.getsockname()[1]}", "NODE_RANK": "1"}
        early_torchrun.await_store({**place, "NNODES": "10000"})
    assert 0.25 <= min(pauses) < max(pauses) <= 0.75
    assert 60.0 <= now[0] < 61.0


@pytest.mark.real_time
def test_the_host_of_the_store_stays_until_the_others_have_left() -> None:
    """The last of torchrun's barrier asks the store once more when all others have been let go."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as own:
            accepted = server.accept()[0]
            count = len(os.listdir("/proc/self/fd"))
            assert not early_torchrun.has_clients(port)  # its own
            assert len(os.listdir("/proc/self/fd")) == count
            code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); s.recv(1)"
            peer = subprocess.Popen([sys.executable, "-c", code])
            theirs = server.accept()[0]
            assert early_torchrun.has_clients(port)
            assert not early_torchrun.has_clients(own.getsockname()[1])
            theirs.close()
            early_torchrun.await_clients(port)
            assert not early_torchrun.has_clients(port)
            assert peer.wait(30) == 0
            accepted.close()


def test_only_the_host_of_several_nodes_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    stayed: list[int] = []
    monkeypatch.setattr(early_torchrun, "await_clients", stayed.append)
    passed: list[object] = []
    store = SimpleNamespace(barrier=lambda *args, **named: passed.append((args, named)))
    for name in ("torch", "torch.distributed", "torch.distributed.elastic"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    utils: Any = ModuleType("torch.distributed.elastic.utils")
    utils.store = store
    monkeypatch.setitem(sys.modules, "torch.distributed.elastic.utils", utils)
    for environ in ({**TABLE, "NODE_RANK": "1"}, {**TABLE, "NNODES": "1"}, TABLE):
        early_torchrun.stay_at_barrier(environ)
        store.barrier("store", world_size=2)
    assert passed == [(("store",), {"world_size": 2})] * 3
    assert stayed == [29500]


class Over(BaseException):
    """The process ends here."""


def test_it_is_torchrun_also_without_the_hook_and_a_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    steps: dict[str, Any] = {"has_torch": True, "read_order": {}, "use_hook": OSError("none")}
    steps |= {"stay_at_barrier": ImportError("none"), "execute": 7, "leave": Over()}
    first = ["look_like", "has_torch", "read_order", "follow", "use_hook", "await_store"]
    for name in (*first, "stay_at_barrier", "execute", "leave"):

        def step(*given: Any, name: str = name) -> Any:
            done.append(f"{name} 7" if given == (7,) else name)
            if isinstance(found := steps.get(name), BaseException):
                raise found
            return found

        monkeypatch.setattr(early_torchrun, name, step)
    with pytest.raises(Over):
        early_torchrun.main("/bin/torchrun")
    assert done == [*first, "stay_at_barrier", "execute", "leave 7"]


def test_its_own_errors_go_where_the_hook_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of logs that torch has begun with the stream from before."""
    before, own, other = io.StringIO(), io.StringIO(), io.StringIO()
    handlers = [logging.StreamHandler(stream) for stream in (before, other)]
    monkeypatch.setattr(sys, "stderr", before)
    util, paths = SimpleNamespace(), list[str]()
    hook = SimpleNamespace(install=lambda: setattr(sys, "stderr", own))
    util.module_from_spec = lambda found: hook

    def location(name: str, path: str) -> Any:
        paths.append(path)
        return SimpleNamespace(loader=SimpleNamespace(exec_module=lambda module: None))

    util.spec_from_file_location = location
    monkeypatch.setattr(early_torchrun, "importlib", SimpleNamespace(util=util))
    early_torchrun.use_hook()
    assert [handler.stream for handler in handlers] == [own, other]
    assert paths == [f"{HOOK}/sitecustomize.py"]
