"""A node that forks its processes: real ones, from a real torch; and where it cannot, why."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rendezvous.background import in_background
from tests.support.nightly import at_night
from tests.support.waiting import soon
from tests.worker.programs.started import Recording
from worker.agent.notices import Notice, text_of
from worker.agent.warm import FIRST_FAILED, WarmStart, WarmWish
from worker.contracts import Contract
from worker.contracts.framework import Forks
from worker.offer.ports import find_free
from worker.program import keeper
from worker.program.ending import Ending
from worker.program.process import Program
from worker.program.process_table import descendants

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(120),
]
GRACE = 1.0
SHOWS = "import os\nprint('rank ' + os.environ['RANK'] + '\\n', end='')\n"
SAYS_WHOSE = """
import os
words = open(f'/proc/{os.getppid()}/cmdline').read().split('\\0')
whose = next(w.rpartition('/')[2] for w in words if w.endswith(('zygote.py', 'spawner.py')))
print(f"rank {os.environ['RANK']} of {whose}\\n", end='')
"""
FAILS = """
import os, signal, sys, time
def told(*_):
    os.write(1, b'told %b\\n' % os.environ['RANK'].encode())
    sys.exit(0)
signal.signal(15, told)
if os.environ['RANK'] == '1':
    time.sleep(0.3)
    sys.exit(7)
time.sleep(30)
"""
MODULES = {
    "loud": "import sys\nprint('a word on stdout')\nprint('a warning', file=sys.stderr)\n",
    "threaded": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "ending": "import sys\nsys.exit('no licence')\n",
    "slow": "import time\ntime.sleep(1.5)\n",
}


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """As an agent is: what loses its parent becomes its child."""
    keeper.prctl(keeper.PR_SET_CHILD_SUBREAPER, 1)
    yield
    keeper.prctl(keeper.PR_SET_CHILD_SUBREAPER, 0)


class World:
    """A node with two processes of its own, and all that its log has."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "train.py"
        self.script.write_text(SHOWS)
        for name, text in MODULES.items():
            (folder / f"{name}.py").write_text(text)
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RDZV_TOKEN": "a secret",
        }
        self.said: list[str] = []
        self.output = Recording()
        self.starts: list[WarmStart] = []

    def say(self, said: Notice) -> None:
        self.said.append(text_of(said))

    def warm(self, modules: str = "", processes: int | str = 2) -> WarmStart:
        wish = WarmWish("torchrun", [str(self.script)], modules, processes, GRACE)
        self.starts.append(WarmStart(wish, self.environ, in_background, self.say))
        return self.starts[-1]

    def contract(self, port: int | None = None, processes: int = 2) -> Contract:
        ranks = [
            {"RANK": f"{n}", "LOCAL_RANK": f"{n}", "LOCAL_WORLD_SIZE": f"{processes}"}
            for n in range(processes)
        ]
        variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": f"{port or 1}",
            "NNODES": "1",
            "NODE_RANK": "0",
        }
        threads = {"OMP_NUM_THREADS": "1"} if processes > 1 else {}
        forks = Forks([str(self.script)], threads, ranks)
        return Contract(
            ["torchrun", str(self.script)],
            variables,
            frozenset({"RDZV_TOKEN"}),
            forks=forks,
            port=port,
        )

    async def start(
        self, warm: WarmStart, contract: Contract | None = None, **changed: str
    ) -> Program | None:
        contract = contract or self.contract()
        env = {**contract.environment(self.environ), **changed}
        return await warm.start(contract.argv, env, output=self.output)

    async def outcome(self, warm: WarmStart, contract: Contract | None = None) -> Ending:
        contract = contract or self.contract()
        await warm.arm(contract)
        program = await self.start(warm, contract)
        assert program is not None, self.said
        return await program.wait()

    def lines(self) -> list[str]:
        return sorted(self.output.of("stdout").decode().splitlines())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = World(tmp_path)
    yield found
    for start in found.starts:
        await start.end()
    assert not [p for p in descendants(os.getpid()) if _is_of(p.pid, found.script)]


def _is_of(pid: int, script: Path) -> bool:
    try:
        return bytes(script) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def test_one_zygote_serves_one_epoch_after_the_other(world: World) -> None:
    warm = world.warm("loud")
    await warm.begin()
    assert len(world.said) == 1
    assert "torch is imported" in world.said[0]
    assert (await world.outcome(warm)).exit_code == 0
    assert world.lines() == ["rank 0", "rank 1"]
    # What the imports have printed is shown once.
    assert world.output.of("stderr") == b"a word on stdout\na warning\n"
    world.script.write_text(FAILS)
    ending = await world.outcome(warm)
    assert (ending.exit_code, ending.first_failure and ending.first_failure.rank) == (7, 1)
    assert world.lines() == ["rank 0", "rank 1", "told 0"]
    assert b"rdzv: process 1 (local rank 1) failed first, with exit code 7" in (
        world.output.of("stderr")
    )
    # The next epoch may be armed while the one before runs, and nothing of it is begun twice.
    await warm.begin()
    world.script.write_text(SHOWS)
    assert (await world.outcome(warm)).exit_code == 0
    assert len(world.said) == 1


