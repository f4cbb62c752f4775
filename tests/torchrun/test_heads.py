"""Torchruns of two machines whose platform gives `localhost` to the first one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.launching import BIN
from tests.support.netlab import Host, Lab
from tests.torchrun.torchruns import WORKER, new_token

pytestmark = [pytest.mark.frameworks, pytest.mark.netns, pytest.mark.timeout(200)]

PORT = "29641"


def start(host: Host, endpoint: str, folder: Path, **more: str) -> subprocess.Popen[str]:
    """One node's torchrun."""
    words = [str(BIN / "torchrun"), "--rdzv-backend=rdzv", f"--rdzv-endpoint={endpoint}:{PORT}"]
    words += ["--rdzv-id=job", "--nnodes=2", "--rdzv-conf=join_timeout=90", str(WORKER)]
    env = {"RDZV_TOKEN_FILE": str(folder / "token"), "OMP_NUM_THREADS": "1"}
    env |= {"RDZV_STATE_DIR": str(folder / host.name), "PATH": os.environ["PATH"], **more}
    log = (folder / host.name).with_suffix(".log")
    with log.open("w") as file:
        return host.start(["sh", "-c", 'exec "$@" 2>&1', "sh", *words], env=env, stdout=file)


def test_the_head_is_told_localhost_and_the_other_its_name(tmp_path: Path) -> None:
    new_token(tmp_path / "token")
    with Lab(2) as lab:
        head, other = lab.hosts
        runs = [start(head, "localhost", tmp_path), start(other, head.address, tmp_path)]
        codes = [run.wait() for run in runs]
        said = [(tmp_path / f"{host.name}.log").read_text() for host in lab.hosts]
    assert codes == [0, 0], said[0] + said[1]
    assert f"nodes on other machines need --rdzv-endpoint={head.address}:{PORT}" in said[0]


def test_a_later_node_that_is_told_localhost_ends_at_once(tmp_path: Path) -> None:
    new_token(tmp_path / "token")
    with Lab(1) as lab:
        [host] = lab.hosts
        rank = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.9.9.9"}
        assert start(host, "localhost", tmp_path, **rank).wait() != 0
        said = (tmp_path / f"{host.name}.log").read_text()
    assert "it would wait at its own registry" in said
    assert f"--rdzv-endpoint=10.9.9.9:{PORT}" in said
