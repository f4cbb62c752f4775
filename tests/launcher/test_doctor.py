"""`rdzv doctor`: the page, its JSON, its exit codes, and that every check is documented."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from launcher.show.machine import judge_torchrun, page
from rendezvous.version import rdzv_version
from rendezvous.wire.checks import Check, Kind
from rendezvous.wire.errors import ExitCode
from tests.launcher.command import rdzv
from tests.support.machines import candidate, machine, port, roce
from tests.worker.test_user_python import script, with_torch
from worker.machine.network import Skipped
from worker.preflight import own_environment
from worker.preflight.checks import NODE_CHECKS, check_node

CHECKS_PAGE = Path(__file__).parents[2] / "docs" / "checks.md"
pytestmark = pytest.mark.usefixtures("bare")
NOISE = ("L03", "L14", "L15", "L18", "L19", "L21", "D02")
"""What machines that run the tests may well be warned of."""


def doctor(*words: str, **environ: str) -> Result:
    skips = [word for check in NOISE for word in ("--skip", check)]
    return rdzv("doctor", *words, *skips, env=environ)


def test_the_page_says_what_is_here_what_is_offered_and_what_was_checked() -> None:
    result = doctor()
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"rdzv      {rdzv_version()} on Python ")
    labels = [line.split()[0] for line in lines[: lines.index("")]]
    assert labels == ["rdzv", "launcher", "host", "program", "RDMA", "GPUs"]
    assert "launcher  all packages installed" in lines
    assert "not offered" in lines
    assert any(re.fullmatch(r"  lo\S* +127\.0\.0\.1/8 +loopback", line) for line in lines)
    assert "checks" in lines
    assert any(re.match(r"  ok    L17  variables +nothing is set for NCCL", line) for line in lines)
    assert any(line.startswith("  skipped (not asked for (--skip)): L03") for line in lines)
    assert re.search(r", 0 failed, in \d+\.\d\d s$", lines[-2])
    assert lines[-1].endswith("rdzv doctor --env")
    assert (result.stderr, result.exit_code) == ("", 0)


def test_with_strict_a_warning_fails_as_well(tmp_path: Path) -> None:
    missing = str(tmp_path / "topology.xml")
    assert doctor(NCCL_TOPO_FILE=missing).exit_code == 0
    assert doctor("--strict", NCCL_TOPO_FILE=missing).exit_code == 1
    assert doctor("--strict", "--skip", "L17", NCCL_TOPO_FILE=missing).exit_code == 0


def test_the_json_form_has_every_check_and_a_failure_is_the_exit_code() -> None:
    result = doctor("--json", GLOO_SOCKET_IFNAME="ib7")
    shown = json.loads(result.stdout)
    assert (result.exit_code, [*shown]) == (1, ["checks"])
    found = {check["check"]: check for check in shown["checks"]}
    assert [*found] == [*(check.id for check in NODE_CHECKS), "D01", "D02"]
    assert (found["D01"]["level"], found["D01"]["value"]) == ("skipped", "RDZV_REGISTRY is not set")
    assert (found["L17"]["level"], found["L19"]["level"]) == ("fail", "skipped")
    assert [*found["L17"]] == ["check", "level", "subject", "value", "expected", "cause", "fix"]


def test_a_check_that_does_not_exist_is_a_usage_error() -> None:
    result = doctor("--skip", "x2")
    assert result.exit_code == ExitCode.USAGE
    message, hint = result.stderr.splitlines()
    problem = "there is no such check; did you mean X02?"
    assert message == f"rdzv: --skip cannot be 'x2': {problem}"
    assert hint.strip().startswith("the checks of 'rdzv doctor' are L01, L02, ")
    assert doctor("--bogus").exit_code == ExitCode.USAGE


def test_the_page_of_a_machine_with_gpus_and_rdma_names_each_fault() -> None:
    """What is not this test's machine's own: all but rdzv's version and the host."""
    closed = "it is not in /dev/infiniband: the container does not have the device"
    here = machine(
        rdma=[
            *(port(number) for number in range(6)),
            *(port(number, openable=False, problem=closed) for number in (6, 7)),
            roce(8, hca_type="MT4125", rate="100 Gb/sec (4X EDR)", rate_gbps=100.0),
        ],
        candidates=(candidate(reason="Ethernet, IPv4", mtu=9000),),
        skipped=(Skipped("docker0", "172.17.0.1/16", "bridge"), Skipped("ib0", "", "down")),
        gpus_seen=8,
    )
    facts: dict[str, Any] = {
        "torch_version": "2.9.0+cu128",
        "cuda_version": "12.8",
        "driver_version": "570.10",
        "gpu_models": ["NVIDIA H100"] * 8,
    }
    here = replace(here, facts=replace(here.facts, **facts))
    found = page(here, check_node(here, skip=["L03"]), [], 0.0421)
    lines = [click.unstyle(line) for line in found]
    assert lines[3:] == [
        "program   Python 3.12 (/opt/venv/bin/python): torch 2.9.0+cu128, CUDA 12.8, NCCL 2.27.3",
        "RDMA      6 x 400 Gb/sec (4X NDR) InfiniBand MT4129",
        "          1 x 100 Gb/sec (4X EDR) RoCE MT4125",
        f"          not mlx5_6:1, mlx5_7:1 ({closed})",
        "GPUs      8 x NVIDIA H100, driver 570.10",
        "",
        "offered to the other nodes, best first",
        "  eth0     10.0.0.4/24    Ethernet, IPv4, MTU 9000",
        "not offered",
        "  docker0  172.17.0.1/16  bridge",
        "  ib0      -              down",
        "",
        "checks",
        "  ok    L01  address            10.0.0.4 (eth0)",
        "  ok    L02  own hostname       gpu-17: 10.0.0.4",
        "  ok    L04  RDMA ports         8 of 8 ports are up",
        "  ok    L05  subnet manager     every port has been configured by a subnet manager",
        "  ok    L06  RDMA rates         8 x 400 Gb/sec (4X NDR)",
        "  ok    L07  partition keys     full member of 0xffff",
        (
            f"  fail  L09  device access      mlx5_6:1, mlx5_7:1: {closed} "
            "(expected: /dev/infiniband/uverbsN, readable and writable)"
        ),
        ("                                NCCL continues without the device, or silently uses TCP"),
        (
            "                                "
            "fix: give the container its devices: docker run --device=/dev/infiniband, or the "
            "Kubernetes resource of the RDMA device plugin (rdma/...)"
        ),
        "  ok    L10  libibverbs         libibverbs can be loaded",
        "  ok    L12  locked memory      unlimited",
        "  ok    L13  GPUDirect          nvidia_peermem, or DMA-BUF by the open driver",
        "  ok    L14  shared memory      64 GiB free of 64 GiB",
        "  ok    L15  limits, processes  1048576 open files",
        "  ok    L16  GPUs               8 x NVIDIA H100, no problems",
        "  ok    L17  variables          nothing is set for NCCL or Gloo",
        "  ok    L18  disks              /work 500 GiB free, /tmp 500 GiB free",
        "  ok    L19  clock              synchronised, within 0.002 s",
        "  ok    L20  link errors        no port counted an error during the check",
        "  ok    L21  shared subnets     no two share one",
        "  skipped (not asked for (--skip)): L03",
        "  skipped (no RoCE rail is up): L08",
        "  skipped (no EFA device here): L11",
        "failed: 17 good, 0 with a warning, 1 failed, in 0.04 s",
        "to see what a symmetric start would take from the environment: rdzv doctor --env",
    ]


