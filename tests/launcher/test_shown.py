"""What people are shown of a launch before it begins, and of several runs, is as in `shown.txt`.

Nodes, spares and processes differ, and so do all ports. Who changes what is shown writes the file
anew (`make reference`).
"""

from __future__ import annotations

import functools
import io
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from launcher.plan.dry_run import command_lines
from launcher.schedulers.catalog import known_schedulers, scheduler_entry
from launcher.schedulers.shipped import specs_folder
from launcher.show.run_list import Row, facts, table_lines
from launcher.show.variables import table_lines as table_lines_of
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import RestartFacts
from rendezvous.wire.table import EndpointTable, TableRow
from tests.launcher.command import plan_of, rdzv
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


def each_node_starts() -> Shown:
    """Of a list of processes where a framework can, of equal ones where it cannot."""
    lines = []
    for framework in ("torchrun", "env", "accelerate", "openmpi", "tensorflow"):
        for counts in ("8,5,2", "4"):
            own = {"tf_chief": True, "tf_ps": 1} if framework == "tensorflow" else {}
            given: dict[str, Any] = {
                "framework": framework,
                "nproc_per_node": counts,
                "max_restarts": 2,
                **own,
            }
            plan = plan_of("./train.py", "two words", nnodes="3", master_port=29_611, **given)
            try:
                found = [f"{framework}, {counts}:", *command_lines(plan)]
            except UsageError as exc:
                lines.append(f"{framework}, {counts}: {exc.message} [{exc.hint}]")
                continue
            lines += found
            break
    return Shown.of("\n".join(lines))


def one_node_was_given() -> Shown:
    """Of a sealed table in which no rank is its slot."""
    rows = [
        TableRow(
            node=rank,
            slot=slot,
            hostname=f"gpu-{7 - slot}",
            address=f"10.4.0.{9 - slot}",
            interface=f"eth{slot}",
            prefix_length=22,
            nproc_per_node=count,
            mac="",
            hcas=[f"mlx5_{slot}:1"],
        )
        for rank, (slot, count) in enumerate(((2, 8), (4, 5), (1, 2)))
    ]
    table = EndpointTable(
        run="r17",
        launch_id="k7f2a9c1xy",
        epoch=6,
        master_address=rows[0].address,
        master_port=29_611,
        network="eth2 (10.4.0.0/22, Ethernet)",
        transport="IB",
        rows=rows,
    )
    facts_ = RestartFacts(restarts=2, max_restarts=4, replacements=3, last_failure="node 1 failed")
    kept = {"framework": "env", "command": ["train.py"], "grace": 7.0}
    return Shown.of("\n".join(table_lines_of(table, "d4ba9bac8253" + "0" * 52, 1, kept, facts_)))


def several_runs() -> Shown:
    """In a list and alone, in terminals of several widths, and in a file."""
    message = "node 1 (gpu-2, slot 3) failed: rank 2 ended with exit code 7"
    rows = [
        Row("r17", "failed", 7, "program", "2:4", 0.0, 4_321.0, ["train.py", "a b"], message),
        Row("llama-3", "failed", 84, "rdzv", "3", 0.0, 97_000.0, ["./x"] * 12, "no node\ncame"),
        Row("q5", "running", None, "", "16", 0.0, 59.4, ["python", "-m", "t"], "running on 16"),
        Row("z", "ok", 0, "program", "1", 0.0, 125.0, ["true"], "all ended"),
        Row("killed", "killed", None, "", "", 0.0, None, [], "its launcher was killed"),
    ]
    lines = [line for width in (None, 120, 64) for line in table_lines(rows, width)]
    return Shown.of("\n".join([*lines, *(line for row in rows for line in facts(row))]))


def _printed(what: RenderableType) -> str:
    stream = io.StringIO()
    Console(file=stream, width=110, highlight=False).print(what)
    return stream.getvalue()


STORED = ("kubernetes", "local", "ssh")
"""Schedulers whose spec `data/specs` has, as it is filled in."""
SHOWN: dict[str, Show] = {
    **{
        f"dry_run_{name}": functools.partial(dry_run, name)
        for name in known_schedulers()
        if name not in STORED
    },
    **{
        one.__name__: one
        for one in (
            short_dry_runs,
            each_node_starts,
            one_node_was_given,
            several_runs,
        )
    },
}


@pytest.mark.parametrize("name", SHOWN)
def test_shown(name: str) -> None:
    assert SHOWN[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(SHOWN)) == 0)
