"""What NCCL is told, and what its logs say of its network: lists, files, lines and verdicts."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.wire.reports import ExitReport, ProgressReport
from worker.agent.reports import with_trouble
from worker.nccl.conf import read_conf
from worker.nccl.env import Given, conf_values, network_kind, selects
from worker.nccl.log import NcclLog
from worker.nccl.verdict import Heard, NetworkVerdict, judge, take_in

LOGS = Path(__file__).parent / "nccl"


# ---- what it is told -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "how", "takes", "leaves"),
    [
        ("eth10", {}, "eth eth1", "=eth1 ib,,"),
        ("eth1", {}, "=eth1 =ib0,eth1:4000 ^docker,lo", ""),
        ("docker0", {}, "^=docker", "^docker,lo ^=docker0"),
        ("m_10", {"port": 2}, "m m_1 =m_10:2 m_1:2 =m_9:1,m_10:2:0:1", "=m_1 =m_10:1 m_1:1"),
        ("m_10", {"port": 2}, "^=m_1 ^=m_10:1", "^m_1 ^=m_10:2"),
        ("eth1", {"exact": True}, "eth1 ib0,eth1", "eth"),  # Gloo takes whole names
    ],
)
def test_a_list_takes_beginnings_unless_a_sign_says_otherwise(
    name: str, how: dict[str, Any], takes: str, leaves: str
) -> None:
    assert [words for words in takes.split() if not selects(words, name, **how)] == []
    assert [words for words in ["", *leaves.split()] if selects(words, name, **how)] == []


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("IB", ["IB", "IBext", "IBext_v8", "gIB", "UCX"]),
        ("Socket", ["Socket", "FastSocket"]),
        ("Libfabric", ["Libfabric", "AWS Libfabric"]),
        ("", ["GPUDirectTCPX_v7", ""]),
    ],
)
def test_a_networks_name_tells_its_kind(kind: str, names: list[str]) -> None:
    assert {network_kind(name) for name in names} == {kind}


def test_a_file_is_read_line_by_line_as_nccl_does() -> None:
    text = "# NCCL_NET=Socket\nNCCL_NET=IB\nNCCL_NET=Socket\n NCCL_ALGO=Ring\nNCCL_DEBUG = INFO\n"
    text += "NCCL_IB_HCA==mlx5_0,mlx5_1\r\nNCCL_EMPTY=\nno sign\nNCCL_NO_SIGN\nPATH=/evil\n"
    assert conf_values(text) == {
        "NCCL_NET": "IB",
        "NCCL_DEBUG ": " INFO",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1\r",
        "NCCL_EMPTY": "",
    }


def test_the_users_file_or_the_one_that_is_named_comes_before_the_systems(tmp_path: Path) -> None:
    system, users, named = (tmp_path / name for name in ("nccl.conf", ".nccl.conf", "cluster.conf"))
    system.write_text("NCCL_NET=Socket\nNCCL_DEBUG=WARN\n")
    users.write_text("NCCL_NET=IB\n")
    named.write_text("NCCL_NET=gIB\n")
    debug = {"NCCL_DEBUG": Given("WARN", str(system))}
    found = read_conf({}, home=tmp_path, system=system)
    assert found == debug | {"NCCL_NET": Given("IB", str(users))}
    found = read_conf({"NCCL_CONF_FILE": str(named)}, home=tmp_path, system=system)
    assert found == debug | {"NCCL_NET": Given("gIB", str(named))}


def test_files_that_are_none_say_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".nccl.conf").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\x00NCCL_NET=IB\nNCCL_ALGO=\xff\n")
    assert read_conf({}, home=tmp_path, system=tmp_path / "pipe") == {}
    found = read_conf({}, home=tmp_path, system=tmp_path / "binary")
    assert set(found) == {"NCCL_ALGO"}
    assert read_conf({"NCCL_CONF_FILE": "x" * 5_000}, system=tmp_path / "none") == {}


def test_an_account_that_the_image_does_not_know_has_no_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "nccl.conf"
    system.write_text("NCCL_NET=IB\n")
    monkeypatch.setattr(os, "getuid", lambda: 2_147_483_646)
    assert read_conf({}, system=system) == {"NCCL_NET": Given("IB", str(system))}


# ---- its words of its network --------------------------------------------------------------------

INSTALL = (
    "libibverbs cannot be loaded; install it in the image, with its providers "
    "(rdma-core: libibverbs1, ibverbs-providers)"
)
DEVICE = (
    "it cannot open mlx5_0; give the container /dev/infiniband (for example --device "
    "/dev/infiniband) and unlimited memlock"
)
STARTS = (
    "Using network ",
    "NET/Socket : Using [0]",
    "NCCL_NET set by environment to ",
    "Failed to initialize any NET plugin",
    " via NET/IB/0",
)
FOUR = "mlx5_ib0, mlx5_ib1, mlx5_ib2, mlx5_ib3"
FALLBACK = "NCCL uses sockets (eth0), but InfiniBand or RoCE was expected: "
NO_PORT = (
    "NCCL uses sockets (eth0, ib0), but EFA was expected: it found no usable RDMA port; run "
    "'rdzv doctor' on that node to see why"
)
UNUSABLE = f"NCCL cannot use IB, the only network that it is allowed to use: {INSTALL}"


def heard(name: str) -> Heard:
    found = Heard()
    for line in (LOGS / f"{name}.log").read_text().splitlines():
        take_in(found, line)
    return found


def verdicts(*names: str, expected: str = "IB", required: bool = False) -> list[NetworkVerdict]:
    return list(judge([heard(name) for name in names], expected, required=required))


@pytest.mark.parametrize(
    ("name", "expected", "words"),
    [
        ("ib", "IB", f"IB ({FOUR}) with GPUDirect"),
        ("ib_2_27", "IB", "IB (mlx5_0, mlx5_1) with GPUDirect"),
        ("ibext", "IB", "IBext (mlx5_0, mlx5_1)"),
        ("ib", "", f"IB ({FOUR}) with GPUDirect"),
        ("efa", "Libfabric", "AWS Libfabric with GPUDirect"),
        ("sockets", "Socket", "Socket"),
        ("sockets", "", "Socket"),
    ],
)
def test_what_was_expected_is_told_with_its_ports(name: str, expected: str, words: str) -> None:
    assert verdicts(name, expected=expected) == [
        NetworkVerdict("as_expected", "ok", f"NCCL uses {words}")
    ]


def test_processes_that_have_not_said_anything_are_no_verdict() -> None:
    assert list(judge([], "IB", required=True)) == []
    assert list(judge([Heard()], "IB", required=True)) == []


@pytest.mark.parametrize(
    ("name", "expected", "kind", "words"),
    [
        ("no_library", "IB", "fallback", FALLBACK + INSTALL),
        ("no_library_2_30", "IB", "fallback", FALLBACK + INSTALL),
        ("unopened", "IB", "fallback", FALLBACK + DEVICE),
        ("disabled", "IB", "fallback", f"{FALLBACK}NCCL_IB_DISABLE is set; unset it"),
        ("sockets", "Libfabric", "fallback", NO_PORT),
        ("not_found", "IB", "unusable", UNUSABLE),
        ("not_found_2_27", "IB", "unusable", UNUSABLE),
    ],
)
def test_what_keeps_nccl_from_its_network_is_told_with_its_cause_and_what_to_do(
    name: str, expected: str, kind: Any, words: str
) -> None:
    levels: dict[bool, Any] = {False: "warn", True: "fail"}
    for required, level in levels.items():
        found = verdicts(name, expected=expected, required=required)
        assert found == [NetworkVerdict(kind, level, words)]


def test_required_rdma_expects_it_whatever_the_table_knows() -> None:
    [found] = verdicts("no_library", expected="", required=True)
    assert (found.kind, found.level) == ("fallback", "fail")


def test_a_fall_back_of_some_processes_says_of_how_many() -> None:
    some = ("ib", "no_library", "ib", "ib")
    [found] = verdicts(*some)
    assert found.words == FALLBACK.replace("(eth0)", "(eth0) in 1 of 4 processes") + INSTALL
    [grave] = verdicts(*some, required=True)  # the first that falls back ends the run
    assert grave.words == FALLBACK + INSTALL


def test_data_that_goes_through_the_hosts_memory_is_a_warning_also_where_rdma_is_required() -> None:
    found = verdicts("host_memory", required=True)
    kinds = [(one.kind, one.level) for one in found]
    assert kinds == [("host_memory", "warn"), ("as_expected", "ok")]
    assert found[0].words == (
        "NCCL uses IB without GPUDirect: all data goes through the host's memory; load "
        "nvidia_peermem (modprobe nvidia_peermem), or a driver with DMA-BUF"
    )


def test_nodes_with_different_numbers_of_devices_are_a_warning() -> None:
    assert [one.kind for one in verdicts("uneven")] == ["uneven", "as_expected"]


@given(st.text(max_size=200))
def test_any_line_is_taken_and_what_is_told_of_it_fits_a_report(line: str) -> None:
    found = Heard()
    for start in STARTS:
        take_in(found, f"n1:1:1 [0] NCCL INFO {start}{line}")
    for verdict in judge([found], "IB", required=True):
        assert ProgressReport(epoch=1, words=verdict.words).words == verdict.words


def test_what_the_program_prints_of_its_own_is_no_line_of_nccls() -> None:
    found = Heard()
    take_in(found, "step 3: Using network Socket")
    assert found == Heard()


def test_many_ports_are_cut_short() -> None:
    found = Heard()
    ports = " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(12))
    take_in(found, f"n1:1:1 [0] NCCL INFO NET/IB : Using {ports} [RO]; OOB eth0:10.0.0.1<0>")
    assert found.ports == [*(f"mlx5_{n}" for n in range(7)), "5 more"]


def test_each_channel_is_counted_and_those_that_are_direct() -> None:
    found = Heard()
    for number, how in enumerate(("", "/GDRDMA", "", "/GDRDMA", "")):
        line = f"n1:1:1 [0] NCCL INFO Channel 0{number}/0 : 0[0] -> 1[0] [send] via NET/IB/0{how}"
        take_in(found, line)
    assert (found.channels, found.direct_channels) == (5, 2)


def test_the_words_of_one_process_need_not_wait_for_ever(tmp_path: Path) -> None:
    """It is quiet for three looks in a row, and not for two of which one has news between."""
    log = follow(tmp_path)
    path = says(tmp_path, "no_library")
    looks = [len(log.look()) for _ in range(3)]
    with path.open("a") as file:
        file.write("n1:1:1 [0] NCCL TRACE 1\n")
    looks += [len(log.look()) for _ in range(4)]
    assert looks == [0, 0, 0, 0, 0, 0, 1]


# ---- its logs, as they grow ----------------------------------------------------------------------

LOOKS = 20


def kinds(log: NcclLog, looks: int = LOOKS) -> list[str]:
    """What is said in so many looks, in this order."""
    return [verdict.kind for _ in range(looks) for verdict in log.look()]


def follow(folder: Path, name: str = "node-0.%p.log", **how: Any) -> NcclLog:
    return NcclLog(str(folder / name), "IB", **({"required": False} | how))


def says(folder: Path, log: str, process: object = 1) -> Path:
    """A process writes what NCCL once wrote."""
    return Path(shutil.copy(LOGS / f"{log}.log", folder / f"node-0.{process}.log"))


def test_what_is_wrong_is_said_once_and_so_is_what_is_well(tmp_path: Path) -> None:
    log = follow(tmp_path)
    assert kinds(log) == []
    says(tmp_path, "host_memory", 17)
    assert kinds(log) == ["host_memory", "as_expected"]
    says(tmp_path, "host_memory", 18)
    assert kinds(log) == []


def test_a_fall_back_waits_for_the_words_of_all_processes(tmp_path: Path) -> None:
    log = follow(tmp_path)
    for number, name in enumerate(["no_library", "ib", "ib", "ib"]):
        says(tmp_path, name, number)
        assert log.look() == []
    said = [verdict for _ in range(LOOKS) for verdict in log.look()]
    assert [one.kind for one in said] == ["fallback"]
    assert "in 1 of 4 processes" in said[0].words


def test_a_fall_back_is_said_also_when_the_log_is_never_quiet(tmp_path: Path) -> None:
    log = follow(tmp_path)
    path = says(tmp_path, "no_library")
    said: list[str] = []
    for number in range(LOOKS):
        with path.open("a") as file:
            file.write(f"n1:1:1 [0] NCCL TRACE {number}\n")
        said += kinds(log, 1)
    assert said == ["fallback"]


def test_a_line_that_is_written_in_two_pieces_is_one(tmp_path: Path) -> None:
    log = follow(tmp_path, required=True)
    path = says(tmp_path, "no_library")
    text = path.read_bytes()
    path.write_bytes(text[: text.index(b"network Socket")])
    assert log.look() == []
    path.write_bytes(text)
    assert [(one.kind, one.level) for one in log.look()] == [("fallback", "fail")]  # at once


def test_a_log_that_grows_again_and_again_is_read_once(tmp_path: Path) -> None:
    log = follow(tmp_path)
    text = (LOGS / "ib.log").read_bytes()
    path = tmp_path / "node-0.1.log"
    for piece in (text[:100], text[100:900], text[900:], b"one\n", b"two"):
        with path.open("ab") as file:
            file.write(piece)
        log.look()
        [read] = log._files.values()
        assert read.offset == path.stat().st_size
    [read] = log._files.values()
    whole = Heard()
    for line in text.decode().splitlines():
        take_in(whole, line)
    assert (read.heard, read.rest) == (whole, b"two")


async def test_what_is_to_be_said_comes_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    log = follow(tmp_path, look_seconds=0.0)
    said: Any = log.verdicts()
    says(tmp_path, "host_memory", 17)
    assert [(await anext(said)).kind for _ in range(2)] == ["host_memory", "as_expected"]
    await said.aclose()


@pytest.mark.parametrize(("log", "is_bad"), [("ib", False), ("no_library", True)])
def test_what_stands_in_the_way_is_told_of_a_program_that_failed(
    tmp_path: Path, log: str, is_bad: bool
) -> None:
    follows = follow(tmp_path)
    says(tmp_path, log)
    assert bool(follows.trouble()) == is_bad


def test_what_a_former_program_has_left_does_not_count_until_written_anew(tmp_path: Path) -> None:
    path = says(tmp_path, "no_library")
    os.utime(path, ns=(1, 1))
    log = follow(tmp_path)
    assert kinds(log) == []
    path.write_bytes((LOGS / "ib.log").read_bytes())
    assert kinds(log) == ["as_expected"]


def test_a_file_that_another_process_begins_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log = follow(tmp_path)
    says(tmp_path, "host_memory")
    log.look()
    says(tmp_path, "ibext")
    assert kinds(log) == ["as_expected"]


def test_only_this_hosts_files_are_read_where_the_name_has_the_host(tmp_path: Path) -> None:
    log = follow(tmp_path, required=True, name="100%%[1].%h.%p.log")
    host = socket.gethostname().partition(".")[0]
    for name, said in (("elsewhere", []), (host, ["fallback"])):
        shutil.copy(LOGS / "no_library.log", tmp_path / f"100%[1].{name}.1.log")
        assert kinds(log, 1) == said


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "node-0.0.log").symlink_to(tmp_path / "none")
    log = follow(tmp_path, required=True)
    (tmp_path / "node-0.1.log").mkdir()
    (tmp_path / "node-0.2.log").symlink_to(tmp_path / "none")
    path = says(tmp_path, "ib", 3)
    assert kinds(log) == ["as_expected"]
    path.unlink()
    assert kinds(log) == []


def test_of_endless_logs_the_start_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.nccl.log._MOST_OF_A_FILE", 4_096)
    monkeypatch.setattr("worker.nccl.log._MOST_AT_ONCE", 1_024)
    log = follow(tmp_path, required=True)
    path = says(tmp_path, "no_library")
    path.write_bytes(b"x" * 8_192 + b"\n" + path.read_bytes())
    assert kinds(log) == []


def test_a_program_that_failed_is_told_with_what_kept_it_from_its_network(tmp_path: Path) -> None:
    log = follow(tmp_path)
    assert log.trouble() == ""
    says(tmp_path, "not_found")
    report = ExitReport(epoch=1, exit_code=1, message="rank 3 ended with exit code 1")
    told = with_trouble(report, log.trouble())
    assert told.message.startswith(
        "rank 3 ended with exit code 1; NCCL cannot use IB, the only network that it is "
        "allowed to use: libibverbs cannot be loaded; "
    )
    assert with_trouble(report, "") == report
    silent = report.model_copy(update={"message": ""})
    assert with_trouble(silent, "why").message == "why"


async def test_verdicts_come_as_long_as_they_are_asked_for(tmp_path: Path) -> None:
    log = follow(tmp_path, look_seconds=0.0)
    says(tmp_path, "ib")
    async for verdict in log.verdicts():
        assert verdict.kind == "as_expected"
        break
