"""What the page asks for one view at a time: checks, the matrix, a node's environment."""

from __future__ import annotations

import asyncio
import base64
import functools
import math
from collections.abc import Callable

from launcher.show.checks import in_words, rtt_line, total_words, with_numbers
from launcher.show.variables import restart_facts, row_of_node, variables_of
from launcher.ui.parts import View
from launcher.ui.shapes import Checks, Environment, Matrix
from launcher.ui.viewed import Viewed
from rendezvous.proof import pairs
from rendezvous.proof.blame import nearest
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import NotFound
from rendezvous.wire.run import Round, RunReport, RunStatus
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.words import printable, slot_name

OUTCOMES = ("not probed", "ok", *(kind.words for kind in pairs.OUTCOMES.values()))
"""What a byte of the matrix means, as the matrix on a terminal says it."""
_MOST_CHARACTERS = 600
_OF_OUTCOME = {name: number for number, name in enumerate(("ok", *pairs.OUTCOMES), 1)}


async def report_of(viewed: Viewed) -> RunReport | None:
    """What was checked: as its registry has it, or its launcher has kept it; None: nothing is."""
    state = viewed.state_dir
    if (found := await viewed.ask(lambda client: client.checks(state.run))) is not None:
        return found
    return await asyncio.to_thread(state.read, "report.json", RunReport)


async def checks_of(viewed: Viewed) -> Checks:
    """The findings, the worst first."""
    report = await report_of(viewed)
    if report is None:
        return {"findings": [], "total": ""}
    named = with_numbers(viewed.told.numbers())
    return {
        "findings": [
            {
                "level": finding.level,
                "check": finding.check,
                "text": printable(named(text), _MOST_CHARACTERS),
                "fix": finding.fix if finding.level in ("fail", "warn") else "",
            }
            for finding, text in in_words(report.findings, report)
        ],
        "total": total_words(report),
    }


async def matrix_of(viewed: Viewed) -> Matrix:
    """Who reaches whom."""
    report = await report_of(viewed)
    named = with_numbers(viewed.told.numbers())
    if report is None or not report.rounds:
        return _matrix(RunReport(run=viewed.state_dir.run), None, named)
    return await asyncio.to_thread(_matrix, report, nearest(report.rounds), named)


def _matrix(report: RunReport, shown: Round | None, named: Callable[[str], str]) -> Matrix:
    slots = shown.slots if shown is not None else []
    place = {slot: number for number, slot in enumerate(slots)}
    size = len(slots)
    cells, rtts = bytearray(size * size), bytearray(size * size)
    for slot, probes in shown.reports.items() if shown is not None else ():
        if (row := place.get(slot)) is None:
            continue
        for probe in probes:
            if (column := place.get(probe.slot)) is not None:
                cells[row * size + column] = _OF_OUTCOME.get(probe.outcome, _OF_OUTCOME["error"])
                rtts[row * size + column] = _rtt_byte(probe.rtt_ms)
    return {
        "networks": [
            {"network": one.network, "verdict": printable(one.verdict, _MOST_CHARACTERS)}
            for one in report.rounds
        ],
        "shown": None if shown is None else report.rounds.index(shown),
        "names": [named(slot_name(slot, report.hostnames)) for slot in slots],
        "outcomes": list(OUTCOMES),
        "cells": base64.b64encode(cells).decode(),
        "rtts": base64.b64encode(rtts).decode(),
        "rtt_words": named(rtt_line(shown, report)) if shown is not None else "",
    }


@functools.lru_cache(4_096)
def _rtt_byte(rtt_ms: float | None) -> int:
    """From 1 µs to 47 s, to 7 %; 0: not known."""
    if rtt_ms is None:
        return 0
    return max(1, min(255, round(10 * math.log2(max(rtt_ms, 0.001) / 0.001)) + 1))


def views_of(viewed: Viewed) -> dict[str, View]:
    """Views that one request without a query brings, by name."""
    return {
        "checks": lambda: checks_of(viewed),
        "matrix": lambda: matrix_of(viewed),
        **viewed.parts.views(),
    }


async def environment_of(viewed: Viewed, node: int) -> Environment:
    """What the program of this node is given. Raises UsageError, NotFound."""
    state = viewed.state_dir
    record = state.record()
    if record is None or not record.options:
        raise NotFound(
            f"what the programs of run '{state.run}' are given is known where it was launched",
            hint=f"rdzv status {state.run} --env {node}, on that machine",
        )
    table, status = await _table(viewed)
    row = row_of_node(table, node)
    given = variables_of(table, node, record.options, restart_facts(status))
    return {
        "node": node,
        "host": row.hostname,
        "table": table.digest(),
        "transport": table.transport,
        "variables": [
            {"name": one.name, "value": one.value, "reason": one.reason} for one in given
        ],
    }


async def _table(viewed: Viewed) -> tuple[EndpointTable, RunStatus | None]:
    state, digest = viewed.state_dir, viewed.told.head["digest"]

    async def ask(client: RegistryClient) -> tuple[EndpointTable, RunStatus]:
        status = await client.status(state.run)
        return await client.table(state.run, status.digest), status

    if digest and (found := await viewed.ask(ask)) is not None:
        return found
    if (kept := state.read("table.json", EndpointTable)) is not None:
        return kept, state.read("status.json", RunStatus)
    raise NotFound(
        f"run '{state.run}' has no endpoint table yet",
        hint="there is one once all nodes reach each other",
    )
