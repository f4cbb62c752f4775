"""What the user's variables leave out: who is warned of it, and who is left alone."""

from __future__ import annotations

from typing import Any

from rendezvous.wire.node import Candidate, Finding
from rendezvous.wire.run import Phase
from tests.support.driver import Drive, make_candidate, make_spec
from tests.support.tables import rows

GLOO = "GLOO_SOCKET_IFNAME"


def offered(slot: int, number: int, left_out: bool) -> Candidate:
    """The address of a slot on ethN, and whether a variable leaves that interface out."""
    found = make_candidate(f"10.0.{number}.{slot + 1}", f"eth{number}")
    return found.model_copy(update={"left_out_by": {GLOO: "other"} if left_out else {}})


def sealed(left_out: str, own: list[Finding] | None = None, **spec: Any) -> Drive:
    """`ox xo`: slots that offer eth0, eth1..., of which x are left out; the run starts on eth0."""
    drive = Drive(make_spec(len(left_out.split()), verify=False, **spec))
    for slot, flags in enumerate(left_out.split()):
        addresses = [offered(slot, number, flag == "x") for number, flag in enumerate(flags)]
        drive.join(slot, addresses=addresses, findings=own if slot and own else [])
    return drive


ABSENT = Finding(check="L17", level="warn", subject=GLOO, value="ib9", cause="it is not there")
CHANGES: dict[str, dict[str, Any]] = {
    "one machine": {"loopback": True},
    "said by itself": {"own": [ABSENT]},
    "skipped": {"skip": ["L17"]},
}


@rows(
    "left_out changes expected",
    """
the table's is left out | o x o | | 1 warn eth0
the table's is taken in | ox ox | |
all mean another that they share | xo xo | |
one node alone reaches itself | x | |
every interface will do | x x | one machine |
they do not agree on the other | xo xx | | 0 warn eth0, 1 warn eth0
not said again | o x | said by itself | 1 warn
not looked at | o x | skipped | 1 skipped eth0
""",
)
def test_a_node_whose_variable_leaves_out_the_tables_interface_is_warned_of(
    left_out: str, changes: str, expected: str
) -> None:
    drive = sealed(left_out, **CHANGES.get(changes, {}))
    assert drive.phase is Phase.ARMING
    found = [f for f in drive.run.attempt.findings if f.check == "L17"]
    told = [f"{f.slot} {f.level} {f.expected}".strip() for f in found]
    assert ", ".join(told) == expected


def test_a_strict_run_ends_for_it() -> None:
    drive = sealed("o x", strict=True)
    assert (drive.result.code, drive.result.slot) == ("preflight_failed", 1)


def test_a_program_that_fails_is_followed_by_what_was_warned_of() -> None:
    drive = sealed("o x o", verdict_seconds=2)
    drive.arm()
    drive.exit(2, 1)
    drive.wait(2)
    assert (drive.result.code, drive.result.slot) == ("program_failed", 2)
    assert drive.result.hint == (
        "warned of at the start: slot 1 (host1): GLOO_SOCKET_IFNAME other, expected eth0: it "
        "leaves out the interface of the table (L17); unset GLOO_SOCKET_IFNAME: rdzv sets it from "
        "what it has proven"
    )
