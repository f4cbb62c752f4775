"""What the hang judge gives back where there is little to see."""

from __future__ import annotations

from rendezvous.hang import look_at
from rendezvous.wire.look import NodeLook, RunLook


def test_where_no_node_answers_nothing_is_known() -> None:
    found = look_at(RunLook(look=1, nodes=[NodeLook(slot=3)]))
    assert (found.rule, found.odd, found.certain, found.silent_nodes) == (
        "nothing",
        (),
        False,
        (3,),
    )
