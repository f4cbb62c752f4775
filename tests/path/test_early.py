"""A real torchrun that is begun before the go: nobody sees a difference, and nothing stays."""

from __future__ import annotations

import json
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.launching import Launched, launch, launching, processes_with
from tests.support.waiting import until
from worker.programs import early_torchrun

pytestmark = [pytest.mark.real_time, pytest.mark.torch, pytest.mark.timeout(120)]

SHOWS = """
import json, os, pathlib, resource, signal, sys
status = pathlib.Path("/proc/self/status").read_text().splitlines()
parent = os.getppid()
seen = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
    "environ": dict(os.environ), "folder": os.getcwd(), "umask": os.umask(0),
    "files": {n: [os.readlink(f"/proc/self/fd/{n}").split("[")[0],
                  pathlib.Path(f"/proc/self/fdinfo/{n}").read_text().splitlines()[1]]
              for n in range(64) if os.path.exists(f"/proc/self/fd/{n}")},
    "signals": [line for line in status if line.startswith(("Sig", "Shd", "NoNewPrivs"))],
    "limits": [resource.getrlimit(n) for n in range(12)],
    "leads": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
    "nice": os.nice(0), "policy": os.sched_getscheduler(0), "stdin": sys.stdin.read(),
    "parent": pathlib.Path(f"/proc/{parent}/comm").read_text(),
    "parents_stdin": os.readlink(f"/proc/{parent}/fd/0"),
}
folder = pathlib.Path(sys.argv[1])
(folder / f"seen-{os.environ['RANK']}").write_text(json.dumps(seen))
(folder / f"parent-{os.environ['RANK']}").write_bytes(
    pathlib.Path(f"/proc/{parent}/cmdline").read_bytes())
print("a line of", os.environ["RANK"])
"""
_OTHER_EACH_TIME = (
    *("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "RDZV_SOCKET"),
    *("TORCHELASTIC_RUN_ID", "RDZV_LAUNCH_ID", "NCCL_DEBUG_FILE"),
)


def seen_by_ranks(folder: Path, *options: str) -> tuple[list[dict[str, Any]], list[bool]]:
    """What both ranks have seen, and whether their torchruns were begun early."""
    script = folder / "train.py"
    script.write_text(SHOWS)
    words = [str(script), str(folder), "--lr", "it's 3"]
    outcome = launch(folder / "s", "--nnodes", "2", *options, command=words)
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] a line of 0", "[1] a line of 1"]
    seen = [json.loads((folder / f"seen-{rank}").read_text()) for rank in range(2)]
    for one in seen:
        for name in _OTHER_EACH_TIME:
            one["environ"].pop(name, None)
    begun = [b"early_torchrun.py" in (folder / f"parent-{r}").read_bytes() for r in range(2)]
    return seen, begun


def test_a_rank_sees_no_difference(tmp_path: Path) -> None:
    off, begun = seen_by_ranks(tmp_path, "--early-start", "off")
    assert begun == [False, False]
    early, begun = seen_by_ranks(tmp_path)
    assert begun == [True, True]
    assert early == off


def test_a_failure_reads_the_same(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(0.5)\nraise SystemExit(7)\n")
    said = []
    for early in ("off", "auto"):
        options = ("--nnodes", "1", "--early-start", early)
        outcome = launch(tmp_path / "s", *options, command=[str(script)])
        assert outcome.code == 7, outcome.err
        words = outcome.err.partition("all nodes are ready: go\n")[2]
        said.append(re.sub("[0-9]+", "N", words))  # process ids and times
    assert "exitcode" in said[0]
    assert said[1] == said[0]


def test_an_agent_that_is_killed_before_the_go_leaves_nothing_of_it(tmp_path: Path) -> None:
    """The other node never comes."""
    script = tmp_path / "train.py"
    script.touch()
    options = ("--scheduler", "manual", "--nnodes", "2")
    with launching(tmp_path / "s", *options, command=[str(script)]) as run:
        early = until(lambda: early_ones(run))[0]
        agent = early.parents()[1]
        assert "keeper.py" in str(early.parents()[0].cmdline())
        agent.kill()
        until(lambda: not early.is_running() or early.status() == psutil.STATUS_ZOMBIE)
        run.signal(signal.SIGTERM)
        run.finish()
    assert not processes_with(str(script))


def early_ones(run: Launched) -> list[psutil.Process]:
    """What was begun early, below a launch."""
    found = []
    for process in run.children():
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[1:2] == [early_torchrun.__file__]:
                found.append(process)
    return found
