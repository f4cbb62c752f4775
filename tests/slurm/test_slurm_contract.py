"""The contract of all schedulers, on a real Slurm instead of a fake one."""

from __future__ import annotations

import asyncio
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.plan.plan import Submission
from rendezvous.wire.run import SlotState
from tests.schedulers.test_contract import (
    described,
    logs,
    test_a_handle_that_the_scheduler_never_had_is_not_running_and_can_be_cancelled,
    test_a_worker_run_is_submitted_described_and_cancelled,
    test_another_launcher_finds_a_worker_run_by_its_name_and_cancels_it,
    test_only_a_worker_run_of_exactly_that_name_is_found,
    test_two_worker_runs_have_two_handles,
)
from tests.slurm.cluster import PROGRAMS, Slurm
from tests.support.bed import Bed, join_text
from tests.support.launching import RDZV
from tests.support.waiting import until

__all__ = [
    "test_a_handle_that_the_scheduler_never_had_is_not_running_and_can_be_cancelled",
    "test_a_worker_run_is_submitted_described_and_cancelled",
    "test_another_launcher_finds_a_worker_run_by_its_name_and_cancels_it",
    "test_only_a_worker_run_of_exactly_that_name_is_found",
    "test_two_worker_runs_have_two_handles",
]

pytestmark = [
    pytest.mark.schedulers(*PROGRAMS),
    pytest.mark.netns,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("slurm"),
]


class LoginHost(Bed):
    """Slurm's commands, as they are on the login host; a worker finds no registry, and waits."""

    def run(self, slot: int = 1, generation: int = 1, *, template: str | None = None) -> Submission:
        """See the base class; a real Slurm remembers the jobs of other tests."""
        run = super().run(slot, generation, template=template)
        name = f"{run.name}-{zlib.crc32(str(self.folder).encode()):x}"
        return replace(run, name=name, variables=run.variables | {"NAME": name})


@pytest.fixture
def bed(cluster: Slurm, tmp_path: Path) -> Iterator[Bed]:
    """The real commands on the PATH in place of the fake ones."""
    made = LoginHost("slurm", tmp_path)
    inside = f"exec ip netns exec {cluster.login.namespace}"
    for program in made.bin.iterdir():
        program.write_text(
            f"#!/bin/sh\nexport SLURM_CONF={cluster.folder}/slurm.conf\n"
            f'{inside} {shutil.which(program.name)} "$@"\n'
        )
    (made.bin / "rdzv").symlink_to(RDZV)
    yield made
    cluster.end_all_jobs()


@pytest.fixture
def faulty(bed: Bed) -> Callable[..., Bed]:
    """The same; a real Slurm has no faults to order."""
    return lambda: bed


async def test_what_a_job_prints_can_be_read_while_it_runs(bed: Bed) -> None:
    scheduler, run = bed.scheduler(), bed.run(template="#!/bin/sh\nseq 3\nexec sleep 600\n")
    handle = await scheduler.submit(run, join_text())
    await described(bed, handle, SlotState.RUNNING)
    printed = bed.folder / "state" / "submissions"  # Slurm calls a job running before it prints
    await asyncio.to_thread(until, lambda: [p for p in printed.glob("*.log") if _has_3(p)])
    followed = logs(bed, handle, follow=True)
    assert [await anext(followed), await anext(followed)] == ["2", "3"]
    await followed.aclose()


def _has_3(log: Path) -> bool:
    return log.read_text().endswith("3\n")


async def test_a_job_that_fails_is_told_with_slurms_reason(bed: Bed) -> None:
    run = bed.run(template="#!/bin/sh\nexit 3\n")
    handle = await bed.scheduler().submit(run, join_text())
    found = await described(bed, handle, SlotState.FAILED)
    assert found.detail == "FAILED: NonZeroExitCode"
