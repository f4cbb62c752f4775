"""`rdzv doctor`: this machine as a run would find it, on one page, with what to mend."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

import click

from launcher.option_values import known_check
from launcher.show.hardware import OF_ITS_GROUP, gpu_words, rdma_words
from launcher.show.registry import check_registry
from launcher.terminal import fold, width_of
from rendezvous.frozen import frozen
from rendezvous.version import rdzv_version
from rendezvous.wire.checks import Check
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.node import Finding
from rendezvous.wire.run import DEFAULT_MASTER_PORT
from rendezvous.wire.words import printable
from worker.contracts import needs_of
from worker.evidence.control_groups import limited_memory, memory_chain
from worker.machine.cpus import read_cpus
from worker.machine.kernel import memory_bytes
from worker.machine.surroundings import Surroundings
from worker.machine.user_python import absent_interpreter, has_module
from worker.offer.join_request import survey
from worker.preflight.checks import NODE_CHECKS, check_node
from worker.preflight.own_environment import Completed, complete_path
from worker.preflight.verdict import Verdict, room
from worker.settings import WorkerSettings

_MOST_CHARACTERS = 400
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_OWN = (Check.REGISTRY, Check.TORCHRUN)
_TITLES = {check.id: check.title for check in (*NODE_CHECKS, *_OWN)}
_TITLE_WIDTH = max(len(title) for title in _TITLES.values())
_FACTS_AT = 10
_WORDS_AT = len("  fail  L00  ") + _TITLE_WIDTH + 2
_TORCHRUN, _MODULE = "torchrun", "torch"


@frozen
class _Row:
    """A line of the page.

    Attributes:
        at: Where its words begin, behind columns of other things.
        level: The one in its first column, which is shown in its colour.
    """

    text: str
    at: int = 0
    level: str = ""

    def lines(self, width: int | None) -> list[str]:
        """As a terminal of so many cells shows it; None: as one line."""
        parts = fold(printable(self.text, self.at + _MOST_CHARACTERS).rstrip(), width, self.at)
        if self.level:
            shown = f"{self.level:5}"
            parts[0] = parts[0].replace(shown, click.style(shown, fg=_COLOURS[self.level]), 1)
        return parts


def show_node(
    environ: Mapping[str, str],
    absent: Sequence[str],
    registry: Callable[[], str | None],
    *,
    skip: Collection[str],
    strict: bool,
    as_json: bool,
) -> int:
    """Look at this machine, and print what was found.

    Args:
        environ: The environment that a program started from here would have.
        absent: The packages that `rdzv launch` needs and that are not installed.
        registry: Reads RDZV_REGISTRY; None where it is not set.
        skip: Checks that are not made.
        strict: A warning is a failure.
        as_json: Print the checks alone, as JSON.

    Returns:
        The exit code: 1 when a check failed, else 0.

    Raises:
        UsageError: There is no such check, not even between nodes.
    """
    for word in set(skip) - {check.id for check in _OWN}:
        try:
            known_check(word)
        except ValueError as exc:
            raise UsageError(
                f"--skip cannot be '{printable(word, 100)}': {exc}",
                hint=f"the checks of 'rdzv doctor' are {', '.join(_TITLES)}",
            ) from exc
    began = time.monotonic()
    completed = _complete(environ)
    here = survey(
        WorkerSettings(), [], completed.environ, master_port=DEFAULT_MASTER_PORT, patient=True
    )
    findings = check_node(here, skip)
    findings += check_registry(registry, Check.REGISTRY.id in skip)
    findings += _check_torchrun(completed, Check.TORCHRUN.id in skip)
    if as_json:
        found = [asdict(finding) for finding in findings]
        for one in found:
            del one["slot"]
        click.echo(json.dumps({"checks": found}, indent=1))
    else:
        took = time.monotonic() - began
        for line in page(here, findings, absent, took, width_of(sys.stdout)):
            click.echo(line)
    bad = {"fail", "warn"} if strict else {"fail"}
    failed = any(finding.level in bad for finding in findings)
    return int(ExitCode.FAILED if failed else ExitCode.OK)


def page(
    here: Surroundings,
    findings: Sequence[Finding],
    absent: Sequence[str],
    seconds: float,
    width: int | None = None,
) -> Iterator[str]:
    """The lines of the page: what is here, what is offered, what was checked, and the sum of it."""
    rows = (
        *(*_machine(here, absent), _Row("")),
        *(*_addresses(here), _Row("")),
        *_checks(findings),
        _Row(_summary(findings, seconds)),
        _Row("to see what a symmetric start would take from the environment: rdzv doctor --env"),
    )
    for row in rows:
        yield from row.lines(width)


def _memory() -> str:
    """Tell what the machine has, and what of it this process may use; empty where nobody says."""
    has = memory_bytes()
    limited = limited_memory(memory_chain())
    if limited is None or limited[1] >= has > 0:
        return room(has) if has else ""
    return f"{room(limited[1])} of {room(has)} {OF_ITS_GROUP}"


def _machine(here: Surroundings, absent: Sequence[str]) -> Iterator[_Row]:
    python, system = here.python, os.uname()
    memory = _memory()
    rows = {
        "rdzv": [f"{rdzv_version()} on Python {platform.python_version()} ({sys.executable})"],
        "launcher": [f"not installed: {', '.join(absent)}" if absent else "all packages installed"],
        "host": [
            f"{here.hostname}: {read_cpus().words}"
            + (f", {memory}" if memory else "")
            + f", {system.sysname} {system.release}"
        ],
        "program": [
            _program(here)
            if python.executable
            else "no torchrun or Python on PATH: activate the environment of your program"
        ],
        "RDMA": [*rdma_words(here.rdma)] or ["none"],
        "GPUs": [_gpus(here)],
    }
    for label, lines in rows.items():
        for number, line in enumerate(lines):
            yield _Row(f"{'' if number else label:9} {line}", _FACTS_AT)


def _program(here: Surroundings) -> str:
    python, facts = here.python, here.facts
    torch = f"torch {facts.torch_version}" if facts.torch_version else "no torch"
    built = f", CUDA {facts.cuda_version}" if facts.cuda_version else ""
    nccl = f", NCCL {facts.nccl_version}" if facts.nccl_version else ""
    return f"Python {python.version} ({python.executable}): {torch}{built}{nccl}"


def _gpus(here: Surroundings) -> str:
    if not here.gpu_nodes:
        return "none"
    driver = f", driver {here.facts.driver_version}" if here.facts.driver_version else ""
    hidden = here.gpu_nodes - here.facts.gpus
    more = f", {hidden} hidden by CUDA_VISIBLE_DEVICES" if hidden > 0 else ""
    return (gpu_words(here.facts) or "0") + driver + more


def _addresses(here: Surroundings) -> Iterator[_Row]:
    """What is offered to the other nodes, best first; what is not, and why."""
    rows = [
        (one.interface, f"{one.address}/{one.prefix_length}", f"{one.reason}, MTU {one.mtu}")
        for one in here.candidates
    ]
    others = [(one.interface, one.address or "-", one.reason) for one in here.skipped]
    widths = [max((len(row[i]) for row in rows + others), default=0) for i in range(2)]
    for title, table in (("offered to the other nodes, best first", rows), ("not offered", others)):
        if table:
            yield _Row(title)
        for interface, address, words in table:
            text = f"  {interface:{widths[0]}}  {address:{widths[1]}}  {words}"
            yield _Row(text, at=sum(widths) + 6)


def _checks(findings: Sequence[Finding]) -> Iterator[_Row]:
    """What is good in a line each, what is not with its meaning and its cure; then the rest."""
    yield _Row("checks")
    for finding in findings:
        if finding.level == "skipped":
            continue
        subject = "" if finding.subject == _TITLES[finding.check] else finding.subject
        value = ": ".join(filter(None, (subject, finding.value)))
        expected = f" (expected: {finding.expected})" if finding.expected else ""
        title = f"{_TITLES[finding.check]:{_TITLE_WIDTH}}"
        text = f"  {finding.level:5} {finding.check}  {title}  {value}{expected}"
        yield _Row(text, _WORDS_AT, finding.level)
        if finding.cause:
            yield _Row(f"{'':{_WORDS_AT}}{finding.cause}", _WORDS_AT)
        if finding.fix:
            yield _Row(f"{'':{_WORDS_AT}}fix: {finding.fix}", _WORDS_AT)
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.level == "skipped":
            reasons.setdefault(finding.value, []).append(finding.check)
    for reason, ids in reasons.items():
        yield _Row(f"  skipped ({reason}): {', '.join(ids)}", at=4)


def _summary(findings: Sequence[Finding], seconds: float) -> str:
    levels = {level: {f.check for f in findings if f.level == level} for level in _COLOURS}
    failed, warned = levels["fail"], levels["warn"] - levels["fail"]
    good = levels["ok"] - failed - warned
    first = "failed" if failed else "ok, with warnings" if warned else "ok"
    return (
        f"{first}: {len(good)} good, {len(warned)} with a warning, {len(failed)} failed, "
        f"in {seconds:.2f} s"
    )


def _complete(environ: Mapping[str, str]) -> Completed:
    """The environment in which a node that starts here looks for torchrun."""
    return complete_path(needs_of(_TORCHRUN, ["train.py"], leads=True), environ)


def _check_torchrun(completed: Completed, skip: bool) -> list[Finding]:
    """Look for torchrun and its torch; nothing is imported.

    Args:
        completed: The environment of a node.
        skip: Look for nothing.
    """
    if skip:
        return [Verdict("skipped", "not asked for (--skip)").finding(Check.TORCHRUN)]
    found = shutil.which(_TORCHRUN, path=completed.environ.get("PATH", ""))
    torch = has_module(found, completed.environ, (_MODULE,)) if found else None
    absent = absent_interpreter(found) if found else ""
    verdict = judge_torchrun(found or "", torch, own=bool(completed.added), absent=absent)
    return [verdict.finding(Check.TORCHRUN)]


def judge_torchrun(found: str, torch: bool | None, *, own: bool, absent: str = "") -> Verdict:
    """Judge whether a launch of a script can start here. Pure.

    Args:
        found: The torchrun that a launch would use; empty: there is none.
        torch: Whether torch is installed for it; None: that cannot be told.
        own: Whether it is of rdzv's own environment, and not on PATH.
        absent: Its interpreter, where that is not there.
    """
    if not found:
        return Verdict(
            "fail",
            "neither on PATH nor in rdzv's own environment",
            expected="on PATH",
            cause="a launch whose COMMAND is a script or a module ends here with exit code 82",
            fix="activate the environment of your program before rdzv is started, or install "
            f"torch there (pip install torch); --skip {Check.TORCHRUN.id} if nothing here needs it",
        )
    if absent:
        return Verdict(
            "fail",
            found,
            expected="an interpreter that is there",
            cause=f"its interpreter '{absent}' is not there, so it cannot start",
            fix="install torch again (pip install torch), or put another environment first on PATH",
        )
    if torch is False:
        return Verdict(
            "warn",
            found,
            expected="with torch",
            cause="torch is not installed for its Python, so it cannot start",
            fix="install it there (pip install torch), or put another environment first on PATH",
        )
    return Verdict("ok", f"{found}, of rdzv's own environment; PATH has none" if own else found)
