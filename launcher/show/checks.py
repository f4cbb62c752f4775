"""What was checked before the start, for people: below a failure, and by `rdzv status`.

That is the findings in words, and a round of probes as a matrix or as a picture.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from launcher.show.drawing import check_picture, new_figure, plain, save_picture
from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir
from launcher.terminal import fold, width_of
from rendezvous.proof.blame import nearest
from rendezvous.proof.findings import told_once
from rendezvous.proof.interfaces import is_odd
from rendezvous.proof.pairs import failures
from rendezvous.proof.text_matrix import legend_of, letter_of, text_matrix
from rendezvous.wire.checks import names_nodes
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.node import Finding
from rendezvous.wire.run import Round, RunReport, RunStatus
from rendezvous.wire.words import ms_text, printable, slot_name

_SLOT = re.compile(r"\bslot(s?) (?=\d)")
_MOST_FINDINGS = 20
_MOST_WARNINGS = 8
_WORDS_AT = 13
_ORDER = {"fail": 0, "warn": 1, "skipped": 2, "ok": 3}
_MOST_NAMED_SLOTS = 64
_LEAST_SLOW_MS = 1.0
"""Below this, no difference matters to a training."""

Colour = tuple[float, float, float, float]

_CLEAR: Colour = (0.0, 0.0, 0.0, 0.0)
_RED: Colour = (0.84, 0.15, 0.16, 1.0)


def lines_of(report: RunReport, *, lasts: bool = True) -> list[str]:
    """What stands below the one sentence of a failed start: findings, and the matrix.

    Args:
        report: What was found.
        lasts: Whether `rdzv status` can show the rest afterwards.
    """
    bad = in_words((f for f in report.findings if f.level in ("fail", "warn")), report)
    lines = [line for one in bad[:_MOST_FINDINGS] for line in _finding_lines(*one)]
    if len(bad) > _MOST_FINDINGS:
        more = len(bad) - _MOST_FINDINGS
        lines.append(f"and {more} more findings{_where(report, lasts)}")
    return lines + matrix_lines(report)


def warning_lines(report: RunReport, *, lasts: bool = True) -> list[str]:
    """What is odd about a run that starts all the same.

    What a node finds odd about itself is often so on every start; it is counted, and told only
    where `rdzv status` cannot show it afterwards, or where its program may reach nobody.
    """
    told = in_words((f for f in report.findings if f.level == "warn"), report)
    told.sort(key=lambda one: (not is_odd(one[0]), not names_nodes(one[0].check)))
    shown = [
        f"warning: {text} ({f.check})" + (f"; {f.fix}" if is_odd(f) else "")
        for f, text in told
        if names_nodes(f.check) or is_odd(f) or not lasts
    ]
    lines = shown[: _MOST_WARNINGS if lasts else _MOST_FINDINGS]
    if left := len(told) - len(lines):
        what = "warnings" if left > 1 else "warning"
        more = "more " if lines else ""
        lines.append(f"{left} {more}{what} of the checks{_where(report, lasts)}")
    return [printable(line, 600) for line in lines]


def _where(report: RunReport, lasts: bool) -> str:
    return f": rdzv status {report.run} --checks" if lasts else ""


def matrix_lines(report: RunReport) -> list[str]:
    """Every network that was tried, and the matrix of the one that came nearest."""
    if not report.rounds:
        return []
    shown = nearest(report.rounds)
    lines = []
    for tried in report.rounds:
        if tried is shown:
            lines += text_matrix(tried, report.hostnames)
        else:
            lines.append(f"{tried.network}: {tried.verdict}")
    return [printable(line, 600) for line in lines]


def check_lines(report: RunReport) -> list[str]:
    """All findings, the worst first; the checks that were skipped for one reason in one line."""
    found = in_words(report.findings, report)
    lines = [line for one in found if one[0].level != "skipped" for line in _finding_lines(*one)]
    reasons: dict[str, list[str]] = {}
    for finding, text in found:
        if finding.level == "skipped":
            reasons.setdefault(text, []).append(finding.check)
    lines += [f"skipped ({reason}): {', '.join(ids)}" for reason, ids in reasons.items()]
    return [*lines, total_words(report) or "the checks have not found anything yet"]


def total_words(report: RunReport) -> str:
    """`1 failed, 2 warnings, 40 ok`, each counted as it is listed; empty: nothing was checked."""
    told = in_words(report.findings, report)
    count = {level: sum(finding.level == level for finding, _ in told) for level in _ORDER}
    names = {"fail": "failed", "warn": "warnings", "skipped": "skipped", "ok": "ok"}
    if count["warn"] == 1:
        names["warn"] = "warning"
    return ", ".join(f"{number} {names[level]}" for level, number in count.items() if number)


def in_words(findings: Iterable[Finding], report: RunReport) -> list[tuple[Finding, str]]:
    """With their sentences, the worst first."""

    def key(finding: Finding) -> tuple[int, str, int]:
        return _ORDER[finding.level], finding.check, -1 if finding.slot is None else finding.slot

    return told_once(sorted(findings, key=key), report.hostnames)


def _finding_lines(finding: Finding, text: str) -> Iterator[str]:
    yield f"{finding.level:7} {finding.check}  {text}"
    if finding.fix and finding.level in ("fail", "warn"):
        yield f"{'':{_WORDS_AT}}{finding.fix}"


def with_numbers(numbers: Mapping[int, int | None]) -> Callable[[str], str]:
    """Return what puts nodes in place of slots in a text of a check, which knows slots alone: once
    each node has the number of its slot.

    Args:
        numbers: Of the nodes by slot; None: it has none.
    """
    known = {slot: node for slot, node in numbers.items() if node is not None}
    is_same = bool(known) and all(slot == node for slot, node in known.items())
    return partial(_SLOT.sub, r"node\1 ") if is_same else str


def rtt_line(tried: Round, report: RunReport) -> str:
    """How fast the good pairs of a round are; empty when it is not known."""
    rtts = sorted(
        (probe.rtt_ms, slot, probe.slot)
        for slot, probes in tried.reports.items()
        for probe in probes
        if probe.outcome == "ok" and probe.rtt_ms is not None
    )
    if not rtts:
        return ""
    slowest, one, other = rtts[-1]
    ends = f"{slot_name(one, report.hostnames)} to {slot_name(other, report.hostnames)}"
    median = rtts[len(rtts) // 2][0]
    return f"round-trip time: median {ms_text(median)}, longest {ms_text(slowest)} ({ends})"


# --- rdzv status ------------------------------------------------------------------------------


async def show_checks(root: Path, run: str, *, as_json: bool) -> int:
    """Print what was checked, and found. Raises RdzvError."""
    state = find_run(root, run)
    report = await _report(state)
    if as_json:
        click.echo(report.model_dump_json(indent=1))
    else:
        width, lines = width_of(sys.stdout), map(with_numbers(_numbers(state)), check_lines(report))
        _print(part for line in lines for part in fold(line, width, _WORDS_AT))
    return 0


async def show_matrix(root: Path, run: str, path: Path | None, *, as_json: bool) -> int:
    """Print who reaches whom, or draw it into a file. Raises RdzvError."""
    state = find_run(root, run)
    report = await _report(state)
    if path is not None:
        if not report.rounds:
            raise UsageError(_nothing_probed(run))
        draw_heat_map(nearest(report.rounds), report.hostnames, path)
        click.echo(f"drawn: {path}")
    elif as_json:
        click.echo(report.model_dump_json(indent=1, include={"run", "hostnames", "rounds"}))
    elif not report.rounds:
        click.echo(_nothing_probed(run))
    else:
        times = with_numbers(_numbers(state))(rtt_line(nearest(report.rounds), report))
        _print([*matrix_lines(report), times])
    return 0


def _nothing_probed(run: str) -> str:
    return f"the nodes of run '{run}' have not probed each other (yet, or --verify off)"


def _print(lines: Iterable[str]) -> None:
    for line in filter(None, lines):
        click.echo(line)


def _numbers(state: StateDir) -> dict[int, int | None]:
    """The nodes' numbers, as far as the launcher has kept them."""
    status = state.read("status.json", RunStatus)
    return {slot.slot: slot.node for slot in status.slots} if status is not None else {}


