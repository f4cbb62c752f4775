"""Each planted bug is caught by a schedule that the real code passes, and taken back after it.

The everyday suite tries some of them, `make test-planted` more, and `make nightly` all. When the
generator or the simulator is changed: `python -m tests.simulation --bugs --schedules 5000` finds
the seeds anew.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from rendezvous.run import leases
from rendezvous.server import service
from rendezvous.serving import answers
from tests.simulation.patching import Bug, Edit, patched
from tests.simulation.planted import BUGS
from tests.simulation.search import is_good, shown, stored
from tests.support.nightly import at_night

CAUGHT = stored()
EVERYDAY, PUSH = 54, 9
"""The everyday suite tries one bug in so many, and each push; always the same."""
LONG = {
    "launch: a cancel is tried for ever",
    "launch: a full journal exits as failed",
    "launch: a silent registry is awaited for ever",
    "launch: nodes are awaited for ever",
    "launch: the journal is awaited for ever",
    "losses: who is released hears nothing",
    "node: a hosts file is awaited for ever",
    "node: any other table is of others",
    "queued for ever",
    "the clock goes on",
}
"""A third of the time for all: their schedules have the most steps. `make nightly` tries them."""


def but_planted(name: str) -> object:
    number = crc32(name.encode())
    if name in LONG or number % PUSH:
        return at_night(name)
    return pytest.param(name, marks=() if number % EVERYDAY == 0 else pytest.mark.planted)


def test_every_planted_bug_has_a_schedule_that_shows_it() -> None:
    assert CAUGHT.keys() == BUGS.keys()
    assert BUGS.keys() > LONG


@pytest.mark.timeout(300)  # what is awaited for ever takes many steps
@pytest.mark.parametrize("name", [but_planted(name) for name in CAUGHT])
def test_a_planted_bug_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    violation = shown(BUGS[name], seed)
    assert violation is not None
    assert (violation.invariant, is_good(seed)) == (invariant, True)


# --- patches --------------------------------------------------------------------------------------


def bug(old: str, new: str) -> Bug:
    return Bug("a bug", (Edit("rendezvous/run/leases.py", old, new),))


@pytest.mark.parametrize("name", list(BUGS))
def test_every_patch_fits_the_code_as_it_stands(name: str) -> None:
    for edit in BUGS[name].edits:
        assert edit.new in patched(edit.file, [edit])


def test_a_constant_is_changed_with_what_was_made_of_it_and_its_copies() -> None:
    changed = bug("_CLOSED_SECONDS = 1.0", "_CLOSED_SECONDS = 2.0")
    before = leases.DOUBT_SWEEPS
    with changed.planted():
        assert leases._CLOSED_SECONDS == 2.0
        assert leases.DOUBT_SWEEPS == vars(service)["DOUBT_SWEEPS"] == before + 4
    assert leases._CLOSED_SECONDS == 1.0
    assert leases.DOUBT_SWEEPS == vars(service)["DOUBT_SWEEPS"] == before


def test_methods_properties_and_static_methods_are_changed() -> None:
    edits = (
        Edit("rendezvous/serving/answers.py", "return Body(data, gzip", "return Body(b'', gzip"),
        Edit("rendezvous/serving/answers.py", "return whole_answer(self.plain)", "return b'no'"),
    )
    with Bug("a bug", edits).planted():
        assert answers.Body.of(b"x") == answers.Body(b"")
        assert answers.Body(b"x").answer(zipped=False) == b"no"
    assert answers.Body.of(b"x") == answers.Body(b"x")
    assert answers.Body(b"x").answer(zipped=False) != b"no"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("this is nowhere", "", "0 times"),
        ("return ", "return not ", "times, not once"),
        ("All times are seconds", "All times are days", "changes no function"),
        ("SWEEP_SECONDS = 0.25", "SWEEP_SECONDS = 1 / 4", "changes no function"),
    ],
)
def test_a_patch_that_does_not_fit_says_so(old: str, new: str, words: str) -> None:
    with pytest.raises(ValueError, match=words), bug(old, new).planted():
        pass
