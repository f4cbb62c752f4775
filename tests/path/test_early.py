"""A real torchrun that is begun before the go: nobody sees a difference, and nothing stays."""

from __future__ import annotations

import json
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import seen
from tests.support.launching import Launched, launch, launching, lives, processes_with
from tests.support.waiting import until
from worker.programs import early_torchrun

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.real_time,
    pytest.mark.torch,
    pytest.mark.timeout(120),
]

SHOWS = """
import json, os, pathlib, sys
from seen import seen
folder, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
parent = pathlib.Path(f"/proc/{os.getppid()}")
parents = [(parent / "comm").read_text(), os.readlink(parent / "fd" / "0")]
(folder / f"seen-{rank}").write_text(json.dumps({**seen(), "parents": parents}))
(folder / f"parent-{rank}").write_bytes((parent / "cmdline").read_bytes())
print("a line of", rank)
"""
_OTHER_EACH_TIME = (
    *("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "RDZV_SOCKET", "RDZV_LOOK_FOLDER"),
    *("TORCHELASTIC_RUN_ID", "RDZV_LAUNCH_ID", "NCCL_DEBUG_FILE"),
)
# A rank's end is told before its torchrun's only where torchrun takes longer than a moment to end,
# as on a machine that has much else to do: once by the agent, and once more as the run's event.
_TORCHRUN_IS_SLOW = "rank N ended with exit code N; the program that started it is still running"


def seen_by_ranks(folder: Path, *options: str) -> tuple[list[dict[str, Any]], list[bool]]:
    """What both ranks have seen, and whether their torchruns were begun early."""
    script = folder / "train.py"
    script.write_text(SHOWS)
    shutil.copy(seen.__file__, folder)
    words = [str(script), str(folder), "--lr", "it's 3"]
    outcome = launch(folder / "s", "--nnodes", "2", *options, command=words)
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] a line of 0", "[1] a line of 1"]
    found = [json.loads((folder / f"seen-{rank}").read_text()) for rank in range(2)]
    for one in found:
        del one["c environ"]  # the same, but in one piece
        own = ("1", "2", *(name for name in one["files"] if int(name) >= 1_000))
        for name in own:  # its own streams, and the hook's files: their names alone
            one["files"][name][0] = Path(one["files"][name][0]).name
        for name in _OTHER_EACH_TIME:
            one["environ"].pop(name, None)
    begun = [b"early_torchrun.py" in (folder / f"parent-{r}").read_bytes() for r in range(2)]
    return found, begun


@pytest.mark.nightly
def test_a_rank_sees_no_difference(tmp_path: Path) -> None:
    off, begun = seen_by_ranks(tmp_path, "--early-start", "off")
    assert begun == [False, False]
    early, begun = seen_by_ranks(tmp_path)
    assert begun == [True, True]
    assert early == off


@pytest.mark.nightly
def test_a_failure_reads_the_same(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(0.5)\nraise SystemExit(7)\n")
    said = []
    for early in ("off", "auto"):
        options = ("--nnodes", "1", "--early-start", early)
        outcome = launch(tmp_path / "s", *options, command=[str(script)])
        assert outcome.code == 7, outcome.err
        words = outcome.err.partition("; starting ")[2].partition("\n")[2]
        words = re.sub(" *[0-9]+", " N", words)  # process ids, and times, which are in a column
        said.append([line for line in words.splitlines() if not line.endswith(_TORCHRUN_IS_SLOW)])
    assert any("lines about the rank that failed" in line for line in said[0])
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
        until(lambda: not lives(early.pid))
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
