"""The command `rdzv look`, and the options of a launch that are about stalls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.hang import FEATURE, view
from features.hang.options import Options
from launcher.cli.help import code_help
from launcher.settings import LaunchSettings
from launcher.torchrun.asked import host_settings, node_settings, read_asked
from launcher.torchrun.words import Next
from rendezvous.feature import locating_command
from rendezvous.wire.errors import ExitCode
from tests.launcher.command import launched, plan_of, rdzv
from tests.torchrun.test_asked import begin
from worker.options import observes, specs_of
from worker.settings import WorkerSettings

NOTHING = {"again": None, "everything": False, "as_json": False, "save": None}
ALL = {"again": 11.0, "everything": True, "save": Path("look.json")}


@pytest.mark.parametrize("run", ["llama", "ama"])
@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("", {}),
        ("--again 11 --all --save look.json", ALL),
        ("--json", {"as_json": True}),
        ("--again 11 --all --save look.json --json", ALL | {"as_json": True}),
    ],
)
def test_it_looks_at_a_run_that_a_part_of_its_id_names(
    run: str, line: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def show(root: Path, run: str, **how: Any) -> int:
        asked.append((root, run, how))
        return 5

    launched(tmp_path)
    monkeypatch.setattr(view, "show_look", show)
    done = rdzv("look", run, *line.split(), state=tmp_path)
    assert (done.exit_code, done.stderr) == (5, "rdzv: run 'llama'\n" * (run == "ama"))
    assert asked == [(tmp_path, "llama", NOTHING | more)]


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_a_second_look_is_after_a_number_of_seconds(word: str) -> None:
    done = rdzv("look", "x", "--again", word)
    assert done.stderr.startswith(f"rdzv: --again cannot be {word}: it must be a finite number\n")
    assert done.exit_code == 64


def test_it_stands_before_the_page() -> None:
    words = "look Show where every rank of a run is now, and which one the others wait for. ui "
    assert f" {words}" in " ".join(rdzv("--help").stdout.split())


def test_others_name_it_and_the_exit_code_of_a_stall_names_the_option() -> None:
    assert locating_command("llama") == "rdzv look llama"
    words = "nothing moved any more on any node for as long as '--stall-timeout' allows"
    assert code_help(ExitCode.STALLED) == words
    assert {*FEATURE.codes} == {ExitCode.STALLED}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "--stall-timeout nan",
            [
                "--stall-timeout cannot be nan: it must be at most 1000000",
                "--stall-timeout: With --stall end: for how long nothing may move on any node.",
            ],
        ),
        (
            "--stal-timeout 3",
            ["No such option '--stal-timeout'", "did you mean '--stall-timeout'?"],
        ),
    ],
)
def test_a_wrong_time_of_a_stall_is_refused(line: str, words: list[str]) -> None:
    done = rdzv("launch", "--nnodes", "2", *line.split(), "--", "t.py")
    assert done.stderr == f"rdzv: {words[0]}\n      {words[1]}\n"
    assert done.exit_code == 64


@pytest.mark.parametrize(
    ("given", "options", "spec"),
    [
        ({}, [], {}),
        ({"stall": "warn"}, [], {}),
        ({"stall": "off"}, ["--stall", "off"], {}),
        (
            {"stall": "end", "stall_timeout": 1_400.0},
            ["--stall", "end", "--stall-timeout", "1400"],
            {"hang": {"timeout_seconds": 1_400.0}},
        ),
    ],
)
def test_each_node_is_given_them_and_the_registry_knows_the_time(
    given: dict[str, Any], options: list[str], spec: dict[str, Any]
) -> None:
    settings = plan_of("./t", nnodes="2", **given).settings
    assert {name: value for name, value in specs_of(settings).items() if name == "hang"} == spec
    assert observes(settings) == (given.get("stall") != "off")
    for slot in (0, 1):
        words = plan_of("./t", nnodes="2", **given).worker_options(slot)
        at = words.index("--stall") if options else 0
        assert words[at : at + len(options)] == options
        assert len([word for word in words if word.startswith("--stall")]) == len(options) // 2


def test_beside_a_torchrun_that_asks_for_a_table_nothing_looks_on() -> None:
    asked = read_asked(begin())
    given = WorkerSettings.model_validate({"stall": "warn"})
    node = node_settings(asked, Next(kind="next", processes=6, role="reader"), given)
    ends = LaunchSettings.model_validate({"stall": "end", "stall_timeout": 9.0})
    for one in (node, host_settings(asked, ends)):
        assert [getattr(one, name) for name in Options.model_fields] == ["off", None]
