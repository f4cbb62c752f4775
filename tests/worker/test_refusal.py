"""A node that cannot take part tells its registry why, as long as that may come up."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.talk.retry import retry_pause
from rendezvous.wire.errors import (
    AddressError,
    ArmingFailed,
    MethodNotAllowed,
    NotFound,
    RdzvError,
    Unauthorized,
    Unavailable,
    UsageError,
)
from rendezvous.wire.node import Refusal
from rendezvous.wire.reports import ReportReply
from tests.support.virtual_time import run_virtually
from tests.worker.test_table import join
from worker.offer.refusal import refusal_of, refuse

GPU = UsageError("--nproc-per-node gpu, and this node shows no GPU", hint="ask for one")
AWAY = Unavailable("refused")


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "retryable"),
    [
        (GPU, "usage", 2, False),
        (AddressError("there is no ib9"), "address", 2, False),
        (ArmingFailed("there is no torchrun"), "arming_failed", 82, False),
        (OSError("no such device"), "internal", 70, True),
    ],
)
def test_what_is_told_of_an_error(
    error: Exception, code: str, exit_code: int, retryable: bool
) -> None:
    told = refusal_of(error, "gpu-c03\x1b")
    assert (told.code, told.exit_code, told.retryable) == (code, exit_code, retryable)
    assert told.hostname == "gpu-c03?"
    assert str(error).partition("\n")[0] in told.reason


def test_endless_words_are_cut() -> None:
    told = refusal_of(UsageError("x" * 9_000, hint="y\n" * 9_000), "h" * 300)
    assert (len(told.reason), len(told.hint), len(told.hostname)) == (600, 600, 253)


class Registry:
    """Answers one call after the other with these errors, the last one for ever; None: well."""

    pause = staticmethod(retry_pause)

    def __init__(self, *answers: RdzvError | None) -> None:
        self.answers = list(answers)
        self.heard: list[Refusal] = []

    async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
        self.heard.append(refusal)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return ReportReply(seq=1)


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        ([AWAY, Unavailable("no run yet"), None], 3),
        ([NotFound("?")], 1),  # it does not take it
        ([MethodNotAllowed("?")], 1),
        ([Unauthorized("?")], 1),
    ],
)
def test_it_is_told_until_the_registry_is_up(answers: list[RdzvError | None], tries: int) -> None:
    registry: Any = Registry(*answers)
    run_virtually(refuse(registry, join(), GPU))
    assert len(registry.heard) == tries


def test_a_registry_that_does_not_come_up_is_given_up() -> None:
    registry: Any = Registry(AWAY)
    run_virtually(refuse(registry, join(), GPU))
    assert len(registry.heard) > 3
