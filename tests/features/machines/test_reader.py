"""What is read of a machine: on trees of both versions of control groups, and on this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from features.machines import reader as module
from features.machines.reader import MachineReader
from features.machines.wire import GpuSample, MachineSample
from tests.support import fake_drivers
from tests.worker.evidence.test_look import control_group
from worker.evidence.control_groups import MEMORY, limited_memory
from worker.machine.gpus import Gpu, Gpus
from worker.machine.groups import droppable_in

V2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "33 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
MEMINFO = "MemTotal:        64000 kB\nMemFree:          900 kB\nMemAvailable:    40000 kB\n"
KB = 1024


class Tree:
    """A machine's files."""

    def __init__(self, root: Path, mounts: str, groups: str) -> None:
        self.root = root
        self.write("proc/self/mountinfo", mounts)
        self.write("proc/self/cgroup", groups)
        self.write("proc/meminfo", MEMINFO)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def group(self, path: str, **files: object) -> None:
        """A group, with these files of its memory."""
        for name, value in files.items():
            self.write(f"sys/fs/cgroup/{path}/memory.{name}", f"{value}\n")

    def read(self, environ: dict[str, str] | None = None) -> MachineSample:
        return MachineReader(self.root, environ or {}, self.root).read()

    def memory(self) -> tuple[int, int, int, int]:
        found = self.read()
        whole = found.memory_total, found.memory_available
        return found.memory_used, found.memory_limit, *whole


OF_MACHINE = 64000 * KB, 40000 * KB


def test_the_narrowest_limit_of_its_groups_counts_without_what_can_be_dropped(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path, V2, "0::/pod/agent\n")
    tree.group("pod/agent", max="max", current=100 * KB, stat="inactive_file 10240")
    tree.group("pod", max=500 * KB, current=300 * KB, stat="file 1\ninactive_file 20480")
    assert tree.memory() == (280 * KB, 500 * KB, *OF_MACHINE)
    tree.group("pod/agent", max=400 * KB)
    assert tree.memory() == (90 * KB, 400 * KB, *OF_MACHINE)


def test_in_version_1_a_groups_total_counts(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V1, "4:memory:/job\n")
    stat = f"inactive_file 0\ntotal_inactive_file {50 * KB}"
    tree.group("memory/job", limit_in_bytes=900 * KB, usage_in_bytes=250 * KB, stat=stat)
    tree.group("memory", limit_in_bytes=9223372036854771712, usage_in_bytes=800 * KB)
    assert tree.memory() == (200 * KB, 900 * KB, *OF_MACHINE)
    assert droppable_in("") == 0


@pytest.mark.parametrize("limit", ["max", 64000 * KB])
def test_without_a_limit_that_can_be_met_it_is_the_machines(tmp_path: Path, limit: object) -> None:
    tree = Tree(tmp_path, V2, "0::/pod\n")
    tree.group("pod", max=limit, current=100 * KB)
    assert tree.memory() == (24000 * KB, 0, *OF_MACHINE)


def test_a_machine_that_tells_nothing_has_nothing(tmp_path: Path) -> None:
    found = MachineReader(tmp_path / "logs", {}, tmp_path / "nowhere").read()
    assert found.model_copy(update={"load": 0.0}) == MachineSample()


# --- disks ----------------------------------------------------------------------------------------


def test_a_disk_that_hangs_is_unknown_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, asked = threading.Event(), list[Path]()

    def space(folder: Path) -> tuple[int, int]:
        if folder != tmp_path / "logs":
            return 1, 2
        asked.append(folder)
        let_go.wait(20)
        return 30, 40

    monkeypatch.setattr(module, "_DISK_SECONDS", 0.05)
    monkeypatch.setattr(module, "_space", space)
    reader = MachineReader(tmp_path / "logs", {}, tmp_path)
    for _ in range(2):
        found = reader.read()
        assert (found.disk_free, found.disk_total, found.shm_free) == (0, 0, 1)
    assert len(asked) == 1
    let_go.set()
    monkeypatch.setattr(module, "_DISK_SECONDS", 20.0)
    assert reader.read().disk_total == 40
    assert reader.read().disk_total == 40
    assert len(asked) == 2


