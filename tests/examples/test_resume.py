"""`examples/resume.py` ends with the same loss, to the last bit, wherever it was interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.examples.test_examples import FOLDER
from tests.support.launching import BIN, Outcome, launch, processes_with

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

SCRIPT = str(FOLDER / "resume.py")
STEPS = ("--steps", "30", "--every", "10")


# Importing torch takes longer than what an example does with it: it is imported once, and each
# process of an example is a fork that runs the file as Python would.
FORKS = """
import json, os, runpy, sys
import torch._dynamo, torch.distributed
for line in sys.stdin:
    argv, restarts, out = json.loads(line)
    process = os.fork()
    if not process:
        file = os.open(out, os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ["RDZV_RESTARTS"] = str(restarts)
        sys.argv[:] = argv
        runpy.run_path(argv[0], run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@dataclass
class Alone:
    """Processes of the example without rdzv, one after the other."""

    forks: subprocess.Popen[str]
    out: Path

    def run(self, folder: Path, *options: str, restarts: int = 0) -> tuple[int, str]:
        """Its exit code, and what it has said."""
        assert self.forks.stdin is not None
        assert self.forks.stdout is not None
        self.out.unlink(missing_ok=True)
        argv = [SCRIPT, "--folder", str(folder), *STEPS, *options]
        self.forks.stdin.write(json.dumps([argv, restarts, str(self.out)]) + "\n")
        self.forks.stdin.flush()
        return int(self.forks.stdout.readline()), self.out.read_text()


@contextmanager
def alone(folder: Path) -> Iterator[Alone]:
    """What starts them."""
    environ = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    argv, pipe = [sys.executable, "-c", FORKS], subprocess.PIPE
    with subprocess.Popen(argv, env=environ, stdin=pipe, stdout=pipe, text=True) as forks:
        yield Alone(forks, folder / "said")


def loss(said: str) -> str:
    """The loss at the end, with all its bits."""
    [found] = re.findall(r"resume: loss \S+ \((\S+)\) after 30 steps", said)
    return str(found)


@pytest.mark.frameworks
def test_a_killed_process_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kill = ("--kill-rank", "0", "--kill-step", "25")
    with alone(tmp_path) as example:
        code, said = example.run(kept, *kill)
        assert code == -signal.SIGKILL, said
        files = {path.name for path in kept.iterdir()}
        assert files == {"step", "step-000010.pt", "step-000020.pt"}
        assert (kept / "step").read_text() == "20\n"
        (kept / ".step-000030.pt.tmp").write_bytes(b"half of it")
        code, again = example.run(kept, *kill, restarts=1)
        assert code == 0, again
        assert "resume: start 2 begins after step 20\n" in again
        files = {path.name for path in kept.iterdir()}
        assert files == {"step", "step-000020.pt", "step-000030.pt"}  # and of the half one nothing
        assert loss(again) == loss(example.run(tmp_path / "undisturbed")[1])


def trained(folder: Path, *options: str) -> Outcome:
    """Two nodes that save in a folder each; what they say goes on to the test."""
    script = f'exec {sys.executable} {SCRIPT} --folder {folder}/n$NODE_RANK --per-node "$@"'
    words = ["sh", "-c", script, "sh", *STEPS, *options]
    launched = ("--nnodes", "2", "--framework", "env", "--max-restarts", "1")
    return launch(folder / "s", *launched, command=words, env={"OMP_NUM_THREADS": "1"})


@pytest.mark.nightly
def test_nodes_with_a_folder_each_go_on_from_a_checkpoint_that_all_have(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for made in (whole, killed):
        made.mkdir()
    expected = loss(trained(whole).out)
    first = trained(killed, "--kill-rank", "1", "--kill-step", "20", "--steps", "20")
    assert first.code == 0, first.err
    assert "start 2 begins after step 20" in first.out
    (killed / "n1" / "step-000020.pt").unlink()  # as if this node had not come to its end
    second = trained(killed)
    assert "start 1 begins after step 10" in second.out
    assert loss(second.out) == expected


@pytest.mark.nightly
def test_what_make_demo_restart_shows(tmp_path: Path) -> None:
    environ = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    argv = [sys.executable, str(FOLDER / "demo_restart.py")]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"step \d+: the registry is killed\n", done.stdout)
    assert "ok after 1 restart: all 4 nodes ended with exit code 0" in done.stdout
    assert done.stdout.endswith("equal to the last bit.\n")
    assert [*tmp_path.glob("rdzv-*")] == []  # torch leaves an empty folder there
    assert processes_with(str(tmp_path)) == []
