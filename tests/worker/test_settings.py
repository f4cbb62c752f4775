"""What a worker can be told: each value at its bounds and beyond."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import read_bytes
from worker.counts import check_processes, read_size
from worker.program.state_home import usual_home as state_home
from worker.settings import WorkerSettings

OWN_HOME = pwd.getpwuid(os.getuid()).pw_dir


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        ("nnodes", ["1", "20000", "1:20000"], ["0", "1:20001", "2:1", "1:2:3"]),
        ("nproc_per_node", ["1", "4096", "auto", "gpu", "cpu", "1,auto,4096"], ["0", "4097", ""]),
        ("address", [["10.0.0.1"], ["fd00::1", "127.0.0.1"]], [["10.0.0.256"], ["node1"], [""]]),
        ("network", [["10.0.0.0/8"], ["10.0.0.7/24"], ["fd00::/64"]], [["10.0.0.0/33"], ["eth0"]]),
        ("master_port", [None, 1, 65_535], [0, 65_536]),
        (
            "probe_ports",
            [None, "1024", "1024-65535", "41000-41000"],
            ["", "1023", "1024-65536", "5000-4999", "4000-", "-5000", "a-b", "4000-5000-6000"],
        ),
        ("log_limit", ["0", "1048576", "1024k", "1M", "5G"], ["1048575", "1", "-1", "1T", "G", ""]),
        ("node_rank", [None, 0, 19_999], [-1, 20_000]),
        *(
            (seconds, [0.0, 10_000_000.0], [-0.001, 10_000_000.5, float("inf"), float("nan")])
            for seconds in ("grace", "orphan_timeout", "join_timeout")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bound_is_taken_and_what_lies_beyond_it_is_not(
    field: str, taken: list[Any], refused: list[Any]
) -> None:
    assert [getattr(WorkerSettings(**{field: value}), field) for value in taken] == taken
    for value in refused:
        with pytest.raises(ValidationError, match=field):
            WorkerSettings(**{field: value})


def test_an_unknown_setting_is_refused_and_none_is_changed() -> None:
    with pytest.raises(ValidationError, match="graze"):
        WorkerSettings(graze=1.0)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="frozen"):
        WorkerSettings().grace = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("setting", [{"tf_ps": 1}, {"tf_chief": True}])
def test_what_is_tensorflows_is_refused_with_another_framework(setting: dict[str, Any]) -> None:
    """Parameter servers end with the first program: a failure of the others would be "ok"."""
    WorkerSettings.model_validate({"framework": "tensorflow", **setting})
    for framework in ("torchrun", "env", "command"):
        with pytest.raises(ValidationError, match=f"the framework is {framework}"):
            WorkerSettings.model_validate({"framework": framework, **setting})


def test_what_is_tensorflows_is_not_blamed_for_a_framework_that_is_none() -> None:
    with pytest.raises(ValidationError) as told:
        WorkerSettings.model_validate({"framework": "Tensor Flow", "tf_ps": 1})
    assert [error["loc"] for error in told.value.errors()] == [("framework",)]


def test_a_size_is_read_with_its_unit() -> None:
    read = [read_bytes(text) for text in ("0", "17", "2K", "3m", "1G")]
    assert read == [0, 17, 2048, 3 << 20, 1 << 30]
    with pytest.raises(ValueError, match="64K, 16M, 1G"):
        read_bytes("1T")


@pytest.mark.parametrize(("cpus", "most"), [(1, 64), (8, 64), (9, 72), (512, 4096)])
def test_a_node_takes_eight_processes_for_each_cpu_and_64_at_least(cpus: int, most: int) -> None:
    check_processes(most, cpus, "--hostlist")
    with pytest.raises(UsageError) as caught:
        check_processes(most + 1, cpus, "--hostlist")
    assert caught.value.message == (
        f"{most + 1} processes are asked for on this node (--hostlist), which has {cpus} "
        f"CPU{'s' if cpus > 1 else ''}: at most {most} are started on it"
    )
    assert f"'n1 port={most + 1}'" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        check_processes(most + 1, cpus, "GPUS_PER_NODE", of_list=False)
    assert caught.value.hint == "give the number of processes of one node, not of the whole run"


def test_blanks_around_the_numbers_of_processes_are_left_out() -> None:
    assert WorkerSettings(nproc_per_node=" 2, 1 ,auto").nproc_per_node == "2,1,auto"


@pytest.mark.parametrize(("digits", "why"), [(9, "a run has 1 to"), (10, "a size is N or MIN:MAX")])
def test_more_than_nine_digits_are_not_even_read(digits: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_size("9" * digits)


@pytest.mark.parametrize(
    ("environ", "home"),
    [
        ({"RDZV_STATE_DIR": "/runs", "XDG_STATE_HOME": "/x", "HOME": "/root"}, "/runs"),
        ({"RDZV_STATE_DIR": "", "XDG_STATE_HOME": "/x", "HOME": "/root"}, "/x/rdzv"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/ada"}, "/home/ada/.local/state/rdzv"),
        ({}, f"{OWN_HOME}/.local/state/rdzv"),
        ({"HOME": ""}, f"{OWN_HOME}/.local/state/rdzv"),
    ],
)
def test_state_is_kept_in_our_folder_then_the_users(environ: dict[str, str], home: str) -> None:
    assert state_home(environ) == Path(home)


def test_a_user_id_without_a_name_and_without_home_keeps_state_below_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2**31)
    assert state_home({}) == Path("/.local/state/rdzv")
