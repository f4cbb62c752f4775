"""What the user's variables leave out: who is warned of it, and who is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.wire.node import Candidate, Finding
from rendezvous.wire.run import Phase
from tests.support.driver import Drive, make_candidate, make_spec

GLOO = "GLOO_SOCKET_IFNAME"


def offered(slot: int, number: int, left_out: bool) -> Candidate:
    """The address of a slot on ethN, and whether a variable leaves that interface out."""
    found = make_candidate(f"10.0.{number}.{slot + 1}", f"eth{number}")
    return found.model_copy(update={"left_out_by": {GLOO: "other"} if left_out else {}})


def sealed(*left_out: tuple[bool, ...], own: list[Finding] | None = None, **spec: Any) -> Drive:
    """A run whose slots offer eth0, eth1..., some left out, when it starts on eth0."""
    drive = Drive(make_spec(len(left_out), verify=False, **spec))
    for slot, flags in enumerate(left_out):
        findings = own if slot and own else []
        drive.join(
            slot,
            addresses=[offered(slot, number, flag) for number, flag in enumerate(flags)],
            findings=findings,
        )
    return drive


def warned(drive: Drive) -> list[tuple[int | None, str, str]]:
    return [(f.slot, f.level, f.expected) for f in drive.run.attempt.findings if f.check == "L17"]


def test_a_node_whose_variable_leaves_out_the_tables_interface_is_warned_of() -> None:
    drive = sealed((False,), (True,), (False,))
    assert (drive.phase, warned(drive)) == (Phase.ARMING, [(1, "warn", "eth0")])


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (((False, True), (False, True)), "the table's interface is taken in"),
        (((True, False), (True, False)), "all nodes mean another network that they share"),
        (((True,),), "one node alone reaches itself"),
    ],
)
def test_what_fits_or_is_meant_is_left_alone(nodes: tuple[tuple[bool, ...], ...], why: str) -> None:
    assert warned(sealed(*nodes)) == [], why


def test_on_one_machine_every_interface_will_do() -> None:
    assert warned(sealed((True,), (True,), loopback=True)) == []


def test_nodes_that_do_not_agree_on_the_other_network_are_all_warned_of() -> None:
    assert warned(sealed((True, False), (True, True))) == [(0, "warn", "eth0"), (1, "warn", "eth0")]


def test_what_a_node_has_said_by_itself_is_not_said_again() -> None:
    absent = Finding(check="L17", level="warn", subject=GLOO, value="ib9", cause="it is not there")
    assert warned(sealed((False,), (True,), own=[absent])) == [(1, "warn", "")]


def test_a_check_that_is_left_out_warns_of_nothing_and_a_strict_one_ends_the_run() -> None:
    assert warned(sealed((False,), (True,), skip=["L17"])) == [(1, "skipped", "eth0")]
    drive = sealed((False,), (True,), strict=True)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 1)


def test_a_program_that_fails_is_followed_by_what_was_warned_of() -> None:
    drive = sealed((False,), (True,), (False,), verdict_seconds=2)
    drive.arm()
    drive.exit(2, 1)
    drive.wait(2)
    assert (drive.result.code, drive.result.slot) == ("program_failed", 2)
    assert drive.result.hint == (
        "warned of at the start: slot 1 (host1): GLOO_SOCKET_IFNAME other, expected eth0: it "
        "leaves out the interface of the table (L17); unset GLOO_SOCKET_IFNAME: rdzv sets it from "
        "what it has proven"
    )
