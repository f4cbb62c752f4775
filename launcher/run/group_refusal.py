"""A node of a symmetric start that cannot take part, and the others, which need not wait for it.

Node 0 opens the registry for a moment, with a run that ends at once for its reason; a node above it
tells the registry as the node of its slot. One whose number is no slot of the run, or 0 while the
registry is elsewhere, tells it with the token of slot 0: the registry keeps that it was there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from launcher.plan.plan import check_run_id, parse_nnodes
from launcher.prepare.environment import LaunchEnvironment
from launcher.state.state_dir import StateDir
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Value, check_is_host
from launcher.symmetric.start import group_launch_id, group_place, this_host
from rendezvous.compat import timeout
from rendezvous.frozen import frozen
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys, registry_credential
from rendezvous.talk.join_string import JoinString, parse_group_token
from rendezvous.talk.retry import until_answered
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.node import Job
from rendezvous.wire.run import RunSpec
from rendezvous.wire.types import is_loopback
from worker.machine.interfaces import look
from worker.offer.refusal import refusal_of, refuse

_NEAR = ("127.0.0.1",)
_POLL_SECONDS = 2.0
_START_SECONDS = 30.0
"""For the registry's process."""
_HOST_SECONDS = 20.0
"""Node 0 waits so long for the others: they start at about the same time."""
_ABOVE_SECONDS = 30.0
"""A node above it waits so long for the registry, whose process has to start first."""
_STRAY_SECONDS = 10.0
"""The same of a node without a slot: all nodes may be without one, and no registry come."""


@frozen
class Refuser:
    """A node that cannot take part.

    Attributes:
        run: The run that it was to be in.
        nodes: How many nodes, least and most, and how many beside these.
        slot: Its own; that of node 0 where it has none.
        of_slot: Whether it has one.
        hosts: Whether the registry is to be here.
        addresses: Where the registry is.
    """

    run: str
    nodes: tuple[int, int, int]
    slot: int
    of_slot: bool
    hosts: bool
    addresses: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Time after which it gives up."""
        if not self.of_slot:
            return _STRAY_SECONDS
        return _HOST_SECONDS if self.hosts else _ABOVE_SECONDS


def refuser(values: Mapping[str, Value], extra: int, own: Collection[str]) -> Refuser | None:
    """Who tells what is wrong; None where it is not known of which run, or where that is. Pure.

    Args:
        values: What is known of this node, by the name of the setting.
        extra: The spares and standbys.
        own: The addresses of this machine.
    """
    if not {"nnodes", "rdzv_id", "master_addr"} <= set(values):
        return None
    try:
        run = check_run_id(values["rdzv_id"].text)
        least, most = parse_nnodes(values["nnodes"].text)
        check_is_host(values["master_addr"])
    except UsageError:
        return None
    master, text = (
        values["master_addr"].text,
        values["node_rank"].text if "node_rank" in values else "",
    )
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else -1
    hosts = number == 0 and _may_be_here(master, own)
    of_slot = hosts or 0 < number < most + extra
    slot = number if of_slot else 0
    return Refuser(run, (least, most, extra), slot, of_slot, hosts, tuple(master.split(",")))


def _may_be_here(master: str, own: Collection[str]) -> bool:
    """Whether an address of node 0 may be this machine's; what a name means is not looked up."""
    try:
        address = str(ipaddress.ip_address(master))
    except ValueError:
        return True
    return address in own or is_loopback(address)


def tell_group(
    error: UsageError,
    environ: Mapping[str, str],
    given: Mapping[str, Value],
    token: str,
    *,
    port: int,
    extra: int,
    has_slot: bool = True,
    say: Callable[[str], None],
) -> None:
    """Let the other nodes know why this one does not take part, where it is known who they are.

    Args:
        error: Why.
        environ: The environment.
        given: What a person has given of this node, by the name of the setting.
        token: The group token.
        port: The registry's.
        extra: The spares and standbys.
        has_slot: False: the registry knows no slot of its number; the words of the error get both.
        say: Tells the person that it takes a while.
    """
    try:
        secret = parse_group_token(token)
        values = adopt(environ, given, this_host()).values
    except UsageError:
        return
    own = {cidr.split("/")[0] for one in look().interfaces for cidr in one.addresses}
    node = refuser(values, extra, own)
    if node is None:
        return
    if not has_slot:
        number, size = values["node_rank"], values["nnodes"]
        told = {"number": f"{number.source} {number.text}", "size": f"{size.source} is {size.text}"}
        error = UsageError(error.message.format(**told))
        node = replace(node, slot=0, of_slot=False, hosts=False)
    what = error.message.rstrip(".")
    say(f"{what} (reporting it to the other nodes, for at most {node.seconds:.0f} s)")
    work = _host(node, secret, port, error) if node.hosts else _tell(node, secret, port, error)
    with contextlib.suppress(RdzvError, OSError, TimeoutError):
        asyncio.run(work)


async def _tell(node: Refuser, secret: bytes, port: int, error: UsageError) -> None:
    """Tell the registry that is, or will be, at node 0."""
    keys = RunKeys(secret, node.run, group_launch_id(secret, node.run))
    join = JoinString.of(keys, group_place(node.addresses, port, secret), node.slot)
    async with RegistryClient(join.place, join.token) as client:
        await refuse(client, join, error, seconds=node.seconds, of_slot=node.of_slot)


async def _host(node: Refuser, secret: bytes, port: int, error: UsageError) -> None:
    """Be the registry of a run that has ended for this error, until the others have heard it."""
    world, keys = LaunchEnvironment(), RunKeys(secret, node.run, group_launch_id(secret, node.run))
    with tempfile.TemporaryDirectory(prefix="rdzv-") as folder:
        state = StateDir(Path(folder), node.run)
        state.acquire()
        sock = world.listen(port, address="", exact=True)
        world.configure(state, secret, tls=True)
        child = await world.start_registry(state, sock)
        sock.close()
        try:
            await _end_for(node, keys, port, error)
        finally:
            await child.end(kill_after=1.0)
            state.release()


async def _end_for(node: Refuser, keys: RunKeys, port: int, error: UsageError) -> None:
    """Make the run, end it, and wait until nobody is left who does not know why."""
    place = group_place(_NEAR, port, keys.secret)
    operator = RegistryClient(place, registry_credential(keys.secret))
    async with operator, RegistryClient(place, keys.join_token(0, 1)) as first:
        spec, refusal = _spec(node, keys), refusal_of(error, socket.gethostname())
        await until_answered(lambda: operator.create(node.run, spec), seconds=_START_SECONDS)
        await until_answered(lambda: first.refuse(node.run, 0, refusal), seconds=node.seconds)
        async with timeout(node.seconds):
            status = await operator.status(node.run)
            while set(status.untold) - {0}:
                status = await operator.status(node.run, after=status.version, wait=_POLL_SECONDS)


def _spec(node: Refuser, keys: RunKeys) -> RunSpec:
    """The run, as far as matters to who is told of its end; a node that is faster gets in."""
    least, most, extra = node.nodes
    return RunSpec(
        launch_id=keys.launch_id,
        min_nodes=least,
        max_nodes=most,
        spares=extra,
        managed=False,
        loopback=all(map(is_loopback, node.addresses)),
        same_command=False,
        job=Job(framework=""),
        token_sha256=[keys.join_token(slot, 1).sha256() for slot in range(most + extra)],
        read_sha256=keys.read.sha256(),
        admin_sha256=keys.admin.sha256(),
    )
