"""A round of probes as a picture: round-trip times by colour, failed pairs by letter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.show.drawing import check_picture, new_figure, plain, save_picture
from rendezvous.proof.pairs import failures
from rendezvous.proof.text_matrix import legend_of, letter_of
from rendezvous.wire.run import Round
from rendezvous.wire.words import printable

_MOST_NAMES = 64
_LEAST_SLOW_MS = 1.0
"""Below this, no difference matters to a training."""

Colour = tuple[float, float, float, float]

_CLEAR: Colour = (0.0, 0.0, 0.0, 0.0)
_RED: Colour = (0.84, 0.15, 0.16, 1.0)


def draw_heat_map(tried: Round, hostnames: Mapping[int, str], path: Path) -> None:
    """Draw who reaches whom, and how fast, into an SVG, PNG or PDF file; raises UsageError."""
    check_picture(path)
    side = min(12.0, max(4.0, 0.28 * len(tried.slots)))
    figure = new_figure(side + 3.0, side + 1.5)
    draw_round(figure, tried, hostnames)
    save_picture(figure, path)


def draw_round(figure: Any, tried: Round, hostnames: Mapping[int, str]) -> None:
    """Draw it into a figure of matplotlib."""
    slots = sorted(tried.slots)
    place = {slot: number for number, slot in enumerate(slots)}
    failed = failures(tried)
    axes = figure.subplots()
    cells = _rtts(tried, place)
    least, most = scale([rtt for row in cells for rtt in row if not math.isnan(rtt)])
    image = axes.imshow(cells, norm="log", vmin=least, vmax=most, interpolation="nearest")
    axes.set_facecolor("#eeeeee")  # shows where no time is known
    label = f"round-trip time (ms); up to {least:.2g} is usual"
    bar = figure.colorbar(image, ax=axes, label=label, shrink=0.8, extend="min")
    for formatter in (bar.ax.yaxis.set_major_formatter, bar.ax.yaxis.set_minor_formatter):
        formatter("{x:g}")
    axes.imshow(_reds(failed, place), interpolation="nearest")
    for (one, other), probe in failed.items() if len(slots) <= _MOST_NAMES else ():
        text = {"ha": "center", "va": "center", "fontsize": 7, "color": "white"}
        axes.text(place[other], place[one], letter_of(probe), **text)
    _name(axes, slots, hostnames)
    below = legend_of(failed.values()) if failed else "every pair works"
    axes.set_title(f"{tried.network}\n{below}", fontsize=9)


def scale(times: Sequence[float]) -> tuple[float, float]:
    """The ends of the colours, in ms: what is usual has the first colour, however it differs."""
    usual = max(_LEAST_SLOW_MS, 3 * statistics.median(times)) if times else _LEAST_SLOW_MS
    return usual, max([2 * usual, *times])


def _reds(failed: Iterable[tuple[int, int]], place: Mapping[int, int]) -> list[list[Colour]]:
    """Red where a pair failed, and nothing elsewhere."""
    cells = [[_CLEAR] * len(place) for _ in place]
    for one, other in failed:
        cells[place[one]][place[other]] = _RED
    return cells


def _rtts(tried: Round, place: Mapping[int, int]) -> list[list[float]]:
    """Milliseconds by row and column; nan where it is not known."""
    cells = [[math.nan] * len(place) for _ in place]
    for slot, probes in tried.reports.items():
        for probe in probes:
            if probe.outcome == "ok" and probe.rtt_ms and {slot, probe.slot} <= place.keys():
                cells[place[slot]][place[probe.slot]] = probe.rtt_ms
    return cells


def _name(axes: Any, slots: list[int], hostnames: Mapping[int, str]) -> None:
    axes.set_xlabel("probed node (slot)")
    axes.set_ylabel("probing node")
    if len(slots) > _MOST_NAMES:
        return
    numbers = range(len(slots))
    axes.set_xticks(numbers, [str(slot) for slot in slots], fontsize=7)
    names = [f"{slot} {printable(hostnames.get(slot, ''), 24)}" for slot in slots]
    axes.set_yticks(numbers, [plain(name) for name in names], fontsize=7)
