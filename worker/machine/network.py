"""The network of this machine: `interfaces` sees it, `worker.offer.address` chooses. Pure."""

from __future__ import annotations

from rendezvous.frozen import frozen


@frozen
class RdmaKind:
    """What RDMA devices that serve one purpose have in common.

    Attributes:
        link_layer: `InfiniBand`, `Ethernet` or `Unknown`.
        hca_type: The chip, such as `MT4129`; empty where the driver names none.
    """

    link_layer: str
    hca_type: str


@frozen
class Interface:
    """One network interface as it was found; see `worker.machine.interfaces.look`.

    Attributes:
        addresses: In CIDR form, IPv4 and IPv6, in the kernel's order.
        is_running: Up, and able to carry traffic.
        carrier: Whether a cable or peer is there; None when the kernel does not say.
        speed_mbps: 0 when unknown.
        link_type: 1 Ethernet, 32 IPoIB, 772 loopback, 65534 none (tunnels); 0 when unknown.
        bridge: The bridge that this is a port of.
        master: What this is a slave of: a bridge, a bond, the synthetic half of a VM's NIC.
        is_physical: A device stands behind it, at once or below (bond, VLAN).
    """

    name: str
    addresses: tuple[str, ...] = ()
    is_running: bool = True
    carrier: bool | None = None
    mtu: int = 0
    speed_mbps: int = 0
    link_type: int = 1
    is_bridge: bool = False
    bridge: str | None = None
    master: str | None = None
    is_physical: bool = False
    rdma: RdmaKind | None = None


@frozen
class Network:
    """All network interfaces of this machine.

    Attributes:
        rdma: The kind of each RDMA device, also of those without a network interface here.
    """

    interfaces: tuple[Interface, ...]
    rdma: tuple[RdmaKind, ...] = ()


@frozen
class Skipped:
    """An address that is not offered; `address` is empty where the interface has none."""

    interface: str
    address: str
    reason: str
