"""Skips, with the reason, the tests that this machine cannot run; in CI (RDZV_CI=1) they fail."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.frameworks.environments import ENVIRONMENTS, takes_all
from tests.once_more import note_marks
from tests.support.browser import browser, context, opened
from tests.support.missing import CHROMIUM, give_up
from tests.support.nightly import examples

__all__ = ["browser", "context", "opened"]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for a socket, whose path has at most 107 bytes; below TMPDIR it may have more."""
    with tempfile.TemporaryDirectory(prefix="rdzv-test-", dir="/tmp") as folder:
        yield Path(folder)


@functools.cache
def requires_netns() -> str | None:
    """Say why no emulated hosts can be made here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [
        tool for tool in ("ip", "unshare", "hostname", "mount") if shutil.which(tool) is None
    ]
    if missing:
        return f"network namespaces need: {', '.join(missing)}"
    name = f"rdzvtry-{os.getpid()}"
    added = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if added.returncode != 0:
        return f"no network namespace can be made: {added.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


@functools.cache
def requires_torch() -> str | None:
    """Say why no torchrun can be started here; None when it can."""
    return None if importlib.util.find_spec("torch") else "torch is not installed"


@functools.cache
def requires_faults() -> str | None:
    """Say why no faults can be made here; None when they can."""
    missing = [tool for tool in ("nft", "faketime") if shutil.which(tool) is None]
    return f"faults need: {', '.join(missing)}" if missing else None


@functools.cache
def requires_browser() -> str | None:
    """Say why no browser can look at the page here; None when one can."""
    if not Path(CHROMIUM).is_file():
        return f"the page needs {CHROMIUM}: apt install chromium"
    return None if importlib.util.find_spec("playwright") else "playwright is not installed"


@functools.cache
def requires_plot() -> str | None:
    """Say why no picture can be drawn here; None when one can."""
    return None if importlib.util.find_spec("matplotlib") else "matplotlib is not installed"


def missing_programs(*programs: str) -> str | None:
    """Say which of the programs that a mark names are not here; None when all are."""
    missing = [program for program in programs if shutil.which(program) is None]
    return f"this test needs: {', '.join(missing)}" if missing else None


def missing_framework(environment: str = "", *programs: str) -> str | None:
    """Say what of a `frameworks` mark is not here; None when all is."""
    if not environment:
        return None
    if not ENVIRONMENTS[environment].is_made:
        return f"environment {environment} is not installed; make test-frameworks does it"
    return missing_programs(*programs)


_REQUIREMENTS: dict[str, Callable[[], str | None]] = {
    "browser": requires_browser,
    "plot": requires_plot,
    "netns": requires_netns,
    "torch": requires_torch,
    "faults": requires_faults,
}


def pytest_configure() -> None:
    """What tests start heeds SIGHUP and SIGINT, also where they run under nohup, or behind `&`.

    And no example of hypothesis fails because the machine had something else to do."""
    settings.register_profile("unhurried", deadline=None, max_examples=examples(100))
    settings.load_profile("unhurried")
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Ten thousand tests are made, and stay: to look for cycles among them takes seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From now on the collector looks at what is new, as usual."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A module of a scheduler's tests stays in one process, which makes what they share once.

    Modules that share an engine or a cluster name their group themselves.
    """
    note_marks(items)
    for item in items:
        if item.get_closest_marker("schedulers") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(tryfirst=True)  # before fixtures: they may need what is missing
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose mark names something that is missing here."""
    reasons = [
        why_not() for mark, why_not in _REQUIREMENTS.items() if item.get_closest_marker(mark)
    ]
    reasons += [missing_programs(*mark.args) for mark in item.iter_markers("schedulers")]
    for mark in item.iter_markers("frameworks"):
        if mark.args and not (ENVIRONMENTS[mark.args[0]].everyday or takes_all()):
            pytest.skip(f"{mark.args[0]} is not made at each push: RDZV_FRAMEWORKS=all runs this")
    reasons += [missing_framework(*mark.args) for mark in item.iter_markers("frameworks")]
    for reason in filter(None, reasons):
        give_up(reason)
