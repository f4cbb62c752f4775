"""A program of its own: ask NVML for this machine's GPUs, and print them as JSON.

It is started as `python -I nvml.py health|use` by `worker.machine.gpus`; nvidia-ml-py may be
missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


def main(what: str) -> None:
    """Print what `gpus` reads: the driver's version and the GPUs, or why there is none.

    Args:
        what: Also wanted of each GPU: its `health`, or how it is in `use`.
    """
    more = _use if what == "use" else _health
    try:
        pynvml: Any = importlib.import_module("pynvml")  # optional, and untyped
    except ImportError:
        _say({"problem": "the package nvidia-ml-py is not installed", "is_absent": True})
        return
    try:
        pynvml.nvmlInit()
        driver = _plain(pynvml.nvmlSystemGetDriverVersion())
        gpus = [_gpu(pynvml, index, more) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        is_absent = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        _say({"problem": f"NVML: {error}", "is_absent": is_absent})
        return
    _say({"driver": driver, "gpus": gpus})


def _gpu(nvml: Any, index: int, more: Callable[[Any, Any], dict[str, Any]]) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu = {"index": index, "model": _plain(nvml.nvmlDeviceGetName(handle))}
        gpu["uuid"] = _plain(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        is_foreign = error.value == nvml.NVML_ERROR_NO_PERMISSION
        return {"index": index, "problem": str(error), "is_foreign": is_foreign}
    return gpu | {"slices": _slices(nvml, handle)} | more(nvml, handle)


def _slices(nvml: Any, gpu: Any) -> list[str] | None:
    """The UUIDs of a GPU's MIG instances that this process may see; None where it is whole."""
    try:
        if nvml.nvmlDeviceGetMigMode(gpu)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return None
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except (nvml.NVMLError, AttributeError):
        return None
    found = []
    for index in range(most):
        with contextlib.suppress(nvml.NVMLError):  # there are fewer of them
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            found.append(_plain(nvml.nvmlDeviceGetUUID(instance)))
    return found


def _known(nvml: Any, question: Callable[[], _T]) -> _T | None:
    """The answer; None where the driver or this package is too old, or the GPU has it not."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):
        return None


def _use(nvml: Any, handle: Any) -> dict[str, Any]:
    known = functools.partial(_known, nvml)
    memory = known(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    rates = known(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    return {
        "memory_used": int(memory.used) if memory else 0,
        "memory_total": int(memory.total) if memory else 0,
        "utilisation": int(rates.gpu) if rates else None,
        "temperature": known(
            lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        ),
    }


def _health(nvml: Any, handle: Any) -> dict[str, Any]:
    known = functools.partial(_known, nvml)
    uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    remapped = known(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    return {
        "ecc_errors": known(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile)
        ),
        "remap_pending": bool(remapped and remapped[2]),
        "remap_failed": bool(remapped and remapped[3]),
        "throttled": known(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        "recovery": known(lambda: _recovery(nvml, handle)),
        "fabric": known(lambda: _fabric(nvml, handle)),
    }


def _recovery(nvml: Any, handle: Any) -> int | None:
    value = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    return int(value.value.uiVal) if value.nvmlReturn == nvml.NVML_SUCCESS else None


def _fabric(nvml: Any, handle: Any) -> int | None:
    info = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return int(info.state)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer))


def _plain(text: str | bytes) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text


if __name__ == "__main__":
    main(sys.argv[1])
