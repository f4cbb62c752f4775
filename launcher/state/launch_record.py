"""The record of a launch, and of how it ended, as the folder of its run keeps them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from launcher.state.bench_command import bench_command
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.run import Result


class LaunchRecord(BaseModel):
    """`launch.json`: what `status`, `cancel` and a resumed launch need to know.

    Attributes:
        scheduler: What starts its worker runs.
        place: Where its registry is.
        owns_registry: Whether the registry is the launch's own.
        host: The launcher's.
        nodes: How many, as --nnodes has it.
        options: What decides how its programs are started, for `rdzv status --env`.
        fingerprint: Of what the registry does not compare when it is launched again.
        folder: Where it was launched; empty: not known.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    run: str
    launch_id: str
    scheduler: str
    place: dict[str, Any]
    owns_registry: bool = True
    host: str = ""
    nodes: str = ""
    options: dict[str, Any] = Field({})
    fingerprint: str = ""
    folder: str = ""
    pid: int = 0
    started_at: float = 0.0

    def registry_place(self) -> RegistryPlace:
        """Where this launch's registry is."""
        return RegistryPlace.from_json(self.place)

    @property
    def command(self) -> list[str]:
        """COMMAND, in words; of a benchmark the command that a person gave."""
        words = list(map(str, self.options.get("command", ())))
        return bench_command(words, self.nodes) if self.is_bench else words

    @property
    def is_bench(self) -> bool:
        """Whether it is a benchmark of the network: `rdzv bench`."""
        return self.options.get("framework") == "bench"


class KeptResult(Result):
    """`result.json`: how the launch ended, and when by the wall clock."""

    ended_at: float = 0.0
    last_words: str = Field("", description="The folder with the last words of its ranks.")

    def took_seconds(self, record: LaunchRecord | None) -> float | None:
        """From the launch's start to its end; None where nobody knows."""
        started = record.started_at if record else 0.0
        return max(0.0, self.ended_at - started) if self.ended_at and started else None
