"""A real launch whose nodes tell how their machines are: while it runs, and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.machines.wire import RunMachines
from tests.support.launching import launching, rdzv_here
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]
TWO = ("--nnodes", "2", "--framework", "command")


def machines(state: Path) -> RunMachines:
    """What `rdzv status` knows of them."""
    return RunMachines.model_validate_json(rdzv_here(state, "status", "r", "--machines", "--json"))


def wait(folder: Path) -> list[str]:
    """A program that runs until the folder has the file `end`."""
    return ["sh", "-c", f"while [ ! -e {folder}/end ]; do sleep 0.2; done"]


@pytest.mark.nightly
def test_each_node_tells_of_its_machine_at_the_go_and_it_is_known_after_the_run(
    tmp_path: Path,
) -> None:
    state = tmp_path / "s"
    with launching(state, *TWO, command=wait(tmp_path)) as run:
        run.wait_for_phase("running")

        def all_told() -> Any:
            found = machines(state).machines
            return len(found) == 2 and all(one.sample is not None for one in found)

        until(all_told)
        (tmp_path / "end").touch()
        assert run.finish().code == 0
    kept = machines(state).machines
    assert [(one.slot, one.node) for one in kept] == [(0, 0), (1, 1)]
    for one in kept:
        assert one.sample is not None
        assert 0 < one.sample.memory_used <= (one.sample.memory_limit or one.sample.memory_total)
        assert 0 < one.sample.disk_free <= one.sample.disk_total
        assert (one.facts.cpus > 0, one.facts.boot_id) == (True, "")
    shown = rdzv_here(state, "status", "r", "--machines")
    assert shown.count("  memory  ") == 2
