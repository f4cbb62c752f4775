"""Which machine has the registry of a torchrun's run, for those who gave its endpoint."""

from __future__ import annotations

import pytest

from launcher.symmetric.claim import Host
from launcher.symmetric.platforms import claims
from launcher.torchrun.asked import read_asked
from launcher.torchrun.head import head_words, refuse_own_head
from rendezvous.wire.errors import UsageError
from tests.torchrun.test_asked import begin

OWN = ["10.0.0.7", "fd00::7"]
THIRD = {"PET_NODE_RANK": "2", "PET_NNODES": "4", "PET_MASTER_ADDR": "job-0.job"}


def refuse(environ: dict[str, str], endpoint: str, conf: dict[str, str] | None = None) -> None:
    asked = read_asked(begin(endpoint, conf=conf))
    refuse_own_head(asked, claims(environ, Host("h"), asked.size[1]))


@pytest.mark.parametrize("endpoint", ["localhost:29700", "0.0.0.0:29700", "[::1]:29700"])
def test_a_later_node_is_no_head_of_its_own(endpoint: str) -> None:
    with pytest.raises(UsageError, match="is this machine, but this is node 2 of 4") as refused:
        refuse(THIRD, endpoint)
    assert "PET_NODE_RANK" in refused.value.message
    assert refused.value.hint.endswith("--rdzv-endpoint=job-0.job:29700")


@pytest.mark.parametrize("master", ["", "localhost"])
def test_where_nobody_knows_the_first_node_it_is_asked_for(master: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse({"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": master}, "localhost")
    assert refused.value.hint.endswith("--rdzv-endpoint=ADDRESS-OF-NODE-0:29600")


@pytest.mark.parametrize(
    ("environ", "endpoint", "conf"),
    [
        (THIRD | {"PET_NODE_RANK": "0"}, "localhost", {}),
        (THIRD | {"PET_NNODES": "8"}, "localhost", {}),  # another job's: several runs on a node
        ({"JOB_COMPLETION_INDEX": "2"}, "localhost", {}),
        (THIRD, "job-0.job", {}),
        (THIRD, "localhost", {"is_host": "0"}),
        ({}, "localhost", {}),
    ],
)
def test_what_may_well_be_right_goes_on(
    environ: dict[str, str], endpoint: str, conf: dict[str, str]
) -> None:
    refuse(environ, endpoint, conf)


def test_the_head_says_what_the_others_need() -> None:
    said = head_words(read_asked(begin("localhost:29700")), OWN)
    assert "this machine, which has the registry" in said
    assert said.endswith("need --rdzv-endpoint=10.0.0.7:29700")
    said = head_words(read_asked(begin("n0")), ["fd00::7"])
    assert "all nodes need this name" in said
    assert "--rdzv-endpoint=[fd00::7]:29600 where they cannot resolve it" in said


def test_an_address_says_itself() -> None:
    assert head_words(read_asked(begin("10.0.0.7")), OWN) == ""
    assert head_words(read_asked(begin("localhost")), []) == ""
    assert head_words(read_asked(begin("localhost", nodes=(1, 1))), OWN) == ""
