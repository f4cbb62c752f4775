"""What NCCL is to use, from the ports of all nodes."""

from __future__ import annotations

from typing import Any

from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from tests.support.fabric import machines
from tests.support.tables import rows

RAILS = " ".join(f"mlx5_ib{n}:1" for n in range(8))


@rows(
    "nodes transport hcas",
    f"""
alike | 16 | IB |
half the rate | 3; 1 6.rate_gbps=200.0 | IB |
left out | 3; * +infiniband9.rate_gbps=200.0 8.chosen=False | IB |
storage | 3; * +infiniband9.rate_gbps=200.0 | IB | {RAILS}
the front end | 3 roce; * +roce8.hca_type=M 8.rate_gbps=100.0 | IB | {RAILS.replace("ib", "")}
a port that does not work, as of an accelerated network
    | 3; * ports=infiniband:1 +roce8.device=mlx5_an0 1.problem=x | IB | mlx5_ib0:1
slow Ethernet | 3; * ports=infiniband:1 +roce1.rate_gbps=25.0 +roce2.rate_gbps=25.0 | IB
    | mlx5_ib0:1
one without | 3; 1 ports=infiniband:0 | |
one with fewer | 3; 1 ports=infiniband:1 | |
none | 3; * ports=infiniband:0 | Socket |
none that works | 3; * ports=infiniband:1 0.problem=x | Socket |
EFA | 3; * ports=efa:4 | Libfabric |
fewer EFA | 3; * ports=efa:4; 2 ports=efa:3 | |
""",
)
def test_what_nccl_should_use(nodes: str, transport: Any, hcas: str) -> None:
    joins = machines(nodes)
    expected = dict.fromkeys(range(len(joins)), hcas.split()) if hcas else {}
    assert rdma_of(joins) == RdmaExpectation(transport, expected)
