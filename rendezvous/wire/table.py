"""The endpoint table, its rows and its digest. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from rendezvous.wire.types import (
    STRICT,
    Wire,
    is_loopback,
    parse_address,
    subnet_of,
    subnet_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)  # made of what was validated
class TableRow:
    """One node of the endpoint table; the fields are in the order of the canonical form."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    address: str
    hcas: Annotated[
        list[str], Field(description="For NCCL_IB_HCA, as DEVICE:PORT, where it is needed.")
    ] = field(default_factory=list)
    hostname: str
    interface: str
    mac: str
    node: Annotated[
        int, Field(description="Its number in the run: 0 .. n-1, in the order of the rows.")
    ]
    nproc_per_node: int
    prefix_length: int
    role: Annotated[
        str | None,
        Field(description="Of its processes, where a torchrun has given them one: `--role`."),
    ] = None
    slot: int

    def signed_text(self, run: str, launch_id: str, generation: int | None = None) -> bytes:
        """What its node signs: what it says itself, and not what the seal gives. Never changes."""
        own = self.slot, self.hostname, self.interface, self.address, self.prefix_length
        more = [] if generation is None else [generation]
        return canonical_json(["row", run, launch_id, *own, self.nproc_per_node, *more])

    @property
    def is_loopback(self) -> bool:
        """Whether the node is reached on one machine alone."""
        return is_loopback(self.address)

    @property
    def family(self) -> Literal["IPv4", "IPv6"]:
        """Of the address."""
        return "IPv6" if parse_address(self.address).version == 6 else "IPv4"

    @property
    def subnet(self) -> str:
        """The network that the address is in."""
        return subnet_text(subnet_of(self.address, self.prefix_length))


class EndpointTable(Wire):
    """The sealed list. Immutable within its epoch, named by the SHA-256 of `canonical`.

    The fields are in the order of the canonical form.
    """

    epoch: int
    generations: list[int] | None = Field(
        None, description="By row, where the MACs of the rows cover them."
    )
    launch_id: str
    master_address: str
    master_port: int
    network: str = Field("", description="The network class of all addresses, in words.")
    rows: list[TableRow]
    run: str
    transport: Literal["", "IB", "Socket", "Libfabric"] = Field(
        "", description="The network that NCCL's log should name; empty when nothing is expected."
    )

    @property
    def world_size(self) -> int:
        """Processes over all nodes."""
        return sum(row.nproc_per_node for row in self.rows)

    def processes(self) -> Iterator[tuple[TableRow, range]]:
        """The rows in their order, each with the global ranks of its processes."""
        first = 0
        for row in self.rows:
            yield row, range(first, first + row.nproc_per_node)
            first += row.nproc_per_node

    def first_process(self, node: int) -> int:
        """The global rank of the first process of this node."""
        return sum(row.nproc_per_node for row in self.rows if row.node < node)

    def canonical(self) -> bytes:
        """The one byte form of this table: sorted keys, no spaces, ASCII.

        That is how it is written anyway, but for letters beyond ASCII.
        """
        written = self.model_dump_json(exclude_none=True).encode()
        return written if written.isascii() else canonical_json(self.model_dump(exclude_none=True))

    def digest(self) -> str:
        """SHA-256 of the canonical form, lower-case hex."""
        return digest_of(self.canonical())

    def renewed(self, epoch: int, master_port: int) -> EndpointTable:
        """The table of the same nodes for another epoch."""
        return self.model_copy(update={"epoch": epoch, "master_port": master_port})

    def row_of_slot(self, slot: int) -> TableRow | None:
        """The row of a slot, or None when it is not in the table."""
        return next((row for row in self.rows if row.slot == slot), None)


def digest_of(canonical: bytes) -> str:
    """The digest of the table that has this canonical form."""
    return hashlib.sha256(canonical).hexdigest()


def canonical_json(value: Any) -> bytes:
    """JSON in one byte form: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
