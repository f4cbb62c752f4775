"""The NVIDIA GPUs of this machine as their driver describes them, where it can be asked.

Without nvidia-ml-py, or without a driver, there is nothing to tell, and nothing fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from rendezvous.frozen import frozen
from rendezvous.wire.words import printable
from worker.machine import aside, nvml

Severity: TypeAlias = Literal["fail", "warn"]

_ACTIONS: dict[object, str] = {
    1: "to reset the GPU",
    2: "to restart the node",
    3: "to drain peer-to-peer traffic",
    4: "to drain and reset the GPU",
    5: "to recover the IMEX domain",
    6: "to reset the GPU's bus",
    7: "to restart the system",
}
_NOT_NAMED = (None, "all", "none", "void")
_FABRIC: dict[object, str] = {1: "not started", 2: "in progress", 3: "completed"}


def _asked(action: object) -> object:
    return _ACTIONS.get(action, f"for recovery action {action}") if action else ""


def _joining(state: object) -> object:
    return _FABRIC.get(state, f"state {state}") if state else ""


_Text = Annotated[str, AfterValidator(lambda text: printable(text, 253))]


@frozen
class Gpu:
    """One GPU.

    Attributes:
        index: As NVML counts.
        problem: Why the driver cannot use it, such as a GPU that fell off the bus.
        is_foreign: It lies outside the job's device cgroup, and belongs to another job.
        slices: The UUIDs of its MIG instances that may be used here; None where it is whole.
        ecc_errors: Uncorrected, since the driver was loaded; None when it does not count them.
        throttled: Why its clocks are low at this moment, NVML's bits; None when it does not tell.
        remap_pending: A row of its memory is to be replaced: it needs a reset.
        remap_failed: A row could not be replaced: it needs to be exchanged.
        recovery: What the driver asks, such as `to reset the GPU`; empty when nothing or not known.
        fabric: Whether it has joined its NVSwitch fabric: `completed` when so, empty without one.
        memory_used: With the others below, how it is used, where that was asked for: bytes.
        utilisation: Percent of the time in which it computed.
        temperature: Degrees Celsius.
    """

    index: int
    model: _Text = ""
    uuid: _Text = ""
    problem: _Text = ""
    is_foreign: bool = False
    slices: tuple[_Text, ...] | None = None
    ecc_errors: int | None = None
    throttled: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: Annotated[str, BeforeValidator(_asked)] = ""
    fabric: Annotated[str, BeforeValidator(_joining)] = ""
    memory_used: int = 0
    memory_total: int = 0
    utilisation: int | None = None
    temperature: int | None = None

    @property
    def problems(self) -> list[tuple[str, Severity]]:
        """What is wrong with it, and whether it can still be computed with."""
        found: list[tuple[str, Severity]] = []
        if self.problem:
            found.append((self.problem, "fail"))
        if self.recovery:
            found.append((f"the driver asks {self.recovery}", "fail"))
        if self.remap_failed:
            found.append(("a bad row of its memory could not be replaced", "fail"))
        if self.fabric not in ("", "completed"):
            found.append((f"joining its NVSwitch fabric: {self.fabric}", "fail"))
        if self.remap_pending:
            found.append(("a bad row of its memory is replaced at its next reset", "warn"))
        if self.ecc_errors:
            found.append((f"{self.ecc_errors} uncorrected memory errors", "warn"))
        return found


@frozen
class Gpus:
    """All GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides.

    Attributes:
        driver: Its version; empty when it was not asked.
        problem: Why the driver was not asked or did not answer; then there are no `gpus`.
        is_absent: That is since this container has no NVML, or no package that asks it.
        is_late: That is since it took too long.
    """

    driver: _Text = ""
    gpus: tuple[Gpu, ...] = ()
    problem: _Text = ""
    is_absent: bool = False
    is_late: bool = False

    @property
    def count(self) -> int:
        """The number of GPUs that work at all."""
        return sum(1 for gpu in self.gpus if not gpu.problem)

    @property
    def problems(self) -> list[tuple[int, str, Severity]]:
        """What is wrong with which GPU, and whether it can still be computed with."""
        own = [gpu for gpu in self.gpus if not gpu.is_foreign]
        return [(gpu.index, *problem) for gpu in own for problem in gpu.problems]


_ANSWER = TypeAdapter(Gpus)


def look_gpus(limit_seconds: float, what: Literal["health", "use"] = "health") -> Gpus:
    """Ask the driver for the GPUs, and for their health or how they are used, in at most
    `limit_seconds`; never raises."""
    answer = aside.ask(Path(nvml.__file__), what, limit_seconds=limit_seconds, site=True)
    try:
        return _ANSWER.validate_json(answer.text)
    except ValidationError:
        problem = f"NVML: {answer.problem or 'its answer cannot be read'}"
        return Gpus(problem=problem, is_late=answer.is_late)


def visible_gpus(gpus: Gpus | None, environ: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that the program will see, of MIG those instances; one that is lost may be of them.

    Args:
        gpus: All that the driver knows.
        environ: The user's environment: CUDA_VISIBLE_DEVICES counts, else NVIDIA_VISIBLE_DEVICES.
    """
    present = list(gpus.gpus) if gpus else []
    cuda, container = environ.get("CUDA_VISIBLE_DEVICES"), environ.get("NVIDIA_VISIBLE_DEVICES")
    given = (container if cuda is None else cuda) or ""
    words = [word for part in given.split(",") if (word := part.strip())]
    named = [one for gpu in present if (one := _named(gpu, words)) is not None]
    # Inside a container there are no others than those it was given, and they count from 0.
    is_given = len(words) >= len(present) and all(word.isdecimal() for word in words)
    if cuda is None and (container in _NOT_NAMED or not named or is_given):
        return present
    uuids = {uuid for gpu in named for uuid in (gpu.uuid, *(gpu.slices or ()))}
    by_uuid = [word for word in words if word.startswith(("GPU-", "MIG-"))]  # others name none
    unknown = [word for word in by_uuid if not any(uuid.startswith(word) for uuid in uuids)]
    lost = [gpu for gpu in present if unknown and not gpu.uuid and gpu not in named]
    return sorted(named + lost, key=lambda gpu: gpu.index)


def hidden_gpus(gpus: Gpus | None, environ: Mapping[str, str]) -> frozenset[int]:
    """The others, as NVML counts."""
    seen = {gpu.index for gpu in visible_gpus(gpus, environ)}
    return frozenset(gpu.index for gpu in gpus.gpus) - seen if gpus else frozenset()


def uuids_of(gpus: Sequence[Gpu]) -> list[str]:
    """What tells whether two nodes compute on the same: of a GPU in MIG's mode, its instances."""
    return [uuid for gpu in gpus for uuid in ((gpu.uuid,) if gpu.slices is None else gpu.slices)]


def _named(gpu: Gpu, words: Sequence[str]) -> Gpu | None:
    """The GPU, with those of its MIG instances that are named; None when nothing of it is."""
    if str(gpu.index) in words or any(gpu.uuid and gpu.uuid.startswith(w) for w in words):
        return gpu
    # Also in the older form: MIG-GPU-UUID/INSTANCE/SLICE.
    slices = [s for s in gpu.slices or () if any(s.startswith(w) for w in words)]
    parent = any(gpu.uuid and w.startswith(f"MIG-{gpu.uuid}/") for w in words)
    return replace(gpu, slices=tuple(slices)) if slices or parent else None