def test_hidden_gpus_and_a_missing_package_of_the_launcher_are_told() -> None:
    lines = [*page(machine(gpus_seen=2), [], ["uvloop", "yaml"], 0.0)]
    assert "GPUs      2, 6 hidden by CUDA_VISIBLE_DEVICES" in lines
    assert "launcher  not installed: uvloop, yaml" in lines


@pytest.mark.usefixtures("alone_on_path")
def test_the_programs_environment_is_the_one_on_the_path(tmp_path: Path) -> None:
    assert "activate the environment of your program" in doctor().stdout
    python = tmp_path / "bin/python3.12"
    (tmp_path / "bin").mkdir()
    python.write_bytes(b"\x7fELF")
    python.chmod(stat.S_IRWXU)
    (tmp_path / "bin/python3").symlink_to(python)
    seen = doctor(PATH=str(tmp_path / "bin")).stdout
    assert f"program   Python 3.12 ({tmp_path}/bin/python3): no torch\n" in seen


@pytest.mark.usefixtures("alone_on_path")
def test_a_machine_where_no_script_can_start_is_not_called_ok() -> None:
    result = rdzv("doctor", "--json", env={"PATH": "/nowhere"})
    found = {check["check"]: check for check in json.loads(result.stdout)["checks"]}["D02"]
    assert (result.exit_code, found["level"]) == (1, "fail")
    assert found["value"] == "neither on PATH nor in rdzv's own environment"
    assert "exit code 82" in found["cause"]
    assert rdzv("doctor", "--skip", "D02", env={"PATH": "/nowhere"}).exit_code == 0


