"""What is told of GPUs: of values, and of a driver that behaves as it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rendezvous.wire.evidence import Fact
from tests.support import fake_drivers
from worker.evidence.devices import gpu_facts, look_devices
from worker.machine.gpus import Gpu


def told(path: str, words: str, value: float = 0.0) -> Fact:
    return Fact(kind="gpu", path=path, words=words, value=value)


def test_what_is_wrong_with_a_gpu_is_told() -> None:
    gpus = [
        Gpu(0, uuid="GPU-0", ecc_errors=0, throttled=0x4 | 0x1),  # idle, and its power is capped
        Gpu(1, uuid="GPU-1", ecc_errors=2, throttled=0x8 | 0x40 | 0x20),
        Gpu(2, problem="GPU is lost"),
        Gpu(3, uuid="GPU-3", recovery="to reset the GPU"),
        Gpu(4, problem="Insufficient Permissions", is_foreign=True),
    ]
    assert gpu_facts(gpus) == [
        told("GPU-1", "ecc", 2.0),
        told("GPU-1", "throttled", 72.0),
        told("GPU 2", "GPU is lost"),
        told("GPU-3", "the driver asks to reset the GPU"),
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with NVIDIA's device."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").symlink_to(os.devnull)
    return tmp_path


def test_a_driver_is_asked(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    fake_drivers.install("nvml.c", "libnvidia-ml.so.1", tmp_path / "lib", monkeypatch)
    monkeypatch.setenv("FAKE_NVML", "ok ecc=2 lost throttled=128 old")
    assert look_devices(20.0, root) == [
        told("GPU-00000001", "ecc", 2.0),
        told("GPU 2", "GPU is lost"),
        told("GPU-00000003", "throttled", 128.0),
    ]
    monkeypatch.setenv("FAKE_NVML", "hang")
    assert look_devices(0.3, root) == []


def test_a_machine_without_its_device_is_not_asked(tmp_path: Path) -> None:
    assert look_devices(0.0, tmp_path) == []
