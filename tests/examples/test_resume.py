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
from tests.support.launching import BIN, Outcome, launch, launching, processes_with
from tests.support.waiting import until

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
        assert "resume: begins after step 20 (restarts: 1, nodes replaced: 0)\n" in again
        files = {path.name for path in kept.iterdir()}
        assert files == {"step", "step-000020.pt", "step-000030.pt"}  # and of the half one nothing
        assert loss(again) == loss(example.run(tmp_path / "undisturbed")[1])


NODES = ("--nnodes", "2", "--framework", "env", "--max-restarts", "1")
THREADS = {"OMP_NUM_THREADS": "1"}


def per_node(kept: str, *options: str) -> list[str]:
    """COMMAND: nodes that save in a folder each."""
    script = f'exec {sys.executable} {SCRIPT} --folder {kept} --per-node "$@"'
    return ["sh", "-c", script, "sh", *STEPS, *options]


def trained(folder: Path, *options: str) -> Outcome:
    """Two nodes with a folder each; what they say goes on to the test."""
    command = per_node(f"{folder}/n$NODE_RANK", *options)
    return launch(folder / "s", *NODES, command=command, env=THREADS)


@pytest.mark.nightly
def test_nodes_with_a_folder_each_go_on_from_a_checkpoint_that_all_have(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for made in (whole, killed):
        made.mkdir()
    expected = loss(trained(whole).out)
    first = trained(killed, "--kill-rank", "1", "--kill-step", "20", "--steps", "20")
    assert first.code == 0, first.err
    assert "begins after step 20 (restarts: 1, " in first.out
    (killed / "n1" / "step-000020.pt").unlink()  # as if this node had not come to its end
    second = trained(killed)
    assert "begins after step 10 (restarts: 0, " in second.out
    assert loss(second.out) == expected


@pytest.mark.nightly
def test_a_node_in_a_lost_one_s_place_gets_the_checkpoint_from_the_others(tmp_path: Path) -> None:
    """Its folder, named after its agent's socket, is empty."""
    whole, kept = tmp_path / "whole", tmp_path / "kept"
    for made in (whole, kept):
        made.mkdir()
    expected = loss(trained(whole).out)
    command = per_node(f"{kept}/$(basename $(dirname $RDZV_SOCKET))", "--step-seconds", "0.1")
    options = (*NODES, "--on-node-loss", "replace", "--standby", "1")
    with launching(tmp_path / "s", *options, command=command, env=THREADS) as launched:
        until(lambda: len([*kept.glob("*/step-000010.pt")]) == 2)
        launched.child(" worker ", "127.0.0.2").kill()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "begins after step 10 (restarts: 0, nodes replaced: 1)" in outcome.out
    assert len([*kept.iterdir()]) == 3
    assert loss(outcome.out) == expected


@pytest.mark.nightly
def test_nodes_without_a_common_checkpoint_do_not_begin_again(tmp_path: Path) -> None:
    assert trained(tmp_path, "--steps", "20").code == 0
    for rank, step in ((0, 10), (1, 20)):
        (tmp_path / f"n{rank}" / f"step-{step:06}.pt").unlink()
    outcome = trained(tmp_path)
    assert outcome.code != 0
    assert "resume: no checkpoint is on all nodes" in outcome.out + outcome.err
    assert "begins after" not in outcome.out


@pytest.mark.nightly
def test_what_make_demo_restart_shows(tmp_path: Path) -> None:
    environ = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    argv = [sys.executable, str(FOLDER / "demo_restart.py")]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    for killed in ("the registry", "a node"):
        assert re.search(rf"step \d+: {killed} is killed\n", done.stdout)
    assert "ok after 1 restart and 1 replacement: all 4 nodes ended with exit" in done.stdout
    assert done.stdout.endswith("equal to the last bit.\n")
    assert [*tmp_path.glob("rdzv-*")] == []  # torch leaves an empty folder there
    assert processes_with(str(tmp_path)) == []
