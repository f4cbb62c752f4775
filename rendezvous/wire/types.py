"""What the messages are made of: addresses, names, numbers and words, each with its bounds. Pure.

Models of messages that a peer sends ignore unknown keys, so that a worker survives a newer registry
of the same protocol. Types are strict: "1", 1.0 and true are not the integer 1.

Durations are seconds (float), never dates. Digests are lower-case hex SHA-256.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from rendezvous.wire.words import PRINTABLE, printable

MAX_NODES = 20_000
MOST_PROCESSES = 4096
"""Of one node."""

RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"

parse_address = functools.lru_cache(maxsize=2 * MAX_NODES)(ipaddress.ip_address)
"""The same addresses come again and again: in candidates, rows and tables."""


_PORTS = re.compile(r"[0-9]{4,5}(-[0-9]{4,5})?")
_LOCAL_NAMES = {
    *("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"),
    *("localhost.localdomain", "localhost4.localdomain4", "localhost6.localdomain6"),
}
"""The names of loopback in the hosts files of the usual systems."""


@functools.lru_cache(maxsize=2 * MAX_NODES)  # asked of each node for each table
def is_loopback(address: str) -> bool:
    """Whether an address, or a name, is the machine itself wherever it is looked up."""
    try:
        return parse_address(address).is_loopback
    except ValueError:
        return address.lower().removesuffix(".") in _LOCAL_NAMES


_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


Subnet = tuple[int, int, int]
"""Version, prefix length, and the bits of the prefix."""


@functools.lru_cache(maxsize=2 * MAX_NODES)  # asked for several times while a table is made
def subnet_of(address: str, prefix_length: int) -> Subnet:
    """The subnet that an address is in."""
    parsed = parse_address(address)
    return parsed.version, prefix_length, int(parsed) >> (parsed.max_prefixlen - prefix_length)


def subnet_text(subnet: Subnet) -> str:
    """As it is written: `10.0.0.0/24`; `ipaddress.ip_network` takes eight times as long."""
    version, prefix_length, bits = subnet
    if version == 4:
        return f"{ipaddress.IPv4Address(bits << (32 - prefix_length))}/{prefix_length}"
    return f"{ipaddress.IPv6Address(bits << (128 - prefix_length))}/{prefix_length}"


def base64_length(count: int) -> int:
    """How many characters so many bytes have."""
    return (count + 2) // 3 * 4


@functools.cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Reads and checks values of this kind; made once."""
    return TypeAdapter(kind)


def _check_run_id(value: str) -> str:
    if not re.fullmatch(RUN_ID, value):
        raise ValueError(
            "a run id has 1 to 63 letters, digits, '.', '_' or '-', "
            "and begins with a letter or digit"
        )
    return value


def check_printable(value: str) -> str:
    """As it is; raises ValueError where it has control characters."""
    if not PRINTABLE.match(value):
        raise ValueError("control characters are not allowed")
    return value


def _check_address(value: str) -> str:
    """An IP literal in its canonical form; no zone, no mapped form, nothing that means 'any'."""
    if "%" in value:
        raise ValueError("an address with a zone is not reachable from other nodes")
    try:
        address = parse_address(value)
    except ValueError:
        raise ValueError("not an IPv4 or IPv6 address") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError("write an IPv4 address as IPv4, not as ::ffff:")
    if address.is_multicast or address.is_unspecified or address.is_link_local:
        raise ValueError("multicast, unspecified and link-local addresses are not reachable")
    if address == _BROADCAST:
        raise ValueError("the broadcast address is not a node's")
    return str(address)


RunId = Annotated[str, AfterValidator(_check_run_id)]
Address = Annotated[str, Field(max_length=45), AfterValidator(_check_address)]
Words = Annotated[str, Field(max_length=600), AfterValidator(check_printable)]
ShortWords = Annotated[str, Field(max_length=253), AfterValidator(check_printable)]
OutputLine = Annotated[str, Field(max_length=400), AfterValidator(lambda t: printable(t, 400))]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Base64 = Annotated[str, Field(pattern=_BASE64)]
SlotIndex = Annotated[int, Field(ge=0, lt=MAX_NODES)]
Generation = Annotated[int, Field(ge=1, le=1_000_000)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Seconds = Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)]


# What a registry holds very many of is a dataclass, of a sixth of a model's memory.
STRICT = ConfigDict(strict=True, extra="ignore")


class Wire(BaseModel):
    """A message from a peer: strict types, unknown keys ignored, never changed."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


CommandWord = Annotated[int, Field(ge=1)]


class Problem(Wire):
    """The one JSON shape of every refusal."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    command_word: CommandWord | None = Field(
        None, description="The first word of COMMAND, from 1, in which this node differs."
    )
    address: str | None = Field(
        None, description="Code `moved`: where the run is: HOST:PORT, IPv6 in brackets."
    )


def read_ports(text: str) -> tuple[int, int]:
    """The first and the last of `LOW-HIGH`, ports that need no privilege; raises ValueError."""
    if _PORTS.fullmatch(text):
        low, _, high = text.partition("-")
        if 1_024 <= int(low) <= int(high or low) <= 65_535:
            return int(low), int(high or low)
    raise ValueError("ports are LOW-HIGH, from 1024 to 65535, for example 41000-41099")
