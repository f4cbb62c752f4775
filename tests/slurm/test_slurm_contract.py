"""The contract of all schedulers, on a real Slurm instead of a fake one."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.plan.plan import Submission
from launcher.schedulers.contract import Scheduler
from rendezvous.wire.run import SlotState
from tests.schedulers.test_contract import (
    described,
    test_a_handle_that_the_scheduler_never_had_is_not_running_and_can_be_cancelled,
    test_only_a_worker_run_of_exactly_that_name_is_found,
    test_worker_runs_are_submitted_described_found_and_cancelled,
)
from tests.slurm.cluster import PROGRAMS, Slurm
from tests.support.bed import Bed, join_text
from tests.support.launching import RDZV
from tests.support.waiting import soon

__all__ = [
    "test_a_handle_that_the_scheduler_never_had_is_not_running_and_can_be_cancelled",
    "test_only_a_worker_run_of_exactly_that_name_is_found",
    "test_worker_runs_are_submitted_described_found_and_cancelled",
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

    def played(self, made: Scheduler) -> Scheduler:
        """See the base class: they are not played."""
        return made


@pytest.fixture
def bed(cluster: Slurm, tmp_path: Path) -> Iterator[Bed]:
    """The real commands on the PATH in place of the fake ones."""
    made = LoginHost("slurm", tmp_path)
    for name in made.commands:
        (made.bin / name).write_text(
            f"#!/bin/sh\nexport SLURM_CONF={cluster.folder}/slurm.conf\n"
            f'exec ip netns exec {cluster.login.namespace} {shutil.which(name)} "$@"\n'
        )
        (made.bin / name).chmod(0o755)
    (made.bin / "rdzv").symlink_to(RDZV)
    yield made
    cluster.end_all_jobs()


async def test_what_a_job_prints_can_be_read_while_it_runs_and_why_it_failed_is_told(
    bed: Bed,
) -> None:
    scheduler, run = bed.scheduler(), bed.run(template="#!/bin/sh\nseq 3\nexec sleep 600\n")
    handle = await scheduler.submit(run, join_text())
    failing = bed.run(2, template="#!/bin/sh\nexit 3\n")
    failed = await scheduler.submit(failing, join_text())
    await described(bed, handle, SlotState.RUNNING)
    logs = bed.submissions.glob  # Slurm calls a job running before it prints
    await soon(lambda: [p for p in logs("*.log") if p.read_text().endswith("3\n")])
    followed = scheduler.logs(run, handle, lines=2, follow=True)
    assert [await anext(followed), await anext(followed)] == ["2", "3"]
    await followed.aclose()  # type: ignore[attr-defined]
    assert (await described(bed, failed, SlotState.FAILED)).detail == "FAILED: NonZeroExitCode"
