"""Each cause that this machine can make, in `rdzv launch`: the result names it, and who met it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.run import Result
from tests.causes.injected import CASES, QUICK, Case
from tests.causes.starting import Seen, guilty_node, guilty_rank, start
from tests.support.missing import give_up

IS_TOLD = "cause" in Result.model_fields
_NODE = re.compile(r"\bnode (\d+) \(")
_RANK = re.compile(r"\brank (\d+)\b")

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    marks = [] if case.bare else [pytest.mark.torch]
    return marks if case.name in QUICK else [*marks, pytest.mark.nightly]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=_marks(case)) for case in CASES]
)
def test_the_result_names_the_cause_and_who_met_it(case: Case, tmp_path: Path) -> None:
    if (why_not := case.why_not()) is not None:
        give_up(why_not)
    seen = start(case, tmp_path)
    assert seen.result["status"] == "failed"
    _assert_happened(case, seen)
    if IS_TOLD:
        _assert_told(case, seen.result)


def _assert_happened(case: Case, seen: Seen) -> None:
    """The fault is the one that was meant, whatever is made of it."""
    log = seen.logs[guilty_node(case)]
    assert case.says in log, log
    if case.code:
        assert (seen.outcome.code, seen.result["slot"]) == (case.code, guilty_node(case)), log


def _assert_told(case: Case, result: dict[str, Any]) -> None:
    told = {name: result[name] for name in ("cause", "slot", "rank", "worker_rank", "message")}
    assert result["evidence"], told
    if not result["certain"]:  # then nobody is held to be the cause
        assert not case.shows_whom, told
        return
    assert told["cause"] == case.expected, told
    rank = guilty_rank(case) if case.has_rank else None
    assert (told["slot"], told["rank"]) == (guilty_node(case), guilty_node(case)), told
    assert told["worker_rank"] == rank, told
    # Of several that a sentence names, the first is its subject.
    for pattern, whom in ((_NODE, guilty_node(case)), (_RANK, rank)):
        if first := pattern.search(told["message"]):
            assert int(first[1]) == whom, told