# --- GPUs -----------------------------------------------------------------------------------------


@pytest.fixture
def with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A machine with NVIDIA's device, and an NVML that is told its GPUs."""
    pytest.importorskip("pynvml")
    fake_drivers.install("nvml.c", "libnvidia-ml.so.1", tmp_path / "lib", monkeypatch)
    tree = Tree(tmp_path / "root", V2, "0::/\n")
    (tree.root / "dev").mkdir()
    (tree.root / "dev/nvidiactl").symlink_to(os.devnull)
    return tree


def test_of_each_gpu_its_memory_use_and_temperature_are_read(
    with_gpus: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML", "used=60 lost old mig=2")
    size = 80 << 30
    full = GpuSample(
        index=0, memory_used=60 << 30, memory_total=size, utilisation=60, temperature=60
    )
    assert with_gpus.read().gpus == [
        full,
        GpuSample(index=1, problem="GPU is lost"),
        GpuSample(index=2),
        GpuSample(index=3, memory_total=size, temperature=30),
    ]
    assert with_gpus.read({"CUDA_VISIBLE_DEVICES": "0"}).gpus == [full]


def test_a_driver_that_does_not_answer_is_named(
    with_gpus: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML", "hang")
    monkeypatch.setattr(module, "_GPU_SECONDS", 0.3)
    found = with_gpus.read()
    assert (found.gpus, found.gpu_problem) == ([], "NVML: no answer within 0.3 s")
    assert found.memory_total == 64000 * KB


def test_whatever_a_driver_says_fits_into_a_message(
    with_gpus: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [
        Gpu(n, memory_used=-1, memory_total=1 << 70, utilisation=999, temperature=-999)
        for n in range(100)
    ]
    foreign = Gpu(100, problem="Insufficient Permissions", is_foreign=True)
    monkeypatch.setattr(module, "look_gpus", lambda *_: Gpus(gpus=(foreign, *odd), problem="a\nb"))
    found = with_gpus.read()
    assert len(found.model_dump_json()) < 32 << 10
    assert (len(found.gpus), found.gpus[0].utilisation, found.gpu_problem) == (64, 100, "a?b")
    assert MachineSample.model_validate_json(found.model_dump_json()) == found


# --- on this machine ------------------------------------------------------------------------------


def test_this_machine_is_read_in_few_milliseconds_of_cpu(tmp_path: Path) -> None:
    reader = MachineReader(tmp_path, os.environ, Path("/"))
    found = reader.read()
    assert 0 < found.memory_available <= found.memory_total
    assert found.memory_used > 0
    assert 0 < found.disk_free <= found.disk_total
    if (Path("/dev/nvidiactl")).exists():
        pytest.skip("this machine has GPUs, whose driver takes its time")
    costs = []
    for _ in range(20):
        began = time.process_time()
        reader.read()
        costs.append(time.process_time() - began)
    assert min(costs) < 0.005  # 0.7 ms on a slow and quiet machine


EAT = """
import json, os, sys
open(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))
from pathlib import Path
from features.machines.reader import MachineReader
held = bytearray(30 << 20)
print(MachineReader(Path('/'), {}).read().model_dump_json())
"""


@pytest.mark.parametrize(("high", "limit"), [("300", 300), ("max", 800), ("900", 800)])
def test_what_a_group_may_use_without_being_held_back_is_its_limit(
    tmp_path: Path, high: str, limit: int
) -> None:
    (tmp_path / "pod").mkdir()
    for name, text in {"max": "800", "high": high, "current": "250"}.items():
        (tmp_path / "pod" / f"memory.{name}").write_text(f"{text}\n")
    assert limited_memory(("/pod",), tmp_path) == (250, limit)


def test_a_real_limit_is_read_with_what_is_used_of_it() -> None:
    with control_group(MEMORY, 400 << 20) as folder:
        argv = [sys.executable, "-c", EAT, str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    found = MachineSample.model_validate(json.loads(done.stdout))
    assert found.memory_limit == 400 << 20
    assert 30 << 20 < found.memory_used < 400 << 20
