"""People are shown a run's machines as in `courses.txt`.

Who changes that writes the file anew (`make reference`), and reads in the diff what else has
changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from features.machines import FILE, view
from features.machines.wire import GpuSample, MachineSample, NodeMachine, RunMachines
from rendezvous.wire.node import Facts, RdmaPort
from tests.launcher.test_status_courses import GONE, Course, course
from tests.support.courses import Told, lines_in, text_of

GIB = 1 << 30
KNOWN = Path(__file__).with_name("courses.txt")
MACHINE_FACTS = Facts(
    rdzv_version="1.2",
    python_version="3.12.3",
    torch_version="2.9.0",
    nccl_version="2.27.5",
    cpus=96,
    gpus=3,
    gpu_models=["H100", "A100", "H100"],
    rdma=[
        RdmaPort(device="mlx5_0", link_layer="InfiniBand", rate_gbps=400.0, hca_type="MT4129"),
        RdmaPort(device="mlx5_1", link_layer="Ethernet", rate="25 Gb/sec (1X EDR)"),
        RdmaPort(device="mlx5_2", link_layer="InfiniBand", rate_gbps=400.0, hca_type="MT4129"),
        RdmaPort(device="mlx5_3", port=2, link_layer="Unknown", problem="its state is DOWN"),
        RdmaPort(device="mlx5_4", link_layer="Unknown", problem="its state is DOWN"),
        RdmaPort(device="rdmap5", link_layer="Unknown"),
    ],
)
SAMPLE = MachineSample(
    load=7.25,
    memory_used=3 * GIB // 2,
    memory_limit=5 * GIB,
    memory_total=700 * GIB,
    memory_available=600 * GIB,
    disk_free=900 << 20,
    disk_total=11 << 40,
    shm_free=63 << 20,
    shm_total=GIB,
    gpus=[
        GpuSample(index=5, memory_used=30 * GIB, memory_total=40 * GIB, utilisation=9),
        GpuSample(index=2, memory_used=50 * GIB, memory_total=80 * GIB, temperature=71),
        GpuSample(index=7, utilisation=88, temperature=83, problem="fallen off the bus"),
    ],
    gpu_problem="NVML: unknown error",
)
BARE = MachineSample(load=0.5, memory_used=2 * GIB, memory_total=9 * GIB, disk_total=5 * GIB)
MACHINES_OF = RunMachines(
    machines=[
        NodeMachine(slot=4, node=1, hostname="gpu-7", facts=MACHINE_FACTS, sample=SAMPLE, age=75.0),
        NodeMachine(slot=1, hostname="gpu-4", facts=Facts(gpus=2)),
        NodeMachine(slot=0, node=2, hostname="gpu-9", sample=BARE),
    ]
)


def its_machines(made: Course) -> None:
    """Of the registry, narrow and wide; kept; not at all."""
    asker, root = made.asker, made.asker.root
    made.folds(view)
    made.answers(GET_machines=MACHINES_OF)
    for made.width in (None, 50):
        asker.asks("machines", view.show_machines(root, "llama", as_json=False))
    asker.asks("machines as JSON", view.show_machines(root, "llama", as_json=True))
    made.answers(GET_machines=RunMachines())
    asker.asks("machines", view.show_machines(root, "llama", as_json=False))
    made.answers(GET_machines=GONE)
    asker.asks("machines", view.show_machines(root, "llama", as_json=False))
    made.keep(FILE, RunMachines(machines=MACHINES_OF.machines[1:2]))
    asker.asks("machines", view.show_machines(root, "llama", as_json=False))


COURSES: dict[str, Callable[[], Told]] = {"its_machines": course(its_machines)}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_shown(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
