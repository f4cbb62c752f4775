"""What a person is shown of the nodes' machines, in words and by `rdzv status RUN --machines`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from features.machines import FILE, TOPIC, view
from features.machines.facts import machine_facts, machine_lines
from features.machines.wire import GpuSample, MachineSample, NodeMachine, RunMachines
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.node import Facts, RdmaPort
from tests.launcher.command import launched, rdzv
from tests.launcher.test_run_list import BEGAN, OVER, made

GIB = 1 << 30
NOTHING = Facts()
PORTS = [
    RdmaPort(device=f"mlx5_{n}", link_layer="InfiniBand", rate_gbps=400.0, problem=problem)
    for n, problem in enumerate(["", "", "its state is DOWN"])
]
FACTS = Facts(
    rdzv_version="1.2",
    python_version="3.12.3",
    torch_version="2.9.0",
    cuda_version="12.8",
    nccl_version="2.27.5",
    driver_version="570.86",
    gpus=8,
    gpu_models=["NVIDIA H100 80GB HBM3"] * 8,
    cpus=192,
    rdma=PORTS,
)
GPUS = [
    GpuSample(
        index=n,
        memory_used={3: 71, 6: 75}.get(n, 60) * GIB,
        memory_total=(140 if n == 6 else 80) * GIB,
        utilisation=90 + (5 * n + 2) % 8,
        temperature=53 + 3 * n % 8,
    )
    for n in range(8)
]
SAMPLE = MachineSample(
    load=12.5,
    memory_used=round(12.34 * GIB),
    memory_limit=64 * GIB,
    memory_total=2015 * GIB,
    memory_available=1900 * GIB,
    disk_free=48 * GIB,
    disk_total=20 << 40,
    shm_free=63 << 20,
    shm_total=64 << 20,
    gpus=GPUS,
)
NODE = NodeMachine(slot=2, node=1, hostname="gpu-17", facts=FACTS, sample=SAMPLE, age=4.2)


def test_all_that_is_known_is_said_in_words() -> None:
    assert machine_facts(NODE) == [
        ["CPUs", "192, load 12.5"],
        ["memory", "12.3 of 64 GiB (its control group's limit)"],
        ["disk of the logs", "48 GiB of 20 TiB free"],
        ["shared memory", "63 of 64 MiB free"],
        ["GPUs", "8 x NVIDIA H100 80GB HBM3"],
        ["GPU memory", "71 of 80 GiB on the fullest (GPU 3)"],
        ["GPU utilisation", "90 to 97 %"],
        ["GPU temperature", "60 °C at most (GPU 5)"],
        ["RDMA", "2 x 400 Gb/sec InfiniBand"],
        ["RDMA", "not mlx5_2:1 (its state is DOWN)"],
        ["software", "torch 2.9.0, CUDA 12.8, NCCL 2.27.5, driver 570.86, Python 3.12.3, rdzv 1.2"],
        ["as of", "4.2 s ago"],
    ]


def in_words(facts: Facts = NOTHING, **sample: Any) -> dict[str, str]:
    """What is said of a node with this sample."""
    node = NodeMachine(slot=0, facts=facts, sample=MachineSample(**sample))
    return {name: words for name, words in machine_facts(node)}  # noqa: C416 (lists of two)


@pytest.mark.parametrize(
    ("sample", "name", "words"),
    [
        ({"memory_used": 12 * GIB, "memory_total": 2015 * GIB}, "memory", "12 of 2015 GiB"),
        ({"gpus": GPUS[:1]}, "GPU memory", "60 of 80 GiB"),
        ({"gpus": GPUS[:1]}, "GPU utilisation", "92 %"),
        ({"gpus": GPUS[:1]}, "GPU temperature", "53 °C"),
        ({"gpus": [GpuSample(index=1, problem="lost")]}, "GPU trouble", "GPU 1: lost"),
        ({"gpu_problem": "NVML: no answer"}, "GPU trouble", "NVML: no answer"),
        ({}, "GPUs", "none"),
        ({}, "CPUs", "load 0"),
    ],
)
def test_each_part_has_its_words(sample: dict[str, Any], name: str, words: str) -> None:
    assert in_words(**sample)[name] == words


def test_gpus_whose_models_nobody_knows_are_counted() -> None:
    assert in_words(Facts(gpus=2))["GPUs"] == "2"


def test_of_a_node_that_has_told_nothing_the_facts_are_shown() -> None:
    found = NodeMachine(slot=0, hostname="h", facts=Facts(cpus=4, rdzv_version="1.2"))
    why = "not reported: its program has not started, or --stall is off"
    assert list(machine_lines(found)) == [
        "slot 0 (h)",
        "  CPUs              4",
        "  GPUs              none",
        "  software          rdzv 1.2",
        f"  as of             {why}",
    ]


# --- rdzv status ----------------------------------------------------------------------------------


def test_after_the_run_its_machines_are_still_known(tmp_path: Path) -> None:
    state = launched(tmp_path)
    kept = RunMachines(machines=[NODE, NodeMachine(slot=3, hostname="gpu-18")])
    state.write(FILE, kept.model_dump_json(exclude_defaults=True).encode())
    shown = rdzv("status", "llama", "--machines", state=tmp_path)
    lines = shown.stdout.splitlines()
    assert (shown.exit_code, lines[0]) == (0, "node 1 (gpu-17, slot 2)")
    assert "  memory            12.3 of 64 GiB (its control group's limit)" in lines
    assert "slot 3 (gpu-18)" in lines
    told = rdzv("status", "llama", "--machines", "--json", state=tmp_path).stdout
    assert RunMachines.model_validate_json(told) == kept


def test_where_nothing_is_known_that_is_said(tmp_path: Path) -> None:
    state = launched(tmp_path)
    shown = rdzv("status", "llama", "--machines", state=tmp_path)
    assert shown.exit_code == ExitCode.USAGE
    assert "nothing is known of the machines of run 'llama': " in shown.stderr
    needs = "rdzv: --machines needs a RUN\n      rdzv status RUN --machines\n"
    assert rdzv("status", "--machines", state=tmp_path).stderr == needs
    state.write(FILE, b"{}")
    shown = rdzv("status", "llama", "--machines", state=tmp_path)
    assert (shown.exit_code, shown.stdout) == (0, "no node of run 'llama' has joined\n")
    state.forget_launch()
    assert not (state.path / FILE).exists()


def test_it_is_shown_beside_the_other_views_that_were_asked_for(tmp_path: Path) -> None:
    made(tmp_path, "r", BEGAN, OVER)
    views = ("status", "r", "--epochs", "--machines")
    shown = rdzv(*views, state=tmp_path)
    assert shown.stdout == "failed: no torchrun\n\n"
    assert "nothing is known of the machines of run" in shown.stderr
    refused = rdzv(*views, "--json", state=tmp_path)
    assert refused.stderr == (
        "rdzv: --json prints one JSON document, and --epochs and --machines ask for 2\n"
        "      ask for one at a time: rdzv status r --epochs --json\n"
    )
    unnamed = rdzv("status", "--epochs", "--machines", state=tmp_path).stderr
    assert unnamed == (
        "rdzv: --epochs and --machines need a RUN\n      rdzv status RUN --epochs --machines\n"
    )


async def test_of_a_run_in_progress_its_registry_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = RunMachines(machines=[NODE])

    class Client:
        async def topic(self, topic: object, run: str) -> RunMachines:
            assert (topic, run) == (TOPIC, "llama")
            return known

    @asynccontextmanager
    async def registry_of(_: object) -> AsyncIterator[Client]:
        yield Client()

    monkeypatch.setattr(view, "registry_of", registry_of)
    state = launched(tmp_path)
    state.write(FILE, RunMachines().model_dump_json().encode())  # what was kept is older
    assert await view.machines_of(state) is known
