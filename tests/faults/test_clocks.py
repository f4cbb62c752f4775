"""Clocks that are wrong or jump: nothing in a run depends on what time a machine thinks it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.test_pauses import COMMAND, finish_well, standing_registry, until_end
from tests.support.cluster import cluster
from tests.support.launching import launch, launching, processes_with
from tests.support.netlab import Lab
from tests.support.record import record
from tests.support.waiting import until

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(150),
    pytest.mark.skipif(
        not LIBRARIES and os.environ.get("RDZV_CI") != "1", reason="needs the package faketime"
    ),
]


def wrong_clock(shift: str = "", file: Path | None = None) -> dict[str, str]:
    """Variables for a process whose dates are shifted; its monotonic clock is not touched.

    Args:
        shift: Such as +1d or -30y.
        file: Holds the shift instead, and is read at every look at the clock.
    """
    where = {"FAKETIME": shift} if file is None else {"FAKETIME_TIMESTAMP_FILE": str(file)}
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        **where,
    }


def test_the_means_shift_dates_and_leave_the_monotonic_clock_alone() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"],
        env=wrong_clock("-1d"),
        capture_output=True,
        text=True,
        check=True,
    )
    date, monotonic = map(float, shown.stdout.split())
    assert date - time.time() == pytest.approx(-86_400, abs=20)
    assert monotonic == pytest.approx(time.monotonic(), abs=20)


@pytest.mark.nightly
@pytest.mark.netns
def test_each_nodes_clock_may_be_wrong_by_days_and_years(tmp_path: Path) -> None:
    """Over TLS: neither leases nor the certificate's dates mind."""
    shifts = dict(enumerate(("-1d", "+1d", "-20y", "+50y"), start=1))
    options = ("--framework", "command", "--lease", "4")
    command = ["sh", "-c", "date +%s; exec sleep 6"]
    with Lab(5) as lab, cluster(lab, tmp_path, *options, command=command) as run:
        for slot, shift in shifts.items():
            script = ["sh", str(run.script(slot))]
            run.workers[slot] = run.start(slot, script, **wrong_clock(shift))
        outcome = run.finish()
    assert outcome.code == 0, outcome.err + str(run.told)
    assert "all 5 nodes ended with exit code 0" in outcome.last_line
    seen = [int((tmp_path / f"h{n}/r/logs/node-{n}.log").read_text()) for n in range(5)]
    days = [round((date - seen[0]) / 86_400) for date in seen]
    assert days == [0, -1, 1, -20 * 365, 50 * 365]
    record("clocks of four nodes are off by -1 day, +1 day, -20 years, +50 years", outcome)


@pytest.mark.nightly
def test_the_launchers_machine_may_be_a_day_off(tmp_path: Path) -> None:
    """Launcher, registry, agents and programs; as when the whole machine is."""
    command = until_end(tmp_path)
    with launching(
        tmp_path / "s", *COMMAND, "--lease", "4", command=command, env=wrong_clock("-1d")
    ) as launched:
        launched.wait_for_phase("running")
        time.sleep(6)
        outcome = finish_well(launched, tmp_path)
    written = json.loads((launched.folder / "launch.json").read_text())["started_at"]
    assert written < time.time() - 86_000
    record("rank 0's clock is a day behind", outcome)


@pytest.mark.nightly
@pytest.mark.parametrize("jump", ["+3600", "-3600"])
def test_a_registrys_clock_that_jumps_by_an_hour_loses_nobody(jump: str, tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    shift.write_text("+0")
    with standing_registry(tmp_path / "serve", **wrong_clock(file=shift)) as registry:
        env = {"RDZV_REGISTRY_FILE": str(registry.file)}
        options = (*COMMAND, "--lease", "4")
        with launching(tmp_path / "s", *options, command=until_end(tmp_path), env=env) as launched:
            until(lambda: len(processes_with(f"{tmp_path}/end")) >= 10, 60)
            shift.write_text(jump)
            time.sleep(10)
            outcome = finish_well(launched, tmp_path)
        assert launch(tmp_path / "t", *options, command=["true"], run="next", env=env).code == 0
        log = (tmp_path / "serve.log").read_text()
    hours = {line.split()[1][:2] for line in log.splitlines() if "was created" in line}
    assert len(hours) == 2, "the registry's log shows the jump"
    record(f"the registry's clock jumps by {jump} s", outcome)