@pytest.mark.nightly
async def test_masters_store_listens_once_armed_and_a_disarmed_one_does_not(world: World) -> None:
    warm = world.warm()
    await warm.begin()
    port = find_free(25_000)
    assert port is not None
    await warm.arm(world.contract(port))
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    await warm.disarm()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    world.script.write_text(
        "import os, torch.distributed as d\nd.init_process_group('gloo')\nd.barrier()\n"
        "print('met\\n', end='')\nd.destroy_process_group()\n"
    )
    contract = world.contract(port)
    forks = contract.forks
    assert forks is not None
    shared = {"WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [{**own, **shared} for own in forks.ranks]
    contract = replace(contract, forks=replace(forks, ranks=ranks))
    assert (await world.outcome(warm, contract)).exit_code == 0
    assert world.lines() == ["met", "met"]
    with socket.create_server(("127.0.0.1", port)):  # nothing of ours is there, but another is
        await warm.arm(world.contract(port))
        assert "MASTER_PORT's store" in world.said[-1]
        assert warm.gave_up
        program = await world.start(warm)
        assert program is not None
        assert (await program.wait()).exit_code == 1  # as torchrun does
    assert b"rdzv: MASTER_PORT's store: " in world.output.of("stderr")
    world.output = Recording()
    await warm.arm(contract)
    program = await world.start(warm, contract)
    assert program is not None
    assert (await program.wait()).exit_code == 0
    assert world.lines() == ["met", "met"]


async def test_a_stop_ends_each_process_and_nothing_is_left(world: World) -> None:
    warm = world.warm()
    await warm.begin()
    world.script.write_text(
        "import os, time\nprint(f'pid {os.getpid()}\\n', end='')\ntime.sleep(60)\n"
    )
    await warm.arm(world.contract())
    program = await world.start(warm)
    assert program is not None
    await soon(lambda: len(world.output.pids()) == 2)
    await soon(lambda: len([c for c in program.family.children if c.ranks]) == 2)
    assert (await program.stop()).exit_code == 143
    assert not any(Path(f"/proc/{pid}").exists() for pid in world.output.pids())


async def test_the_environment_of_a_process_is_that_of_the_go(world: World) -> None:
    warm = world.warm()
    await warm.begin()
    world.script.write_text(
        "import os\nprint(*[os.environ.get(n) for n in ('NCCL_DEBUG', 'RDZV_TOKEN', 'LOCAL_RANK')],"
        "flush=True)\n"
    )
    contract = world.contract(processes=1)
    assert contract.forks is not None
    contract = replace(contract, forks=replace(contract.forks, variables={"OMP_NUM_THREADS": "1"}))
    await warm.arm(contract)
    program = await world.start(warm, contract, NCCL_DEBUG="INFO")
    assert program is not None
    await program.wait()
    assert world.lines() == ["INFO None 0"]


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        ("no_such", "the import of no_such failed with ModuleNotFoundError: No module named"),
        at_night("ending", "the import of ending failed with SystemExit: no licence"),
        ("threaded", "the imports have left 1 threads running"),
    ],
)
async def test_what_is_not_fit_to_be_forked_is_not(world: World, modules: str, why: str) -> None:
    warm = world.warm(modules)
    await warm.begin()
    assert len(world.said) == 1
    assert why in world.said[0]
    world.script.write_text(SAYS_WHOSE)
    for processes in (2, 1):
        contract = world.contract(processes=processes)
        world.output = Recording()
        assert not await warm.arm(contract)
        program = await world.start(warm, contract)
        assert program is not None
        assert (await program.wait()).exit_code == 0
        assert world.lines() == [f"rank {n} of spawner.py" for n in range(processes)]
    await warm.begin()  # once is enough
    assert len(world.said) == 1


async def test_what_was_forked_goes_on_without_a_zygote_that_is_killed(world: World) -> None:
    """And the next epoch has another."""
    warm = world.warm()
    await warm.begin()
    zygote = warm._zygote
    assert zygote is not None
    await warm.arm(world.contract())
    os.kill(zygote.pid, signal.SIGKILL)
    await soon(lambda: not zygote.lives)
    world.script.write_text(SAYS_WHOSE)
    program = await world.start(warm)
    assert program is not None
    assert (await program.wait()).exit_code == 0
    assert world.lines() == ["rank 0 of zygote.py", "rank 1 of zygote.py"]
    await warm.begin()
    assert warm._zygote is not zygote


async def test_a_program_that_waits_for_the_imports_is_left_alone(world: World) -> None:
    """Though the run has gone on meanwhile, and forks nothing any more."""
    warm = world.warm("slow")
    beginning = asyncio.create_task(warm.begin())
    await soon(lambda: warm._zygote is not None)
    await warm.arm(world.contract())
    starting = asyncio.create_task(world.start(warm))
    await asyncio.sleep(0)
    warm.give_up(FIRST_FAILED)
    program = await starting
    assert program is not None
    assert (await program.wait()).exit_code == 0
    await beginning


async def test_a_process_that_was_not_forked_is_seen_through_as_one_that_was(world: World) -> None:
    """One that fails ends the others, which are told once, and its code is the program's."""
    warm = world.warm("no_such")
    await warm.begin()
    world.script.write_text(FAILS)
    ending = await world.outcome(warm)
    assert (ending.exit_code, ending.first_failure and ending.first_failure.rank) == (7, 1)
    assert world.lines() == ["told 0"]
    assert b"rdzv: process 1 (local rank 1) failed first, with exit code 7" in (
        world.output.of("stderr")
    )
    world.output = Recording()
    world.script.write_text(
        "import os, time\nprint(f'pid {os.getpid()}\\n', end='', flush=True)\ntime.sleep(60)\n"
    )
    await warm.arm(world.contract())
    program = await world.start(warm)
    assert program is not None
    await soon(lambda: len(world.output.pids()) == 2)
    assert (await program.stop()).exit_code == 143
    assert not any(Path(f"/proc/{pid}").exists() for pid in world.output.pids())
