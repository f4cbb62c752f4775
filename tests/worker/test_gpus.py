"""What `worker.machine.gpus` makes of what a driver says, and of drivers that say nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import fake_drivers
from worker.machine import nvml
from worker.machine.gpus import Gpu, Gpus, Severity, hidden_gpus, look_gpus, uuids_of, visible_gpus


def h100(index: int) -> Gpu:
    model, uuid = "NVIDIA H100 80GB HBM3", f"GPU-{index:08x}"
    return Gpu(index, model=model, uuid=uuid, ecc_errors=0, throttled=0, fabric="completed")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give this machine GPUs, a word for each; see drivers/nvml.c."""
    pytest.importorskip("pynvml")
    fake_drivers.install("nvml.c", "libnvidia-ml.so.1", tmp_path / "lib", monkeypatch)
    return lambda words: monkeypatch.setenv("FAKE_NVML", words)


LOST = Gpu(1, problem="GPU is lost")
UNTOLD = Gpu(0, model="NVIDIA H100 80GB HBM3", uuid="GPU-00000000")


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("ok ok", Gpus("570.86.15", (h100(0), h100(1)))),
        ("ok lost ok", Gpus("570.86.15", (h100(0), LOST, h100(2)))),  # it hides no other
        ("old", Gpus("570.86.15", (UNTOLD,))),
        ("error=18", Gpus(problem="NVML: RM has detected an NVML/RM version mismatch.")),
        ("ok hang", Gpus(problem="NVML: no answer within 0.5 s", is_late=True)),
    ],
)
def test_gpus_are_told_with_their_driver_or_why_they_are_not(
    driver: Callable[[str], None], words: str, seen: Gpus
) -> None:
    driver(words)
    assert look_gpus(limit_seconds=0.5 if "hang" in words else 10.0) == seen


@pytest.mark.parametrize(
    ("words", "problem", "severity"),
    [
        ("recovery=1", "the driver asks to reset the GPU", "fail"),
        ("recovery=2", "the driver asks to restart the node", "fail"),
        ("failed", "a bad row of its memory could not be replaced", "fail"),
        ("fabric=1", "joining its NVSwitch fabric: not started", "fail"),
        ("fabric=2", "joining its NVSwitch fabric: in progress", "fail"),
        ("pending", "a bad row of its memory is replaced at its next reset", "warn"),
        ("ecc=2", "2 uncorrected memory errors", "warn"),
    ],
)
def test_the_gpu_that_is_sick_is_named(
    driver: Callable[[str], None], words: str, problem: str, severity: Severity
) -> None:
    driver(f"ok {words} ok")
    seen = look_gpus(10.0)
    assert seen.problems == [(1, problem, severity)]
    assert seen.count == 3


def test_a_lost_gpu_is_sick_and_does_not_count_and_one_that_tells_no_health_is_sound() -> None:
    seen = Gpus(gpus=(UNTOLD, LOST, h100(2)))
    assert (seen.count, seen.problems) == (2, [(1, "GPU is lost", "fail")])


def test_a_machine_without_a_driver_has_no_gpus_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pynvml")
    (tmp_path / "libnvidia-ml.so.1").write_text("no library\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert look_gpus(10.0) == Gpus(problem="NVML: NVML Shared Library Not Found", is_absent=True)


def test_a_gpu_in_slices_tells_those_that_may_be_used(driver: Callable[[str], None]) -> None:
    driver("ok mig=2 mig=0")
    gpus = look_gpus(10.0).gpus
    assert [gpu.slices for gpu in gpus] == [None, ("MIG-1-0", "MIG-1-2"), ()]
    assert uuids_of(gpus) == ["GPU-00000000", "MIG-1-0", "MIG-1-2"]


THIRD = Gpu(2, problem="GPU is lost")
FOUR = Gpus(gpus=(Gpu(0, uuid="GPU-aa01"), Gpu(1, uuid="GPU-bb02"), THIRD, Gpu(3, uuid="GPU-cc03")))


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        *(("", []), ("1, 3", [1, 3]), ("2", [2]), ("GPU-b", [1])),
        *(("-1", []), ("none", []), ("0,-1", [0])),
        ("GPU-aa,MIG-x", [0, 2]),  # the lost one may be that of the slice
    ],
)
def test_the_program_sees_the_gpus_that_cuda_is_told(words: str, seen: list[int]) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": words, "NVIDIA_VISIBLE_DEVICES": "0"}
    assert [gpu.index for gpu in visible_gpus(FOUR, environ)] == seen
    assert hidden_gpus(FOUR, environ) == {0, 1, 2, 3} - set(seen)
    assert visible_gpus(None, environ) == []
    assert hidden_gpus(None, environ) == set()


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        *((words, [0, 1, 2, 3]) for words in (None, "all", "void", "")),
        *(("0,3", [0, 3]), ("GPU-bb02,GPU-cc03", [1, 3])),
        *(("4,5,6,7", [0, 1, 2, 3]), ("3,4,5,6", [0, 1, 2, 3])),  # the host's numbers
    ],
)
def test_without_cudas_word_a_containers_gpus_are_seen(words: str | None, seen: list[int]) -> None:
    environ = {} if words is None else {"NVIDIA_VISIBLE_DEVICES": words}
    assert [gpu.index for gpu in visible_gpus(FOUR, environ)] == seen


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"])
def test_of_a_gpu_in_slices_those_that_are_named_are_told(name: str) -> None:
    gpus = Gpus(gpus=(Gpu(0, uuid="GPU-aa01", slices=("MIG-1", "MIG-2", "MIG-3")),))
    assert uuids_of(visible_gpus(gpus, {name: "MIG-2"})) == ["MIG-2"]
    assert uuids_of(visible_gpus(gpus, {name: "MIG-GPU-aa01/3/0"})) == []
    assert uuids_of(visible_gpus(gpus, {name: "0"})) == ["MIG-1", "MIG-2", "MIG-3"]


def test_where_nothing_can_ask_the_driver_that_is_no_failure_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml.main("health")
    words = "the package nvidia-ml-py is not installed"
    assert json.loads(capsys.readouterr().out) == {"problem": words, "is_absent": True}
