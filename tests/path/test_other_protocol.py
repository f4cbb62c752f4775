"""Peers whose rdzv speaks another protocol are refused by name, whoever they are."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from rendezvous.talk.join_string import RegistryString
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import PROTOCOL
from tests.support.launching import environment, launch, launching
from tests.support.other_rdzv import VERSION, other_rdzv
from tests.support.registry import running
from tests.support.waiting import until

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

HOST = socket.gethostname()
OWN = f"speaks protocol {PROTOCOL} (rdzv {rdzv_version()})"
COMMAND = ("--framework", "command")
WAIT = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"]


def theirs(protocol: int) -> str:
    return f"speaks protocol {protocol} (rdzv {VERSION})"


@pytest.mark.parametrize("protocol", [PROTOCOL + 1, PROTOCOL - 1])
def test_an_image_with_another_rdzv_ends_the_run_by_name(protocol: int, tmp_path: Path) -> None:
    other = shlex.join(other_rdzv(tmp_path / "image", protocol))
    shell = f'[ $SLOT = 1 ] && exec {other} worker "$@"; exec rdzv worker "$@"'
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        f"argv: [sh, -c, {json.dumps(shell)}, sh, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\n"
        'env: {RDZV_JOIN: <<RDZV_JOIN>>, SLOT: "<<SLOT>>"}\n'
    )
    options = ("--nnodes", "2", "--worker-spec", str(spec), *COMMAND)
    outcome = launch(tmp_path / "s", *options, command=["true"])
    result = json.loads((tmp_path / "s" / "r" / "result.json").read_text())
    assert outcome.code == result["exit_code"] == 77, outcome.err
    words = f"slot 1 ({HOST}) {theirs(protocol)}, but this registry {OWN}"
    assert result["message"].endswith(words)
    assert f"pip install rdzv=={rdzv_version()}" in result["hint"]
    assert words in " ".join(outcome.err.split())


def test_who_reads_or_ends_a_run_with_another_rdzv_is_refused_by_name(tmp_path: Path) -> None:
    other = other_rdzv(tmp_path / "image")
    state = tmp_path / "s"
    with launching(state, "--nnodes", "1", *COMMAND, command=WAIT) as run:
        until(lambda: (run.folder / "table.json").exists())
        for command in ("status", "cancel", "restart"):
            done = subprocess.run(
                [*other, command, "r"],
                env=environment(state),
                capture_output=True,
                text=True,
                check=False,
            )
            said = " ".join((done.stdout + done.stderr).split())
            asks = f"'rdzv {command}' on {HOST} {theirs(PROTOCOL + 1)}, but this registry {OWN}"
            assert asks in said, (command, said)
        assert run.process.poll() is None


def test_a_launch_with_another_rdzv_is_refused_by_a_standing_registry(tmp_path: Path) -> None:
    other = other_rdzv(tmp_path / "image")
    (tmp_path / "registry").mkdir()
    with running(tmp_path / "registry") as registry:
        text = RegistryString(registry.place, registry.operator).text()
        done = subprocess.run(
            [*other, "launch", "--rdzv-id", "r", "--nnodes", "1", *COMMAND, "--", "true"],
            env=environment(tmp_path / "s", RDZV_REGISTRY=text),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 77, done.stderr
    words = f"the launcher on {HOST} {theirs(PROTOCOL + 1)}, but this registry {OWN}"
    assert words in " ".join(done.stderr.split())