async def _report(state: StateDir) -> RunReport:
    """Of the registry, or what the launcher has kept of it."""
    try:
        async with registry_of(state) as client:
            return await client.checks(state.run)
    except RdzvError as exc:
        if (kept := state.read("report.json", RunReport)) is not None:
            return kept
        why = exc.message
    raise UsageError(
        f"there are no check results for run '{state.run}': {why}",
        hint="the checks run when all nodes have joined; see rdzv status",
    )


# --- a picture: round-trip times by colour, failed pairs by letter ----------------------------


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
    for (one, other), probe in failed.items() if len(slots) <= _MOST_NAMED_SLOTS else ():
        text = {"ha": "center", "va": "center", "fontsize": 7, "color": "white"}
        axes.text(place[other], place[one], letter_of(probe), **text)
    _name_axes(axes, slots, hostnames)
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


def _name_axes(axes: Any, slots: list[int], hostnames: Mapping[int, str]) -> None:
    axes.set_xlabel("probed node (slot)")
    axes.set_ylabel("probing node")
    if len(slots) > _MOST_NAMED_SLOTS:
        return
    numbers = range(len(slots))
    axes.set_xticks(numbers, [str(slot) for slot in slots], fontsize=7)
    names = [f"{slot} {printable(hostnames.get(slot, ''), 24)}" for slot in slots]
    axes.set_yticks(numbers, [plain(name) for name in names], fontsize=7)
