"""Which worlds a rank has been in: what the hook notes in a process, and what is read of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rendezvous.wire.world import MAX_WORLDS, RankWorld
from worker.contracts.framework import HOOK
from worker.look.site import sitecustomize
from worker.look.worlds import read_worlds, worlds_in

C10D = """
class Group:
    def __init__(self, rank, size): self.of = rank, size
    def rank(self): return self.of[0]
    def size(self): return self.of[1]
class _World:
    def __init__(self): self._default_pg = None
    @property
    def default_pg(self): return self._default_pg
    @default_pg.setter
    def default_pg(self, group): self._default_pg = group
_world = _World()
def init(rank, size): _world.default_pg = Group(rank, size)
def destroy(): _world.default_pg = None
"""
"""What torch keeps its default group in, since 2.0."""
JAX = """
class State:
    process_id, num_processes, client, preemption_sync_manager = 0, 1, None, None
    def initialize(self, rank, size):
        self.process_id, self.num_processes, self.client = rank, size, object()
        connect()
        self.preemption_sync_manager = object()
    def shutdown(self): self.preemption_sync_manager = self.client = None
def connect(): pass
global_state = State()
"""
FILES = {
    "torch/__init__.py": "",
    "torch/distributed/__init__.py": "from .distributed_c10d import *\nfrom . import remote_device",
    "torch/distributed/distributed_c10d.py": C10D,
    "torch/distributed/remote_device.py": "",
    "jax/__init__.py": "from jax._src import distributed\nfrom jax._src import later",
    "jax/_src/__init__.py": "",
    "jax/_src/distributed.py": JAX,
    "jax/_src/later.py": "",
    "horovod.py": "",
}
TORCH = "import torch.distributed as dist\n"
BOTH = f"import jax, os\n{TORCH}from jax._src.distributed import global_state as j\n"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a torch and a jax, as far as worlds go."""
    folder = tmp_path_factory.mktemp("libraries")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def noted(libraries: Path, folder: Path, code: str, **more: str) -> tuple[RankWorld, ...]:
    """What is noted of local rank 1 by a program, which sees nothing of it."""
    (folder / sitecustomize.STREAMS_FILE).write_text("1:2 3:4\nLOCAL_RANK\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_", "RDZV_"))}
    rank = {"LOCAL_RANK": "1", sitecustomize.FOLDER_VARIABLE: str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**kept, **rank, "PYTHONPATH": f"{HOOK}:{libraries}", **more},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return read_worlds(folder, 10, 2)


def world(size: int, *places: int, library: str = "torch", whole: bool = False) -> RankWorld:
    """Of rank 11, which is local rank 1 there."""
    return RankWorld(rank=11, library=library, size=size, places=list(places), whole=whole)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (TORCH, ()),
        (f"{TORCH}dist.init(3, 4)", (world(4, 3),)),
        (f"{TORCH}dist.init(0, 1); dist.destroy()", (world(1, 0, whole=True),)),
        (
            f"{TORCH}dist.init(0, 1); dist.destroy(); dist.init(1, 2); dist.init(0, 2)",
            (world(1, 0, whole=True), world(2, 0, 1)),
        ),
        ("import jax", ()),
        (f"{BOTH}j.initialize(2, 4); j.shutdown()", (world(4, 2, library="jax"),)),
        (
            f"{BOTH}j.initialize(0, 1); dist.init(1, 2)",
            (world(1, 0, library="jax", whole=True), world(2, 1)),
        ),
        # A process that it starts, by a fork and by a program, takes part.
        (f"{BOTH}os.fork(); dist.init(5, 8)", (world(8, 5),)),
        (
            "import os\nchild = os.fork()\n" + TORCH + "dist.init(1 if child else 0, 2)\n"
            "child and os.waitpid(child, 0)",
            (world(2, 0, 1, whole=True),),
        ),
        (
            (
                "import subprocess, sys\n"
                f"subprocess.run([sys.executable, '-c', {TORCH!r} + 'dist.init(6, 8)'])"
            ),
            (world(8, 6),),
        ),
        # Another library is there whose worlds cannot be seen.
        (f"import horovod\n{TORCH}dist.init(0, 1)", ()),
        # What is not as expected is left.
        (f"{TORCH}dist.distributed_c10d._world = 3\ndist.init = 1", ()),
        (f"{TORCH}dist.init('a', None); dist.init(3, 2); dist.init(0, 1 << 30)", ()),
        (
            (
                f"{TORCH}import os, shutil\nshutil.rmtree(os.environ['RDZV_LOOK_FOLDER'])\n"
                "dist.init(0, 1)"
            ),
            (),
        ),
    ],
)
def test_each_world_is_noted_when_it_is_formed(
    code: str, found: tuple[RankWorld, ...], libraries: Path, tmp_path: Path
) -> None:
    assert noted(libraries, tmp_path, code) == found