def test_the_torchrun_of_rdzvs_own_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = with_torch(tmp_path / "own")
    torchrun = script(tmp_path / "own/bin/torchrun", f"#!{python}")
    monkeypatch.setattr(own_environment, "own_folders", lambda: [str(torchrun.parent)])
    lines = rdzv("doctor", env={"PATH": "/nowhere"}).stdout.splitlines()
    line = f"  ok    D02  torchrun           {torchrun}, of rdzv's own environment; PATH has none"
    assert line in lines
    assert f"program   Python 3.12 ({python}): torch 2.9.0+cu128, CUDA 12.8" in lines


@pytest.mark.parametrize(
    ("found", "torch", "own", "level"),
    [("", None, False, "fail"), ("/t", False, False, "warn"), ("/t", None, True, "ok")],
)
def test_torchrun_without_torch_is_a_warning(
    found: str, torch: bool | None, own: bool, level: str
) -> None:
    verdict = judge_torchrun(found, torch, own=own)
    assert verdict.level == level
    assert bool(verdict.fix) is (level != "ok")


def test_a_torchrun_whose_environment_was_moved_is_no_torchrun(tmp_path: Path) -> None:
    torchrun = script(tmp_path / "torchrun", "#!/nosuch/bin/python\n")
    lines = rdzv("doctor", env={"PATH": f"{tmp_path}"}).stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if "D02" in line)
    assert lines[at].split()[:4] == ["fail", "D02", "torchrun", f"{torchrun}"]
    assert "its interpreter '/nosuch/bin/python' is not there" in lines[at + 1]


def test_the_page_shows_no_secret_and_moves_no_cursor() -> None:
    secrets = {"RDZV_JOIN": "rdzv1-secret", "RDZV_TOKEN": "hidden-token"}
    result = doctor(GLOO_SOCKET_IFNAME="a\x1b[2Jb", **secrets)
    assert "secret" not in result.output
    assert "hidden-token" not in result.output
    assert "\x1b[2J" not in result.output


# ---- the documentation --------------------------------------------------------------------------


ENTRY = re.compile(r"^- `(\w+)` \S.*\.\n  (\S.*) \(\S.*\) -> \S.*[^.]$", re.MULTILINE)
"""What holds; then the level, how it is seen, and the fix."""


def documented() -> dict[str, dict[str, str]]:
    """Under each heading of the page, the level of each check."""
    parts = re.split(r"^## (.*)\n", CHECKS_PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        head: dict(ENTRY.findall(text)) for head, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_check_is_documented_under_what_it_looks_at() -> None:
    """With what, how, how bad and what to do."""
    ids = {head: [*levels] for head, levels in documented().items()}
    of_kinds = {kind.value: [c.id for c in Check if c.kind is kind] for kind in Kind}
    assert ids == {"Before a long job": [], **of_kinds, "After the start": ["P01"]}


def test_a_check_fails_a_run_only_where_its_entry_says_so() -> None:
    levels = dict(chain.from_iterable(one.items() for one in documented().values()))
    for check in Check:
        fails = re.search(r"\bfail\b", levels[check.id])
        assert check.worst == ("fail" if fails else "warn"), check
