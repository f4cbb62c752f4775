"""Ranges of hosts, as Slurm and pdsh read them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from launcher.plan.host_entries import read_hostlist


@pytest.mark.schedulers("scontrol", "pdsh")
@pytest.mark.parametrize(
    "text",
    [
        "gpu[01-02,05]-ib[0-1]",
        "n[1-03]",
        "n[9-11]",
        "n[08-11,20]",
        "n1,",
        "r[1-2]n[01-02]",
        "n1,n7",
    ],
)
def test_ranges_are_read_as_slurm_and_pdsh_read_them(tmp_path: Path, text: str) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\nSlurmctldHost=localhost\nNodeName=localhost\n")
    own = [host.name for host in read_hostlist([text])]
    for words in (
        ["scontrol", "show", "hostnames", text],
        ["pdsh", "-N", "-f1", "-R", "exec", "-w", text, "echo", "%h"],
    ):
        environ = {**os.environ, "SLURM_CONF": str(conf)}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.split() == own
