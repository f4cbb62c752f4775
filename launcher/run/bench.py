"""`rdzv bench`: a launch whose COMMAND measures, and what is made of the result.

Measuring, judging and the report's text are `worker.programs.bandwidth`'s.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from launcher.run.command import launch
from launcher.settings import BenchSettings
from launcher.show.drawing import check_picture, new_figure, save_picture
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import node_name
from worker.program.own_folder import OwnFolder
from worker.programs.bandwidth import RESULT_VARIABLE, pair_of, report, size_words

_SLOW = 1


async def bench(
    settings: BenchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    group_token: str | None = None,
    registry: str | None = None,
) -> int:
    """Launch the measurement and show its result; returns the exit code. Raises RdzvError."""
    _check(settings)
    run = settings.rdzv_id or f"bench-{secrets.token_hex(4)}"
    settings = settings.model_copy(update={"rdzv_id": run})
    folder = OwnFolder(tempfile.gettempdir())
    try:
        path = folder.path / "result.json"
        code = await launch(
            settings,
            command,
            {**environ, RESULT_VARIABLE: str(path)},
            group_token=group_token,
            registry=registry,
        )
        if code != 0 or settings.dry_run:
            return code
        if not os.path.exists(path):  # rank 0 ran elsewhere, and has printed it
            click.echo(f"rdzv: the report is in rank 0's log: rdzv logs {run} --rank 0", err=True)
            return 0
        result = json.loads(path.read_text(encoding="utf-8"))
    finally:
        folder.remove()
    _show(result, settings)
    return _SLOW if result["slow_nodes"] or result["slow_pairs"] else 0


def _check(settings: BenchSettings) -> None:
    """Refuse what would fail only after the measurement."""
    for path, flag in ((settings.save, "--save"), (settings.plot, "--plot")):
        if path is None:
            continue
        if not settings.local_node:
            raise UsageError(
                f"{flag} needs node 0 on this machine, but --no-local-node starts it elsewhere",
                hint="remove one of them; the report is in rank 0's log",
            )
        folder = path.absolute().parent
        try:
            os.stat(f"{folder}/.")
        except FileNotFoundError:
            raise UsageError(f"{flag} {path}: there is no folder {folder}") from None
        except OSError as exc:
            why = f"the folder {folder} cannot be used: {exc.strerror}"
            raise UsageError(f"{flag} {path}: {why}") from exc
    if settings.plot is not None:
        check_picture(settings.plot)


def _show(result: Mapping[str, Any], settings: BenchSettings) -> None:
    click.echo(json.dumps({"bench": result}) if settings.json_events else report(result))
    if settings.save is not None:
        _write(settings.save, (json.dumps(result, indent=1) + "\n").encode())
    if settings.plot is not None:
        draw(result, settings.plot)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}") from exc


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw bus bandwidth by size, and all pairs as a heat map. Raises UsageError."""
    figure = new_figure(11, 5)
    by_size, pairs = figure.subplots(1, 2)
    rows = result["all_reduce"]
    by_size.plot([size_words(row["bytes"]) for row in rows], [row["bus_gb"] for row in rows], "o-")
    by_size.set(title="all-reduce", xlabel="size", ylabel="bus bandwidth, GB/s", ylim=(0, None))
    image = pairs.imshow(_square(result), vmin=0, cmap="viridis")
    pairs.set(title="pairs of nodes, GB/s each way", xlabel="node", ylabel="node")
    for axis in (pairs.xaxis, pairs.yaxis):
        axis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=pairs)
    figure.suptitle(_title(result))
    save_picture(figure, path)


def _title(result: Mapping[str, Any]) -> str:
    slow = [node_name(node, result["nodes"][node]["hostname"]) for node in result["slow_nodes"]]
    slow += [f"nodes {one} and {other} with each other" for one, other in result["slow_pairs"]]
    return f"slow: {', '.join(slow)}" if slow else "no node is slow"


def _square(result: Mapping[str, Any]) -> list[list[float]]:
    """GB/s by row and column; a node with itself is not a number."""
    speeds = {pair_of(one, other): speed for one, other, speed in result["pairs"]}
    ranks = range(len(result["nodes"]))
    return [[speeds.get(pair_of(row, column), float("nan")) for column in ranks] for row in ranks]
