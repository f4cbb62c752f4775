"""What is recorded of each cause is whole, and tells nothing of the machine where that was."""

from __future__ import annotations

import re

import pytest

from rendezvous.compat import tomllib
from tests.causes.injected import CASES, CAUSES, QUICK
from tests.causes.record import OUTPUTS, read_index

RUNS = read_index()
FILES = {name for run in RUNS for name in (*run["files"], *filter(None, [run.get("kernel")]))}
# Of a kernel alone; no program has printed it.
ASIDE = {"41-gpu-xid-others.kernel.txt"}
OURS = re.compile(r"/(work|tmp|root|home)/|\.venv|pyenv")


def test_every_row_of_the_catalogue_has_an_output() -> None:
    assert {run["row"] for run in RUNS} == set(CAUSES)
    assert len({run["row"] for run in RUNS if run["recorded"]}) >= 33


def test_every_file_is_in_the_index_and_every_entry_has_its_files() -> None:
    assert {path.name for path in OUTPUTS.glob("*.txt")} == FILES | ASIDE


def test_what_is_not_recorded_says_where_its_form_is_from() -> None:
    assert [run["name"] for run in RUNS if not run["recorded"] and not run["source"]] == []


def test_what_is_recorded_is_what_is_injected() -> None:
    injected = {(case.row, case.name, case.expected) for case in CASES if case.alone}
    recorded = {(run["row"], run["name"], run["cause"]) for run in RUNS if run["recorded"]}
    assert recorded == injected


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_output_tells_nothing_of_a_machine(name: str) -> None:
    text = (OUTPUTS / name).read_text(errors="replace")
    text = text.replace("site-packages/torch/_", "")
    assert [line for line in text.splitlines() if OURS.search(line)] == []


def test_most_rows_of_the_catalogue_are_made() -> None:
    assert len({case.row for case in CASES}) >= 33
    assert {case.row for case in CASES} <= set(CAUSES)


def test_three_cases_run_with_every_test_of_faults() -> None:
    quick = [case for case in CASES if case.name in QUICK]
    assert len(quick) == 3
    assert all(case.bare for case in quick)


def test_the_port_that_gloo_prints_is_the_lost_ranks_own_with_its_bytes_swapped() -> None:
    runs = tomllib.loads((OUTPUTS / "gloo-ports.toml").read_text())["run"]
    found = []
    for run in runs:
        owners = {own: row["rank"] for row in run["ranks"] for own, _ in row["sockets"]}
        for row in run["ranks"]:
            for printed in map(int, re.findall(r"\]:(\d+)", row["printed"])):
                found.append((run["killed"], owners[(printed & 0xFF) << 8 | printed >> 8]))
    assert len(found) == 6
    assert all(killed == owner for killed, owner in found)
