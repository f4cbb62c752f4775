"""What one platform says of this node, and how an environment is read for it. Pure."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.plan.endpoints import read_endpoint
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError

FIELDS = ("nnodes", "node_rank", "rdzv_id", "master_addr")
"""The settings that a symmetric start needs, by their names there."""

_LONGEST_RUN_ID = 63


@frozen
class Host:
    """What a node knows of itself beside its environment.

    Attributes:
        hostname: Its hostname.
        hosts: The text of its /etc/hosts; a pod's full name stands there.
    """

    hostname: str = ""
    hosts: str = ""


@frozen
class Value:
    """A value, and where it comes from.

    Attributes:
        name: The variable, option or file.
        also: A second variable; empty when there is none.
        note: Which part of it; empty: all.
    """

    text: str
    name: str
    also: str = ""
    note: str = ""

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        names = f"{self.name} and {self.also}" if self.also else self.name
        return f"{names} ({self.note})" if self.note else names


@dataclass(slots=True)
class Claim:
    """What one platform says of this node.

    Attributes:
        platform: Its name.
        values: What it says, by the name of the setting.
        advice: How to give what it does not say, by the name of the setting.
        problem: Why it cannot be relied on.
        numbered: Whether it can tell a node's number; one that cannot still says that there are
            others.
    """

    platform: str
    values: dict[str, Value] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)
    problem: UsageError | None = None
    numbered: bool = True

    @property
    def node(self) -> int | None:
        """The node's number, where it is told."""
        value = self.values.get("node_rank")
        return int(value.text) if value else None

    @property
    def nodes(self) -> int | None:
        """The greatest number of nodes, where it is told."""
        value = self.values.get("nnodes")
        return int(value.text.rpartition(":")[2]) if value else None


@frozen
class Variables:
    """An environment, read by name; a variable that is empty is not set."""

    environ: Mapping[str, str]
    host: Host
    claim: Claim
    nodes: int | None

    def text(self, name: str) -> str:
        """The value; empty when it is not set."""
        return self.environ.get(name, "").strip()

    def names(self, pattern: str) -> list[re.Match[str]]:
        """The variables that are set and whose name matches."""
        found = (re.fullmatch(pattern, name) for name in sorted(self.environ) if self.text(name))
        return [match for match in found if match]

    def first(self, *names: str) -> str:
        """The first of these variables that is set; the last one when none is."""
        return next((name for name in names if self.text(name)), names[-1])

    def number(self, name: str, default: int = 0) -> int:
        """A whole number; raises UsageError when something else is set."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise wrong(name, text, "not a whole number")
        return int(text)

    def json(self, name: str) -> Any:
        """A JSON value; raises UsageError when it is none."""
        try:
            return json.loads(self.text(name))
        except (ValueError, RecursionError):
            raise wrong(name, self.text(name), "no JSON") from None

    def take(self, setting: str, text: str, name: str, also: str = "", note: str = "") -> None:
        """This platform says so; an empty text says nothing."""
        if text:
            self.claim.values[setting] = Value(text, name, also, note)

    def take_number(self, setting: str, *names: str) -> None:
        """The first of these variables that is set says it."""
        name = self.first(*names)
        if self.text(name):
            self.take(setting, str(self.number(name)), name)

    def advise(self, **advice: str) -> None:
        """How to give what this platform does not say."""
        self.claim.advice |= advice


def wrong(name: str, text: str, what: str) -> UsageError:
    """The error of a variable whose value cannot be."""
    return UsageError(
        f"{name} is {text!r}: {what}",
        hint="the platform sets it; fix it, or set NUM_NODES, NODE_RANK and MASTER_ADDR yourself",
    )


def contradiction(message: str) -> UsageError:
    """The error of variables that do not fit together."""
    hint = "set NUM_NODES, NODE_RANK and MASTER_ADDR yourself: they override the platform's values"
    return UsageError(message, hint=hint)


def as_run_id(text: str) -> str:
    """A platform's own id of the job, as a run id: the same text gives the same id."""
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")
    if len(clean) <= _LONGEST_RUN_ID:
        return clean
    return f"{clean[: _LONGEST_RUN_ID - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def host_of(text: str) -> str:
    """The host of `host:port`, `[address]:port`, or of a host alone."""
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return text.rpartition(":")[0].strip("[]") or text


def check_is_host(master: Value) -> None:
    """Refuse what no resolver takes for a host, rather than ask one until the join timeout."""
    hint = "give the name or address of node 0 alone, for example 10.0.0.4"
    for host in master.text.split(","):
        read_endpoint(host, master.source, hint)
