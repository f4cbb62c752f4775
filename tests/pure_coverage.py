"""A plug-in of pytest that counts what runs of the modules that decide, by their own tests alone.

    python -m pytest -p tests.pure_coverage ...

Which modules, and how much of their lines and branches is enough: `[tool.coverage]` in
pyproject.toml. While Python counts, all that it runs takes about twice as long; so it counts these
modules' import and the calls of the tests in `tests.pythons.PURE` and `MORE`, and nothing around
them. Properties are not counted: what their examples run differs from one time to the next.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Generator

import pytest
from coverage import Coverage
from hypothesis import is_hypothesis_test

from tests.pythons import LONG, ROOT, pure

FOLDER = ROOT / "build" / "coverage"
SETTINGS = str(ROOT / "pyproject.toml")
MORE = (
    "tests/launcher/test_schedulers.py",
    *("tests/rendezvous/test_closing.py", "tests/rendezvous/test_frozen.py"),
    *("tests/rendezvous/test_log_views.py", "tests/rendezvous/test_replica.py"),
    *("tests/rendezvous/test_relay.py", "tests/rendezvous/test_restart_call.py"),
    "tests/features/hang/test_judging.py",
    *("tests/worker/agent/test_properties.py", "tests/worker/agent/test_running.py"),
    *("tests/worker/agent/test_visiting.py", "tests/features/machines/test_reader.py"),
    *("tests/worker/test_offer.py", "tests/worker/test_plugin.py"),
    "tests/worker/test_preflight.py",
)
"""Tests of what acts, which alone run a line of what decides."""
TOO_LITTLE = 6
"""None of pytest's own exit codes: `tests.once_more` takes it for no test that had bad luck."""


def modules(coverage: Coverage) -> list[str]:
    """Name the modules that are counted."""
    patterns = coverage.get_option("run:include")
    assert isinstance(patterns, list)
    paths = sorted({path for pattern in patterns for path in ROOT.glob(pattern)})
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in paths]
    return [".".join(part for part in each if part != "__init__") for each in parts]


class Counting:
    """Counts in one process, if it runs tests or not; its data go to a file of their own."""

    def __init__(self) -> None:
        self.coverage = Coverage(str(FOLDER / "data"), data_suffix=True, config_file=SETTINGS)
        self.files = {ROOT / path for path in (*pure(), *MORE)}
        with self.coverage.collect():
            for name in modules(self.coverage):
                importlib.import_module(name)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count while a test runs that is for this, without its fixtures."""
        is_left_out = is_hypothesis_test(getattr(item, "obj", None)) or any(
            name in item.nodeid for name in LONG
        )
        if item.path not in self.files or is_left_out:
            return (yield)
        with self.coverage.collect():
            return (yield)

    def pytest_sessionfinish(self) -> None:
        """Write what was counted."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.coverage.save()


class Telling:
    """Puts together what all processes have counted, and fails where that is too little."""

    def __init__(self) -> None:
        shutil.rmtree(FOLDER, ignore_errors=True)

    @pytest.hookimpl(trylast=True)  # after what this process itself has counted, and its workers
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report; called in the first process, when the others have ended."""
        coverage = Coverage(str(FOLDER / "data"), config_file=SETTINGS)
        coverage.combine()
        with (FOLDER / "report").open("w") as file:
            self.found = coverage.report(file=file, skip_covered=True)
        self.wanted = float(str(coverage.get_option("report:fail_under")))
        ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and self.found < self.wanted:
            session.exitstatus = TOO_LITTLE

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the modules that are not whole, and the sum."""
        terminalreporter.section("coverage of what decides")
        terminalreporter.write((FOLDER / "report").read_text())
        terminalreporter.write_line(f"{self.found:.2f} %; at least {self.wanted} % is wanted")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before a conftest imports what is to be counted."""
    early_config.pluginmanager.register(Counting())


def pytest_configure(config: pytest.Config) -> None:
    """Tell where the session began."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Telling())
