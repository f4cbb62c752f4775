"""The NVIDIA GPUs of this machine as their driver describes them, where it can be asked.

Without nvidia-ml-py, or without a driver, there is nothing to tell, and nothing fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ValidationError

from rendezvous.schema import printable
from worker.machine import aside, nvml

Severity: TypeAlias = Literal["fail", "warn"]

LIMIT_SECONDS = 5.0
_ACTIONS = {
    1: "to reset the GPU",
    2: "to restart the node",
    3: "to drain peer-to-peer traffic",
    4: "to drain and reset the GPU",
    5: "to recover the IMEX domain",
    6: "to reset the GPU's bus",
    7: "to restart the system",
}
_FABRIC = {1: "not started", 2: "in progress", 3: "completed"}


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        index: As NVML counts.
        problem: Why the driver cannot use it, such as a GPU that fell off the bus.
        ecc_errors: Uncorrected, since the driver was loaded; None when it does not count them.
        remap_pending: A row of its memory is to be replaced: it needs a reset.
        remap_failed: A row could not be replaced: it needs to be exchanged.
        recovery: What the driver asks, such as `to reset the GPU`; empty when nothing or not known.
        fabric: Whether it has joined its NVSwitch fabric: `completed` when so, empty without one.
    """

    index: int
    model: str = ""
    uuid: str = ""
    problem: str = ""
    ecc_errors: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str = ""
    fabric: str = ""

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


@dataclass(frozen=True)
class Gpus:
    """All GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides.

    Attributes:
        driver: Its version; empty when it was not asked.
        problem: Why the driver was not asked or did not answer; then there are no `gpus`.
    """

    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""

    @property
    def count(self) -> int:
        """The number of GPUs that work at all."""
        return sum(1 for gpu in self.gpus if not gpu.problem)

    @property
    def models(self) -> list[str]:
        """The model of each GPU that works."""
        return [gpu.model for gpu in self.gpus if not gpu.problem]

    @property
    def uuids(self) -> list[str]:
        """The UUID of each GPU that works."""
        return [gpu.uuid for gpu in self.gpus if not gpu.problem]

    @property
    def problems(self) -> list[tuple[int, str, Severity]]:
        """What is wrong with which GPU, and whether it can still be computed with."""
        return [(gpu.index, *problem) for gpu in self.gpus for problem in gpu.problems]


class _GpuAnswer(BaseModel):
    index: int
    model: str = ""
    uuid: str = ""
    problem: str = ""
    ecc_errors: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: int | None = None
    fabric: int | None = None


class _Answer(BaseModel):
    driver: str = ""
    gpus: list[_GpuAnswer] = []
    problem: str = ""


def look_gpus(limit_seconds: float = LIMIT_SECONDS) -> Gpus:
    """Ask the driver for the GPUs and their health, in at most `limit_seconds`; never raises."""
    answer = aside.ask(Path(nvml.__file__), limit_seconds=limit_seconds, site=True)
    try:
        said = _Answer.model_validate_json(answer.text)
    except ValidationError:
        return Gpus(problem=f"NVML: {answer.problem or 'its answer cannot be read'}")
    return Gpus(_words(said.driver), tuple(map(_gpu, said.gpus)), _words(said.problem))


def _gpu(said: _GpuAnswer) -> Gpu:
    action, fabric = said.recovery or 0, said.fabric or 0
    return Gpu(
        index=said.index,
        model=_words(said.model),
        uuid=_words(said.uuid),
        problem=_words(said.problem),
        ecc_errors=said.ecc_errors,
        remap_pending=said.remap_pending,
        remap_failed=said.remap_failed,
        recovery=_ACTIONS.get(action, f"for recovery action {action}") if action else "",
        fabric=_FABRIC.get(fabric, f"state {fabric}") if fabric else "",
    )


def _words(text: str) -> str:
    return printable(text, 253)
