"""`rdzv bench` before and after the measurement: options, refusals, the picture."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from launcher.run import bench as bench_module
from launcher.run.bench import draw
from launcher.settings import BenchSettings
from rendezvous.wire.errors import ExitCode
from tests.launcher.command import rdzv
from tests.launcher.test_dry_run import table
from worker.contracts import check_command, make_contract
from worker.contracts.framework import PROGRAMS, Paths
from worker.contracts.variables import ProgramOptions
from worker.programs.bandwidth import RESULT_VARIABLE

RESULT = {
    "nodes": [{"hostname": f"h{node}", "processes": 1} for node in range(3)],
    "all_reduce": [
        {"bytes": 4096, "seconds": 0.001, "algorithm_gb": 0.004, "bus_gb": 0.006},
        {"bytes": 1 << 20, "seconds": 0.001, "algorithm_gb": 1.0, "bus_gb": 1.33},
    ],
    "pairs": [[0, 1, 1.0], [0, 2, 0.1], [1, 2, 0.1]],
    "slow_nodes": [2],
    "slow_pairs": [],
}


pytestmark = pytest.mark.usefixtures("bare")


def bench(*words: str) -> Result:
    """Call it; what is refused starts nothing."""
    return rdzv("bench", "--nnodes", "2", *words)


# --- what is started --------------------------------------------------------------------------


def test_the_measurement_is_told_its_sizes_in_bytes() -> None:
    settings = BenchSettings(sizes="512,64K,1M,2g", slow_below=0.8)
    sizes = ["--size", "512", "--size", "65536", "--size", "1048576", "--size", str(2 << 30)]
    assert settings.command() == [*sizes, "--slow-below", "0.8"]
    assert BenchSettings().command() == ["--slow-below", "0.5"]


def test_each_node_starts_the_program_from_where_its_own_rdzv_lies() -> None:
    bench, paths = ProgramOptions("bench"), Paths()
    contract = make_contract(["--slow-below", "0.5"], table(), 0, {}, bench, paths=paths)
    train = make_contract(["train.py"], table(), 0, {}, ProgramOptions(), paths=paths)
    assert contract.argv == [*train.argv[:-1], f"{PROGRAMS}/bandwidth.py", "--slow-below", "0.5"]
    assert (contract.variables, contract.fatal_workers) == (train.variables, True)
    assert Path(PROGRAMS, "bandwidth.py").is_file()
    check_command([], "bench")


def test_the_dry_run_shows_a_worker_run_that_needs_no_path_of_this_machine() -> None:
    words = "--dry-run full --scheduler manual --sizes 1M --framework command"
    shown = bench(*words.split())
    assert shown.exit_code == 0, shown.output
    assert "--framework bench" in shown.stdout
    assert "-- --size 1048576 --slow-below 0.5" in shown.stdout
    assert PROGRAMS not in shown.stdout


# --- what is refused before anything is started -----------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sizes", "1M,2X"], "--sizes cannot be '1M,2X': a size is a number of bytes"),
        (["--sizes", ""], "--sizes cannot be ''"),
        (["--slow-below", "1.5"], "--slow-below cannot be 1.5"),
        (["--plot", "p.gif"], "cannot draw into p.gif"),
        (["--save", "/nowhere/r.json"], "--save /nowhere/r.json: there is no folder /nowhere"),
        (["--save", "r.json", "--no-local-node"], "--save needs node 0 on this machine"),
        (["train.py"], "Got unexpected extra argument"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    words: list[str], said: str, tmp_path: Path
) -> None:
    refused = bench(*words)
    assert refused.exit_code == ExitCode.USAGE, refused.output
    assert refused.stderr.startswith(f"rdzv: {said}")
    assert not (tmp_path / "state").exists()


# --- the picture ------------------------------------------------------------------------------


@pytest.mark.plot
@pytest.mark.parametrize(
    ("changed", "title"),
    [
        ({}, "slow: node 2 (h2)"),
        ({"slow_nodes": [], "slow_pairs": [[0, 1]]}, "slow: nodes 0 and 1 with each other"),
        ({"slow_nodes": [], "all_reduce": []}, "no node is slow"),
    ],
)
def test_the_picture_shows_both_measurements_and_names_what_is_slow(
    tmp_path: Path, changed: dict[str, object], title: str
) -> None:
    draw(RESULT | changed, tmp_path / "result.svg")
    text = (tmp_path / "result.svg").read_text()
    for words in (title, "all-reduce", "pairs of nodes, GB/s each way"):
        assert f"<!-- {words} -->" in text
    assert ("<!-- 1 MiB -->" in text) is bool((RESULT | changed)["all_reduce"])


BY_SIZE = {
    "title": "all-reduce",
    "xlabel": "size",
    "ylabel": "bus bandwidth, GB/s",
    "ylim": (0, None),
}
SCALE = {"vmin": 0, "cmap": "viridis"}
SQUARE = [[math.nan, 1.0, 0.1], [1.0, math.nan, 0.1], [0.1, 0.1, math.nan]]


class Figure:
    """Whatever is drawn is told."""

    def __init__(self, told: list[str], name: str) -> None:
        self._told, self._name = told, name

    def __getattr__(self, name: str) -> Any:
        return self if name.endswith("axis") else Figure(self._told, name)

    def __call__(self, *args: Any, **how: Any) -> Any:
        shown = [one for one in args if not isinstance(one, Figure)]
        how = {name: value for name, value in how.items() if not isinstance(value, Figure)}
        self._told.append(f"{self._name} {shown} {how}")
        return (self, self) if self._name == "subplots" else self


def test_all_that_is_drawn_has_its_axes_and_its_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(bench_module, "new_figure", lambda *size: Figure(told, f"figure {size}"))
    monkeypatch.setattr(bench_module, "save_picture", lambda figure, path: told.append(str(path)))
    draw(RESULT, Path("/x.svg"))
    assert told == [
        "subplots [1, 2] {}",
        "plot [['4 KiB', '1 MiB'], [0.006, 1.33], 'o-'] {}",
        f"set [] {BY_SIZE}",
        f"imshow [{SQUARE}] {SCALE}",
        "set [] {'title': 'pairs of nodes, GB/s each way', 'xlabel': 'node', 'ylabel': 'node'}",
        "get_major_locator [] {}",
        "set_params [] {'integer': True}",
        "get_major_locator [] {}",
        "set_params [] {'integer': True}",
        "colorbar [] {}",
        "suptitle ['slow: node 2 (h2)'] {}",
        "/x.svg",
    ]


@pytest.mark.parametrize(
    ("words", "name"), [([], "bench-[0-9a-f]{8}"), (["--rdzv-id", "fabric"], "fabric")]
)
def test_01_a_measurement_without_a_name_gets_one(
    monkeypatch: pytest.MonkeyPatch, words: list[str], name: str
) -> None:
    launched: list[str] = []

    async def launch(settings: BenchSettings, *_: object, **__: object) -> int:
        launched.append(settings.rdzv_id or "")
        return 3

    monkeypatch.setattr("launcher.run.bench.launch", launch)
    assert bench(*words).exit_code == 3
    assert re.fullmatch(name, launched[0])


# --- what is shown of it ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slow", "code"),
    [({}, 1), ({"slow_nodes": [], "slow_pairs": [[0, 2]]}, 1), ({"slow_nodes": []}, 0)],
)
def test_its_result_is_printed_and_saved_and_something_slow_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: dict[str, Any], code: int
) -> None:
    folders: list[Path] = []
    more = {"backend": "gloo", "device": "cpu", "torch": "2.4", "too_long": 0, "usual": 1.0}
    found = RESULT | more | {"sentences": ["node 2 (h2) is slow"]} | slow

    async def launch(settings: Any, command: Any, environ: dict[str, str], **_: Any) -> int:
        path = Path(environ[RESULT_VARIABLE])
        folders.append(path.parent)
        path.write_text(json.dumps(found))
        return 0

    monkeypatch.setattr(bench_module, "launch", launch)
    kept = tmp_path / "kept.json"
    done = bench("--save", str(kept))
    assert done.exit_code == code, done.output
    assert json.loads(kept.read_text()) == found
    assert "h2" in done.stdout
    assert not folders[0].exists()
    done = bench("--json")
    assert json.loads(done.stdout) == {"bench": found}
    broken = bench("--save", str(tmp_path))
    assert f"{tmp_path}" in broken.stderr

    async def elsewhere(*_: Any, **__: Any) -> int:
        return 0

    monkeypatch.setattr(bench_module, "launch", elsewhere)
    done = bench("--rdzv-id", "b7")
    assert done.stderr.endswith("rdzv: the report is in rank 0's log: rdzv logs b7 --rank 0\n")
    assert done.exit_code == 0


@pytest.mark.parametrize(
    "options",
    [
        'framework = "command"\nends-with = "node0"',
        'warm = "on"\nwarm-import = "numpy"',
        'framework = "tensorflow"\ntf-ps = 1\ntf-chief = true',
        'rdzv-backend = "c10d"\nmax-restarts = 3',
    ],
)
def test_what_a_file_says_of_its_own_command_is_none_of_a_measurement(
    options: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'command = "serve.sh"\nlease = 9\n{options}\n')
    shown = bench("-f", str(path), "--dry-run=file")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "lease = 9\n" in shown.stdout
    assert not re.search(r'"node0"|"on"|numpy|= 1$|true|c10d|= 3$', shown.stdout, re.MULTILINE)
    for words in ("--warm on", "--ends-with node0"):
        assert bench("-f", str(path), *words.split()).exit_code == 64
