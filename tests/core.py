"""The core's tests: what rendezvous, worker and launcher decide, by value and in this process.

    python -m tests.core [WORD OF PYTEST...]

runs every test below `FOLDERS` but the files in `LEFT_OUT` and the marks in `MARKS`, which start
other programs, wait, or go through a corpus: `make test` has them all. A new test of these folders
is one of the core's; one that takes a second goes into the list. All need what
`pip install -e '.[test]'` installs, and no torch, asyncpg, matplotlib or browser. In CI (RDZV_CI=1)
one that is skipped fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from itertools import chain

import pytest

FOLDERS = ("tests/rendezvous", "tests/worker", "tests/launcher")
MARKS = (
    *("browser", "faults", "frameworks", "fuzz", "netns", "nightly", "page", "planted", "plot"),
    *("real_time", "schedulers", "torch", "wheel"),
)
LEFT_OUT = {
    "no part of the core: what is found out about a run": (
        *("tests/rendezvous/cause", "tests/worker/evidence", "tests/worker/look"),
    ),
    "no part of the core: replicas, warm starts, RDMA": (
        *("tests/rendezvous/test_replica.py", "tests/worker/test_rdma.py"),
        *("tests/worker/test_rdma_checks.py", "tests/worker/warm"),
    ),
    "a package of test-all": (
        *("tests/rendezvous/test_journal.py", "tests/rendezvous/test_postgres_*.py"),
        *("tests/launcher/test_serve.py", "tests/launcher/test_standing_specs.py"),
        "tests/worker/test_spawner.py",
    ),
    "processes of its own": (
        *("tests/launcher/test_cli.py", "tests/launcher/test_doctor_registry.py"),
        *("tests/launcher/test_epochs.py", "tests/launcher/test_processes.py"),
        *("tests/launcher/test_prune.py", "tests/launcher/test_rdzv_command.py"),
        *("tests/launcher/test_report.py", "tests/launcher/test_run_file_command.py"),
        *("tests/launcher/test_run_file_examples.py", "tests/launcher/test_specs.py"),
        *("tests/launcher/test_tenants.py", "tests/rendezvous/test_server_process.py"),
        *("tests/rendezvous/test_upgrades.py", "tests/worker/test_first_failure.py"),
        *("tests/worker/test_gpus.py", "tests/worker/test_hook.py"),
        *("tests/worker/test_keeper.py", "tests/worker/test_process.py"),
        *("tests/worker/test_processes.py", "tests/worker/test_rank_streams.py"),
        *("tests/worker/test_rsh_refused.py", "tests/worker/test_rsh_remote.py"),
        "tests/worker/test_surroundings.py",
    ),
    "clocks, sockets or large files": (
        *("tests/launcher/test_requests.py", "tests/rendezvous/test_closing.py"),
        *("tests/rendezvous/test_guard.py", "tests/rendezvous/test_http_network.py"),
        *("tests/rendezvous/test_service.py", "tests/rendezvous/test_sqlite_journal.py"),
        *("tests/rendezvous/test_tenants.py", "tests/rendezvous/test_tls_pieces.py"),
        *("tests/worker/agent/test_early.py", "tests/worker/test_cpu_time.py"),
        *("tests/worker/test_log_file.py", "tests/worker/test_log_reader.py"),
    ),
    "thousands of examples": (
        *("tests/rendezvous/test_protocol.py", "tests/rendezvous/test_runs.py"),
    ),
}
"""Files of `FOLDERS`, by what each needs that takes time or more than Python."""
OF_FEATURES = ("tests/features/*/*_browser.py", "tests/features/*/ranks/test_collect.py")
"""For whoever names a feature's folder too: these import playwright, or start processes."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what is skipped in CI: what these tests need is installed."""
    report = yield
    if report.skipped and os.environ.get("RDZV_CI") == "1" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a test of the core is skipped: {report.longrepr}"
    return report


def main(words: list[str]) -> int:
    """Run them; returns pytest's exit code."""
    os.environ.setdefault("RDZV_EXAMPLES", "few")
    left_out = [f"--ignore-glob={path}" for path in (*chain(*LEFT_OUT.values()), *OF_FEATURES)]
    marks = " and ".join(f"not {mark}" for mark in MARKS)
    return pytest.main(["-p", "tests.core", "-q", "-m", marks, *left_out, *words, *FOLDERS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
