"""What was checked before the start, as a person reads it, and as a picture."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.show.checks import (
    check_lines,
    draw_heat_map,
    draw_round,
    lines_of,
    rtt_line,
    scale,
    warning_lines,
    with_numbers,
)
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.node import Finding
from rendezvous.wire.run import Round, RunReport
from rendezvous.wire.verify import PairProbe
from tests.launcher.command import launched, rdzv
from tests.support.mesh import ETH, RAIL, both, into, tried

NAMES = {slot: f"h{slot}" for slot in range(128)}


def report(*rounds: Round, findings: list[Finding] | None = None) -> RunReport:
    return RunReport(run="llama", hostnames=NAMES, rounds=list(rounds), findings=findings or [])


NCCL = Finding(
    check="X02",
    level="fail",
    slot=9,
    subject="NCCL",
    value="2.19.3",
    expected="2.21.5",
    cause="slot 9 (h9) is the only node with NCCL 2.19.3; the 15 others have 2.21.5",
    fix="use one image",
)
SHM = Finding(
    check="L14",
    level="warn",
    slot=3,
    subject="/dev/shm",
    value="512 MiB",
    expected="at least 1 GiB",
    cause="NCCL keeps its buffers there",
    fix="docker run --shm-size 1g",
)
CUDA = Finding(check="X02", level="ok", subject="CUDA", cause="all nodes have CUDA 12.6")
GPUS = Finding(check="X03", level="skipped", cause="the nodes are split 8/8 over GPU count")


# --- when it starts all the same ------------------------------------------------------------------


def odd(slot: int) -> Finding:
    cause = f"slot {slot} (h{slot}) is alone with driver 535.54; the 15 others have 550.90"
    return Finding(check="X03", level="warn", slot=slot, subject="driver", cause=cause)


WRONG = Finding(
    check="L17",
    level="warn",
    slot=3,
    subject="GLOO_SOCKET_IFNAME",
    value="lo",
    expected="eth0",
    cause="it excludes the interface that the table uses",
    fix="unset GLOO_SOCKET_IFNAME",
)
SLOW = replace(WRONG, subject="NCCL_TOPO_FILE")
SHOWS = "rdzv status llama --checks"


def test_at_the_start_a_difference_is_told_and_a_wrong_interface_with_what_mends_it() -> None:
    wrong, alone = warning_lines(report(findings=[odd(9), WRONG]))
    assert wrong == (
        "warning: slot 3 (h3): GLOO_SOCKET_IFNAME lo, expected eth0: it excludes the "
        "interface that the table uses (L17); unset GLOO_SOCKET_IFNAME"
    )
    words = "slot 9 (h9) is alone with driver 535.54; the 15 others have 550.90"
    assert alone == f"warning: {words} (X03)"


@pytest.mark.parametrize(
    ("findings", "lasts", "told", "counted"),
    [
        ([CUDA, GPUS], True, {}, ""),  # nothing is said of what is good
        ([SHM], True, {}, f"1 warning of the checks: {SHOWS}"),
        ([CUDA, SHM, GPUS, odd(9)], True, {"X03": 1}, f"1 more warning of the checks: {SHOWS}"),
        ([SHM, *map(odd, range(20))], True, {"X03": 8}, f"13 more warnings of the checks: {SHOWS}"),
        (
            *([SHM, SLOW, *map(odd, range(9)), WRONG], True),
            *({"L17": 1, "X03": 7}, f"4 more warnings of the checks: {SHOWS}"),
        ),
        # Where no command can show them afterwards, the nodes' own are told too.
        ([SHM, odd(9)], False, {"X03": 1, "L14": 1}, ""),
        ([SHM, *map(odd, range(30))], False, {"X03": 20}, "11 more warnings of the checks"),
    ],
)
def test_at_the_start_some_warnings_are_told_and_the_others_counted(
    findings: list[Finding], lasts: bool, told: dict[str, int], counted: str
) -> None:
    lines = warning_lines(report(findings=findings), lasts=lasts)
    assert [line for line in lines if "(" not in line] == ([counted] if counted else [])
    checks = [found for line in lines for found in re.findall(r"\(([XL]\d\d)\)", line)]
    assert checks == [check for check, count in told.items() for _ in range(count)]


# --- below a failure ------------------------------------------------------------------------------


def test_below_a_failure_stand_findings_with_what_mends_them_and_the_matrix() -> None:
    good = report(
        tried(3, [(0, 1), (1, 2), (2, 0)]).model_copy(update={"verdict": "3 of 6 pairs failed"}),
        tried(3, into(2, 3), network=RAIL),
        findings=[CUDA, SHM, GPUS, NCCL],
    )
    assert lines_of(good) == [
        "fail    X02  slot 9 (h9) is the only node with NCCL 2.19.3; the 15 others have 2.21.5",
        "             use one image",
        (
            "warn    L14  slot 3 (h3): /dev/shm 512 MiB, expected at least 1 GiB: "
            "NCCL keeps its buffers there"
        ),
        "             docker run --shm-size 1g",
        f"{ETH}: 3 of 6 pairs failed",
        f"{RAIL}: 2 of 6 directed pairs fail",
        "  from \\ to  0 1 2",
        "  0 h0       - . T",
        "  1 h1       . - T",
        "  2 h2       . . -",
        "  . good, T no answer",
    ]


def test_what_all_nodes_found_alike_is_told_once() -> None:
    alike = [replace(SHM, slot=slot) for slot in range(128)]
    assert lines_of(report(findings=alike))[0] == (
        "warn    L14  all 128 nodes: /dev/shm 512 MiB, expected at least 1 GiB: "
        "NCCL keeps its buffers there"
    )
    assert lines_of(report(findings=alike[4:8]))[0].startswith("warn    L14  slots 4-7: /dev/shm")
    assert lines_of(report(findings=alike[4:6]))[0].startswith(
        "warn    L14  slot 4 (h4), slot 5 (h5): /dev/shm"
    )


def test_of_many_findings_the_worst_are_shown() -> None:
    many = [replace(SHM, slot=s, value=f"{s} MiB") for s in range(128)]
    lines = lines_of(report(findings=[*many, NCCL]))
    assert lines_of(report()) == []
    assert len(lines) == 2 * 20 + 1
    assert lines[0].startswith("fail    X02")
    assert lines[-1] == "and 109 more findings: rdzv status llama --checks"


# --- rdzv status ----------------------------------------------------------------------------------


def test_all_checks_are_listed_the_worst_first() -> None:
    lines = check_lines(report(findings=[CUDA, GPUS, SHM, NCCL]))
    assert [line[:11] for line in lines[:4:2]] == ["fail    X02", "warn    L14"]
    assert lines[4:] == [
        "ok      X02  all nodes have CUDA 12.6",
        "skipped (the nodes are split 8/8 over GPU count): X03",
        "1 failed, 1 warning, 1 skipped, 1 ok",
    ]
    assert check_lines(report()) == ["the checks have not found anything yet"]


def test_the_time_of_the_good_pairs_is_told() -> None:
    round_ = tried(4, both((0, 1)), probe=lambda a, b: {"rtt_ms": 1.9 if (a, b) == (2, 3) else 0.2})
    assert rtt_line(round_, report(round_)) == (
        "round-trip time: median 0.2 ms, longest 1.9 ms (slot 2 (h2) to slot 3 (h3))"
    )
    nothing = tried(2, both((0, 1)))
    assert rtt_line(nothing, report(nothing)) == ""


def state_of_run(root: Path, kept: RunReport | None = None) -> StateDir:
    state = launched(root)
    if kept is not None:
        state.write("report.json", kept.model_dump_json().encode())
    return state


def test_after_the_run_its_checks_are_still_known(tmp_path: Path) -> None:
    state_of_run(tmp_path, report(tried(3, into(2, 3)), findings=[NCCL]))
    checks = rdzv("status", "llama", "--checks", state=tmp_path)
    assert (checks.exit_code, checks.stdout.splitlines()[-1]) == (0, "1 failed")
    matrix = rdzv("status", "llama", "--matrix", state=tmp_path)
    assert matrix.exit_code == 0
    assert matrix.stdout.splitlines()[3:] == [
        "  1 h1       . - T",
        "  2 h2       . . -",
        "  . good, T no answer",
        "round-trip time: median 0.2 ms, longest 0.2 ms (slot 2 (h2) to slot 1 (h1))",
    ]


def test_checks_and_matrix_are_there_as_json(tmp_path: Path) -> None:
    kept = report(tried(2), findings=[NCCL])
    state_of_run(tmp_path, kept)
    checks = rdzv("status", "llama", "--checks", "--json", state=tmp_path)
    assert RunReport.model_validate_json(checks.stdout) == kept
    matrix = json.loads(rdzv("status", "llama", "--matrix", "--json", state=tmp_path).stdout)
    assert sorted(matrix) == ["hostnames", "rounds", "run"]


def test_where_nothing_was_probed_that_is_said(tmp_path: Path) -> None:
    state_of_run(tmp_path, report())
    words = "the nodes of run 'llama' have not probed each other (yet, or --verify off)"
    assert rdzv("status", "llama", "--matrix", state=tmp_path).stdout == f"{words}\n"
    drawn = rdzv("status", "llama", "--matrix", str(tmp_path / "m.svg"), state=tmp_path)
    assert (drawn.exit_code, drawn.stderr) == (ExitCode.USAGE, f"rdzv: {words}\n")


def test_of_a_run_whose_registry_is_gone_and_that_kept_nothing_that_is_said(tmp_path: Path) -> None:
    state = state_of_run(tmp_path)
    result = rdzv("status", "llama", "--checks", state=tmp_path)
    assert result.exit_code == ExitCode.USAGE
    assert "there are no check results for run 'llama': " in result.stderr
    assert "the checks run when all nodes have joined" in result.stderr
    state.write("report.json", b"{")
    assert rdzv("status", "llama", "--checks", state=tmp_path).exit_code == ExitCode.USAGE


# --- the picture ----------------------------------------------------------------------------------


@pytest.mark.plot
@pytest.mark.parametrize("size", [4, 70])
def test_a_round_is_drawn(size: int, tmp_path: Path) -> None:
    """Reports of others than the run's nodes are not."""
    foreign = {7_000: [PairProbe(slot=0, outcome="ok", rtt_ms=1.0)]}
    round_ = tried(size, into(2, size))
    round_ = round_.model_copy(update={"reports": dict(round_.reports) | foreign})
    draw_heat_map(round_, {0: "a$b$", 1: "<b>&"}, tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def colours(times: dict[tuple[int, int], float]) -> dict[tuple[int, int], tuple[float, ...]]:
    """The colours of pairs of four nodes, of which these need so many milliseconds to answer."""
    from matplotlib.figure import Figure

    reports = {
        one: [
            PairProbe(slot=other, outcome="ok", rtt_ms=times.get((one, other), 0.005))
            for other in range(4)
            if other != one
        ]
        for one in range(4)
    }
    figure = Figure()
    draw_round(figure, tried(4).model_copy(update={"reports": reports}), {})
    picture: Any = figure.axes[0].images[0]
    drawn = picture.cmap(picture.norm(picture.get_array()))
    return {
        (one, other): tuple(drawn[one][other])
        for one in range(4)
        for other in range(4)
        if other != one
    }


@pytest.mark.plot
def test_no_difference_of_microseconds_has_a_colour_of_its_own() -> None:
    """On one machine a pair may take a hundred times as long as another, which means nothing."""
    assert len(set(colours({}).values())) == 1
    assert colours({(0, 1): 0.05, (1, 2): 0.3, (2, 3): 0.9}) == colours({})


@pytest.mark.plot
def test_what_takes_much_longer_than_usual_has_the_last_colour_and_more_than_a_little() -> None:
    usual = colours({})[0, 1]
    found = colours({(0, 1): 20.0, (1, 2): 4.0})
    slow, less = found.pop((0, 1)), found.pop((1, 2))
    assert set(found.values()) == {usual}
    assert len({usual, less, slow}) == 3
    assert slow == pytest.approx((0.993248, 0.906157, 0.143936, 1.0))  # viridis ends in yellow


@pytest.mark.parametrize(
    ("times", "ends"),
    [
        ([], (1.0, 2.0)),
        ([0.005] * 5, (1.0, 2.0)),
        ([0.005, 0.005, 0.3], (1.0, 2.0)),
        ([0.005, 0.005, 50.0], (1.0, 50.0)),  # beyond what any loopback takes
        ([2.0, 2.0, 2.1], (6.0, 12.0)),  # between distant places all is slow, and usual
        ([2.0, 2.0, 40.0], (6.0, 40.0)),
    ],
)
def test_the_colours_begin_above_what_is_usual_and_matters(
    times: list[float], ends: tuple[float, float]
) -> None:
    assert scale(times) == ends


@pytest.mark.plot
def test_the_picture_is_asked_for_by_a_files_name(tmp_path: Path) -> None:
    state_of_run(tmp_path, report(tried(2, both((0, 1)))))  # nothing is good
    path = tmp_path / "m.svg"
    drawn = rdzv("status", "llama", "--matrix", str(path), state=tmp_path)
    assert drawn.stdout == f"drawn: {path}\n"
    assert b"<svg" in path.read_bytes()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({}, "slot 1 (h1), slots 2-3 differ"),
        ({1: None}, "slot 1 (h1), slots 2-3 differ"),
        ({1: 2, 2: 1}, "slot 1 (h1), slots 2-3 differ"),
        ({1: 1, 4: None}, "node 1 (h1), nodes 2-3 differ"),
    ],
)
def test_a_slot_is_a_node_once_their_numbers_are_the_same(
    numbers: dict[int, int | None], text: str
) -> None:
    assert with_numbers(numbers)("slot 1 (h1), slots 2-3 differ") == text
