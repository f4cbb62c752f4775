"""Restarts are measured as nodes make them: every end reported, every next table acknowledged."""

from __future__ import annotations

import pytest

from bench.meeting import meeting
from bench.restarts import of_registry
from bench.rows import Figure, Row

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("kept", [True, False])
def test_all_nodes_of_a_real_registry_start_again_as_often_as_asked(kept: bool) -> None:
    with meeting(4, tls=True, journal="sqlite", processes=2) as met:
        met.open()
        found = met.restarts(2, 3, kept=kept)
    assert len(found) == 6
    for one in found:
        assert 0 < one.told < one.table <= one.go
        assert one.first_go > 0


def test_a_restart_is_said_beside_the_first_start_of_its_run() -> None:
    made = list(of_registry(3, 1, tls=False))
    named = [
        (one.system, one.what, one.rounds, one.journal) for one in made if isinstance(one, Row)
    ]
    assert named == [("rdzv", "restart", 2, "sqlite"), ("rdzv", "restart_new", 2, "sqlite")]
    assert all(" first go " in one.note for one in made if isinstance(one, Row))
    [ratio] = [one for one in made if isinstance(one, Figure)]
    assert (ratio.what, ratio.nodes, ratio.target, ratio.rounds) == ("restart_by_go", 3, 1.5, 2)
