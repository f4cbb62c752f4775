"""What is kept of each cause is whole, and tells nothing of the machine where that was."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from rendezvous.cause.table import BY_ID
from rendezvous.compat import tomllib

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
RUNS = tomllib.loads((OUTPUTS / "index.toml").read_text())["run"]
FILES = {name for run in RUNS for name in (*run["files"], *filter(None, [run.get("kernel")]))}
# Of a kernel alone; no program has printed it.
ASIDE = {"41-gpu-xid-others.kernel.txt"}
OURS = re.compile(r"/(work|tmp|root|home)/|\.venv|pyenv")
ROWS = 48
"""Of the catalogue of causes that this corpus was made of."""


def test_every_row_of_the_catalogue_has_an_output() -> None:
    assert {run["row"] for run in RUNS} == {*range(1, ROWS + 1)}
    assert len({run["row"] for run in RUNS if run["recorded"]}) >= 33
    assert {run["cause"] for run in RUNS} <= {*BY_ID}


def test_every_file_is_in_the_index_and_every_entry_has_its_files() -> None:
    assert {path.name for path in OUTPUTS.glob("*.txt")} == FILES | ASIDE


def test_what_is_not_recorded_says_where_its_form_is_from() -> None:
    assert [run["name"] for run in RUNS if not run["recorded"] and not run["source"]] == []


FOLDERS = (
    *("outputs", "second_outputs", "third_outputs", "fourth_outputs"),
    *("seeds", "public", "words"),
)


def test_every_folder_is_looked_at() -> None:
    with_data = {
        path.parent.name for kind in ("txt", "toml", "jsonl") for path in HERE.glob(f"*/*.{kind}")
    }
    assert with_data == {*FOLDERS}


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_output_tells_nothing_of_a_machine(folder: str) -> None:
    for path in (HERE / folder).glob("*.*"):
        text = path.read_text(errors="replace").replace("site-packages/torch/_", "")
        assert [line for line in text.splitlines() if OURS.search(line)] == [], path.name


THREADS = sorted(path for name in ("seeds", "public") for path in (HERE / name).glob("*.toml"))
_FORM = {
    **dict.fromkeys(("source", "software", "truth", "cause", "step", "never"), str),
    **dict.fromkeys(("nodes", "each"), int),
    **dict.fromkeys(("between", "certain"), bool),
    **dict.fromkeys(("blamed", "said"), list),
}


@pytest.mark.parametrize("path", THREADS, ids=lambda path: path.stem)
def test_a_failure_of_a_thread_has_its_form(path: Path) -> None:
    table = tomllib.loads(path.read_text())
    more = {name: table.pop(name, []) for name in ("ended", "kernel", "scheduler")}
    assert {name: type(value) for name, value in table.items()} == _FORM
    assert table["source"].startswith("https://")
    assert all(re.compile(table[name]) for name in ("cause", "step", "never"))
    assert more["ended"] or more["scheduler"]
    ranks, slots = range(table["nodes"] * table["each"]), range(table["nodes"])
    assert {*table["blamed"]} <= {*ranks}
    for one in table["said"]:
        assert one.keys() == {"rank", "at", "stream", "text"}
        assert one["rank"] in ranks
        assert one["stream"] in ("stdout", "stderr")
    for one in more["ended"]:
        assert one.keys() in ({"rank", "at", "code"}, {"rank", "at", "signal"})
        assert one["rank"] in ranks
        assert one.get("signal", "SIGTERM") in signal.Signals.__members__
    for one in (*more["kernel"], *more["scheduler"]):
        assert one.keys() == {"node", "text"}
        assert one["node"] in slots


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
