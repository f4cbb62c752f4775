"""Runs pytest, then runs what failed once more, alone, where real time may have been the cause.

    python -m tests.once_more FILE ARGUMENT...

Only tests of the marks in `MARKS` get a second run: they depend on how soon this machine runs other
processes. A pure test or a simulation that fails has failed. A test that passes only when it is
alone is unstable, which is a defect of the test or of the product: it is printed as
`unstable: NAME`, and so appended to FILE.

pytest-rerunfailures (16.7) does not replace it: it repeats a test at once, in the same worker and
beside the other tests, also where others have failed, and of many failures the first few.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MARKS = ("faults", "schedulers", "frameworks", "netns", "torch", "real_time")
MOST = 5
"""Where more tests than these have failed, it was not the machine."""
_PROPERTY = "once_more"


def note_marks(items: Sequence[pytest.Item]) -> None:
    """Let the reports of these tests say by what name they may be run again; called at collection.

    Called first of all: xdist adds a group to the names.
    """
    for item in items:
        if any(item.get_closest_marker(mark) for mark in MARKS):
            item.user_properties.append((_PROPERTY, item.nodeid))


class Failed:
    """The names of the tests that have failed: those that may be run again, and the others."""

    def __init__(self) -> None:
        self.may_run_again: list[str] = []
        self.others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest in its first process, for each phase of each test."""
        if report.failed:
            again = next(
                (str(name) for key, name in report.user_properties if key == _PROPERTY), ""
            )
            names, name = (self.may_run_again, again) if again else (self.others, report.nodeid)
            if name not in names:
                names.append(name)

    @property
    def second_run(self) -> list[str]:
        """The tests to run again; none where the first run failed for more than bad luck."""
        lucky = not self.others and len(self.may_run_again) <= MOST
        return self.may_run_again if lucky else []


def main(told: Path, arguments: list[str]) -> int:
    """Return pytest's exit code; 0 too where all that failed has passed alone."""
    failed = Failed()
    code = int(pytest.main(arguments, plugins=[failed]))
    if code != pytest.ExitCode.TESTS_FAILED or not failed.second_run:
        return code
    print(f"running {len(failed.second_run)} of them once more, alone", flush=True)
    alone = [sys.executable, "-m", "pytest", *failed.second_run]
    if (code := subprocess.run(alone, check=False).returncode) == 0:
        lines = "".join(f"unstable: {name}\n" for name in failed.second_run)
        print(lines, end="", flush=True)
        with told.open("a") as file:
            file.write(lines)
    return code


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
