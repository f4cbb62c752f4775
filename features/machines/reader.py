"""Reads the state of this machine: load, memory, disks and GPUs.

Without GPUs it takes half a millisecond. What the machine does not tell is 0, or none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from threading import Thread

from features.machines.wire import MAX_GPUS, GpuSample, MachineSample
from rendezvous.wire.words import printable
from worker.evidence.control_groups import limited_memory, memory_chain
from worker.machine.gpus import Gpu, Gpus, look_gpus, visible_gpus
from worker.machine.groups import Chain
from worker.machine.kernel import memory_and_available

_DISK_SECONDS = 1.0
_GPU_SECONDS = 5.0
"""A driver that is idle initialises its GPUs first."""
_MOST = (1 << 62) - 1

Space = tuple[int, int]
"""Free bytes, and all."""


class MachineReader:
    """Reads it for one agent, once at a time.

    Args:
        folder: Where the logs are; its disk may hang.
        environ: The program's, which says which GPUs are its own.
        root: The directory that holds `sys`, `proc` and `dev`.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], root: Path = Path("/")) -> None:
        self._folder = folder
        self._environ = environ
        self._root = root
        self._chain: Chain | None = None
        self._asked: Future[Space] | None = None

    def read(self) -> MachineSample:
        """Read its state."""
        total, available = memory_and_available(self._root)
        self._chain = memory_chain(self._root) if self._chain is None else self._chain
        limited = limited_memory(self._chain, self._root)
        if limited is None or limited[1] >= total > 0:  # a limit that can never be met
            limited = total - available, 0
        disk, shm = self._disk(), _space(self._root / "dev/shm")
        gpus = self._gpus()
        own = [gpu for gpu in visible_gpus(gpus, self._environ) if not gpu.is_foreign]
        return MachineSample(
            load=_load(),
            memory_used=limited[0],
            memory_limit=limited[1],
            memory_total=total,
            memory_available=available,
            disk_free=disk[0],
            disk_total=disk[1],
            shm_free=shm[0],
            shm_total=shm[1],
            gpus=[_sample(gpu) for gpu in own[:MAX_GPUS]],
            gpu_problem=printable("" if gpus.is_absent else gpus.problem, 600),
        )

    def _gpus(self) -> Gpus:
        """GPUs as NVML reports them, where the machine has NVIDIA's device at all."""
        if not os.path.exists(self._root / "dev/nvidiactl"):
            return Gpus()
        return look_gpus(_GPU_SECONDS, "use")

    def _disk(self) -> Space:
        """Space of the logs; while its server does not answer, unknown and not asked again."""
        if self._asked is None:
            self._asked = _begin(self._folder)
        try:
            found = self._asked.result(_DISK_SECONDS)
        except Late:
            return 0, 0
        self._asked = None
        return found


def _begin(folder: Path) -> Future[Space]:
    answer: Future[Space] = Future()
    ask = Thread(target=lambda: answer.set_result(_space(folder)), name="disk", daemon=True)
    ask.start()
    return answer


def _space(folder: Path) -> Space:
    """Space that an unprivileged program may still write there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0, 0
    size = found.f_frsize
    return min(found.f_bavail * size, _MOST), min(found.f_blocks * size, _MOST)


def _load() -> float:
    try:
        return round(min(os.getloadavg()[0], 1e6), 2)
    except OSError:  # a container may hide it
        return 0.0


def _sample(gpu: Gpu) -> GpuSample:
    """GPU as it fits into a message, whatever its driver says."""
    used, heat = gpu.utilisation, gpu.temperature
    return GpuSample(
        index=gpu.index,
        memory_used=min(max(gpu.memory_used, 0), _MOST),
        memory_total=min(max(gpu.memory_total, 0), _MOST),
        utilisation=None if used is None else min(max(used, 0), 100),
        temperature=None if heat is None else min(max(heat, -273), 1_000),
        problem=gpu.problem,
    )
