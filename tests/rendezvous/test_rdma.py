"""What NCCL is to use, from the ports of all nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.proof.rdma import RdmaExpectation, rdma_of
from tests.support.fabric import cluster, efa, facts, infiniband, on, roce, storage, with_port

RAILS = [f"mlx5_ib{n}:1" for n in range(8)]
AN0: dict[str, Any] = {"device": "mlx5_an0", "problem": "no IPv4 RoCE v2 GID"}


@pytest.mark.parametrize(
    ("make", "transport", "hcas"),
    [
        (facts, "IB", []),
        (lambda s: with_port(s, 6, rate_gbps=200.0) if s == 1 else facts(s), "IB", []),
        (lambda s: storage(s, chosen=False), "IB", []),
        (storage, "IB", RAILS),
        (
            lambda s: facts(s, rdma=[*facts(s, roce).rdma, roce(8, s, hca_type="M", rate_gbps=1)]),
            *("IB", [f"mlx5_{n}:1" for n in range(8)]),
        ),
        (lambda s: facts(s, rdma=[roce(0, s, **AN0), infiniband(0, s)]), "IB", ["mlx5_ib0:1"]),
        (
            lambda s: facts(
                s, rdma=[infiniband(0, s), *(roce(n, s, rate_gbps=25) for n in (1, 2))]
            ),
            *("IB", ["mlx5_ib0:1"]),
        ),
        (lambda s: facts(s, rdma=[]) if s == 1 else facts(s), "", []),
        (lambda s: facts(s, rdma=[infiniband(0, 1)]) if s == 1 else facts(s), "", []),
        (lambda s: facts(s, rdma=[]), "Socket", []),
        (lambda s: facts(s, rdma=[infiniband(0, s, problem="no uverbs node")]), "Socket", []),
        (lambda s: facts(s, rdma=[efa(n) for n in range(4)]), "Libfabric", []),
        (lambda s: facts(s, rdma=[efa(n) for n in range(4 - s // 2)]), "", []),
    ],
    ids=[
        *(
            "alike",
            "half the rate",
            "left out",
            "storage",
            "front end",
            "a broken port",
        ),
        *("slow Ethernet", "one without", "fewer", "none", "none that works", "EFA", "fewer EFA"),
    ],
)
def test_what_nccl_should_use(make: Any, transport: Any, hcas: list[str]) -> None:
    expected = RdmaExpectation(transport, dict.fromkeys(range(3), hcas) if hcas else {})
    assert rdma_of(cluster(3, on(range(3), make))) == expected
