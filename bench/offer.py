"""What a simulated node offers when it joins."""

from __future__ import annotations

from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.macs import sign_join
from rendezvous.wire.node import Candidate, Facts, Job, JoinRequest, LinkKind
from rendezvous.wire.protocol import PROTOCOL

_LINKS = (
    ("eth0", 20, LinkKind.ETHERNET, 1_500, 25_000, "holds the route to the registry"),
    ("ib0", 60, LinkKind.IPOIB, 2_044, 200_000, "physical and up"),
)


def make_join(keys: RunKeys, slot: int) -> JoinRequest:
    """A node of a usual cluster: one Ethernet and one InfiniBand address, eight GPUs."""
    candidates = [
        Candidate(
            interface=interface,
            address=f"10.{network + slot // 65_536}.{slot // 256 % 256}.{slot % 256}",
            prefix_length=8,
            kind=kind,
            mtu=mtu,
            speed_mbps=speed,
            reason=reason,
        )
        for interface, network, kind, mtu, speed, reason in _LINKS
    ]
    join = JoinRequest(
        slot=slot,
        generation=1,
        join_id=f"join-of-slot-{slot:06d}",
        hostname=f"worker-{slot}",
        nproc_per_node=8,
        candidates=candidates,
        master_port=29_500 if slot == 0 else None,
        protocol=PROTOCOL,
        job=Job(),
        facts=Facts(
            rdzv_version="0.1.0", python_version="3.11.7", gpus=8, cpus=96, boot_id="0" * 36
        ),
    )
    return sign_join(join, keys.row_key, run=keys.run, launch_id=keys.launch_id)
