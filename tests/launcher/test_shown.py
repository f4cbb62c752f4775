"""What people are shown of a launch before it begins is as in `shown.txt`.

Nodes, spares and processes differ, and so do all ports. Who changes what is shown writes the file
anew (`make reference`).
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.schedulers.catalog import known_schedulers, scheduler_entry
from launcher.schedulers.shipped import specs_folder
from tests.launcher.command import rdzv
from tests.support.bed import settings_of
from tests.support.courses import lines_in, text_of

KNOWN = Path(__file__).with_name("shown.txt")
_MOST_LINES = 24
COUNTS = "8,5,2,7,3"
"""Of three nodes and two spares."""


@dataclass
class Shown:
    """Lines as a person sees them."""

    lines: list[str]

    @staticmethod
    def of(text: str) -> Shown:
        """A bar before each, as it is in the file."""
        return Shown([f"| {line}".rstrip() for line in text.splitlines()])


Show = Callable[[], Shown]


def dry_run(scheduler: str) -> Shown:
    """Of three nodes and two spares by this scheduler; what is the same for all of them once."""
    words = "launch --dry-run full --nnodes 3 --spares 2 --port 29633 --master-port 29611 --grace 7"
    words += f" --nproc-per-node {COUNTS} --rdzv-id r17 --max-restarts 4 --lease 12.5"
    spec = (specs_folder() / scheduler_entry(scheduler).spec).read_text()
    needed = ({"IMAGE": "registry/image:tag"} if "<<IMAGE" in spec else {}) | settings_of(scheduler)
    given = [word for name, value in needed.items() for word in ("--set", f"{name}={value}")]
    argv = [
        *words.split(),
        "--scheduler",
        scheduler,
        *given,
        "train.py",
        "--lr",
        "0.1",
        "two words",
    ]
    with tempfile.TemporaryDirectory() as folder:
        shown = rdzv(*argv, env={"RDZV_STATE_DIR": folder}).output.replace(folder, "/state")
    shown = shown.replace(str(specs_folder()), "/specs").replace(str(Path.cwd()), "/here")
    if scheduler != "slurm":
        shown = shown.partition("# each node then starts:")[0]
        before = shown.partition(f", by {scheduler}:")[0]
        shown = shown[before.rfind("# slot") :].partition("# slot 3, ")[0]
    return Shown.of(shown)


def short_dry_runs() -> Shown:
    """Of four nodes by each scheduler, and of commands that differ between the nodes."""
    lines = []
    for words in (
        "--scheduler slurm --nproc-per-node 8",
        "--scheduler kubernetes --nproc-per-node 8 --set IMAGE=img --set GPUS=8",
        "--hostlist localhost,h2,h3,h4 --nproc-per-node 8",
        "--scheduler slurm --no-local-node --nproc-per-node 8,4,4,2 --spares 0",
        "--framework deepspeed --nnodes 2:12 --on-node-loss shrink",
    ):
        with tempfile.TemporaryDirectory() as folder:
            line = f"launch --dry-run --nnodes 4 --rdzv-id r17 {words} -- train.py --lr 3"
            shown = rdzv(*line.split(), env={"RDZV_STATE_DIR": folder}).output
        shown = shown.replace(folder, "/state").replace(str(specs_folder()), "/specs")
        assert len(shown.splitlines()) <= _MOST_LINES
        lines += [f"{line}:", shown]
    return Shown.of("\n".join(lines))


STORED = ("kubernetes", "local", "ssh")
"""Schedulers whose spec `data/specs` has, as it is filled in."""
SHOWN: dict[str, Show] = {
    **{
        f"dry_run_{name}": functools.partial(dry_run, name)
        for name in known_schedulers()
        if name not in STORED
    },
    "short_dry_runs": short_dry_runs,
}


@pytest.mark.parametrize("name", SHOWN)
def test_shown(name: str) -> None:
    assert SHOWN[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(SHOWN)) == 0)