def test_a_connection_that_fails_is_no_world(libraries: Path, tmp_path: Path) -> None:
    code = (
        f"{BOTH}import jax._src.distributed as d\n"
        "def fails(): raise SystemExit(0)\nd.connect = fails\nj.initialize(0, 1)"
    )
    assert noted(libraries, tmp_path, code) == ()


def test_the_object_stays_what_it_was_for_the_program(libraries: Path, tmp_path: Path) -> None:
    code = (
        f"{TORCH}from torch.distributed import distributed_c10d as d\n"
        "assert isinstance(d._world, d._World) and type(d._world).__name__ == '_World'\n"
        "assert type(d._world).__module__ == d.__name__ and d._world.default_pg is None\n"
        "dist.init(0, 2)\nassert vars(d._world).keys() == {'_default_pg'}"
    )
    assert noted(libraries, tmp_path, code) == (world(2, 0),)


def test_one_process_notes_so_many_and_no_more(libraries: Path, tmp_path: Path) -> None:
    code = f"{TORCH}for size in range(1, 200): dist.init(0, size)"
    assert len(noted(libraries, tmp_path, code)) == 64


def test_without_a_local_rank_nothing_is_noted(libraries: Path, tmp_path: Path) -> None:
    assert noted(libraries, tmp_path, f"{TORCH}dist.init(0, 1)", LOCAL_RANK="") == ()


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["1.world.torch.1.0.77"], True),
        (["1.world.torch.1.0.77", "1.world.torch.1.0.78"], True),
        (["1.world.torch.2.0.77", "1.world.torch.2.1.78"], True),
        (["1.world.torch.2.0.77"], False),
        (["1.world.torch.2.0.77", "1.world.torch.2.1.77"], False),  # one process, one after another
        (["1.world.torch.2.0.77", "1.world.torch.2.1.78", "1.world.torch.2.1.79"], False),
        (["1.world.torch.4.0.77", "1.world.torch.4.1.78"], False),
    ],
)
def test_a_world_is_whole_where_its_processes_are_all_of_one_rank(
    names: list[str], whole: bool
) -> None:
    [found] = worlds_in(names, 10, 2)
    assert (found.rank, found.whole) == (11, whole)


def test_other_names_and_other_ranks_are_left_out() -> None:
    names = ["streams", "0.here", "0.world", "0.world.torch.2.2.7", "2.world.torch.2.0.7"]
    names += ["0.world.torch.2.0.7x", "-1.world.torch.2.0.7", "0.world.a b.2.0.7"]
    assert worlds_in(names, 0, 2) == ()


def test_a_node_with_too_many_tells_of_none() -> None:
    names = [f"0.world.torch.{size}.0.7" for size in range(1, MAX_WORLDS + 2)]
    assert len(worlds_in(names[1:], 0, 1)) == MAX_WORLDS
    assert worlds_in(names, 0, 1) == ()


def test_where_there_is_no_folder_there_are_none(tmp_path: Path) -> None:
    assert read_worlds(tmp_path / "none", 0, 1) == ()
