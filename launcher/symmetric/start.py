"""A symmetric start: n equal containers run the same command with one group token.

Node 0 boots the registry, its key made from the token; the others make their own join strings from
the token, and know by it whether they have met the right registry. Which node this is, of how many,
and where node 0 is, is given or adopted from the platform's environment (`adopt`); Slurm is asked
for the address at which it reaches node 0, since names need not resolve.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from launcher.options import outside_environment, with_sources
from launcher.plan.env_files import read_env_files
from launcher.plan.given_variables import given_variables
from launcher.plan.hostlist import extra_words
from launcher.plan.plan import check_run_id, parse_nnodes
from launcher.settings import Launching, LaunchSettings
from launcher.symmetric.adopt import Adopted, adopt, nodes_of, one_of_several
from launcher.symmetric.claim import FIELDS, Host, Value, check_is_host
from rendezvous.talk.credentials import RunKeys, hkdf
from rendezvous.talk.join_string import JoinString, RegistryPlace, parse_group_token
from rendezvous.wire.errors import UsageError
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import size_text
from worker.machine.interfaces import look

_NODE_ADDR = re.compile(r"(?:^|\s)NodeAddr=(\S+)")
_LIMIT_SECONDS = 10.0
"""For Slurm's answer."""


def settle(
    settings: Launching,
    environ: Mapping[str, str],
    sources: Mapping[str, str],
    *,
    say: Callable[[str], None],
) -> Launching:
    """The settings of this node of a symmetric start, with what its platform tells.

    Args:
        settings: What was given.
        environ: The environment.
        sources: Where each setting was given, by its name; without those that were not.
        say: Tells the person what was adopted, and what contradicts it.

    Raises:
        UsageError: A value is missing, or cannot be: this node would train alone or wait for
            nothing.
    """
    adopted = adopt(environ, given_values(settings, sources), this_host())
    adopted.check()
    notes = check_values(adopted, settings.spares, settings.standby)
    values = adopted.values
    master = values["master_addr"].text
    known = _slurm_address(adopted, environ)
    if adopted.platform:
        where = f"{known} (NodeAddr of {master})" if known else master
        say(
            f"node {values['node_rank'].text} of {values['nnodes'].text}, node 0 at "
            f"{where}, run '{values['rdzv_id'].text}' "
            f"(by {adopted.platform}; see rdzv doctor --env)"
        )
    for note in notes:
        say(note)
    found: dict[str, object] = {name: value.text for name, value in values.items()}
    found["node_rank"] = int(values["node_rank"].text)
    found["master_addr"] = f"{known},{master}" if known else master
    found["nnodes"] = _size(settings, values["nnodes"])
    sizes = {"nnodes": values["nnodes"].source}
    return with_sources(settings.model_copy(update=found), sizes)


def _slurm_address(adopted: Adopted, environ: Mapping[str, str]) -> str:
    """Where Slurm reaches node 0, which it has named; asked above node 0 alone."""
    named = adopted.platform == "Slurm" and "master_addr" not in adopted.given
    if not named or adopted.values["node_rank"].text == "0":
        return ""
    return _node_address(adopted.values["master_addr"].text, environ)


def _size(settings: LaunchSettings, told: Value) -> str:
    """`--nnodes`; of a number that a platform tells, spares and standbys are a part."""
    low, high = parse_nnodes(told.text)
    extra = settings.extra_nodes
    if settings.nnodes is None and extra:
        low, high = min(low, high - extra), high - extra
        if low < 1:
            given = extra_words(settings.spares, settings.standby)
            raise UsageError(f"{given} leaves none of the {told.text} nodes ({told.source})")
    return size_text(low, high)


def given_values(settings: LaunchSettings, sources: Mapping[str, str]) -> dict[str, Value]:
    """What a person has given, each with its source."""
    return {
        name: Value(str(getattr(settings, name)), sources.get(name) or name)
        for name in FIELDS
        if getattr(settings, name) not in (None, "")
    }


def check_values(adopted: Adopted, spares: int = 0, standby: int = 0) -> list[str]:
    """Refuse values that cannot be; returns what is worth a note. Nothing is missing."""
    extra, given = spares + standby, extra_words(spares, standby)
    values = adopted.values
    number, size, master = values["node_rank"], values["nnodes"], values["master_addr"]
    check_run_id(values["rdzv_id"].text, values["rdzv_id"].source)
    check_is_host(master)
    _, nodes = parse_nnodes(size.text, given_by=size.source)
    if not (number.text.isascii() and number.text.isdigit()):
        raise UsageError(f"{number.source} is {number.text!r}, which is not a node's number")
    if int(number.text) >= nodes + extra:
        more = f", {given}" if given else ""
        raise UsageError(
            f"{number.source} {number.text} is not in 0 to {nodes + extra - 1} "
            f"({size.source} is {size.text}{more})",
            hint="nodes are counted from 0",
        )
    if number.text == "0":
        refuse = bool({"node_rank", "master_addr"} & adopted.given)
        return [*adopted.notes, *_check_master_is_here(number, master, refuse=refuse)]
    if is_loopback(master.text) and "master_addr" not in adopted.given:
        raise UsageError(
            f"{number.source} is {number.text}, and {master.source} is {master.text}: that is this "
            "node, but node 0 is another one",
            hint="give MASTER_ADDR: the address of node 0",
        )
    return list(adopted.notes)


def _check_master_is_here(number: Value, master: Value, *, refuse: bool) -> list[str]:
    """Whether an address of node 0 is this node's.

    A name is not looked up: what it means on the other nodes cannot be told here. Where a platform
    has told both the number and the address, it may well be one that leads here from outside.
    """
    try:
        address = str(ipaddress.ip_address(master.text))
    except ValueError:
        return []
    own = [cidr.split("/")[0] for interface in look().interfaces for cidr in interface.addresses]
    if address in own:
        return []
    words = f"{master.source} {master.text} is not an address of this node ({', '.join(own)})"
    if not refuse:
        return [f"{words}: the other nodes reach it only if that address maps to this node"]
    raise UsageError(
        f"{number.source} is 0, but {words}",
        hint="set NODE_RANK=0 on the node that MASTER_ADDR names",
    )


def check_alone(
    settings: LaunchSettings, environ: Mapping[str, str], sources: Mapping[str, str]
) -> None:
    """Without a group token: refuse to be one of several nodes that would each run the whole job.

    Who chooses a scheduler, or says that the run has one node, knows what this node is.

    Raises:
        UsageError: This is one of several equal nodes.
    """
    if settings.node_rank:
        raise UsageError(
            f"NODE_RANK is {settings.node_rank} but RDZV_TOKEN is not set: this node cannot find "
            "the others, and would run all nodes of the job by itself",
            hint="run 'rdzv token new' and set its output on every node, or unset NODE_RANK",
        )
    chosen = {"scheduler", "scheduler_profile"} & set(sources) or not settings.local_node
    if chosen or settings.nnodes == "1":
        return
    claim = one_of_several(environ, this_host(), nodes_of(given_values(settings, sources)))
    if claim is None:
        return
    if claim.problem is not None:
        raise claim.problem
    if not claim.numbered:
        raise UsageError(
            f"this is one of several nodes ({claim.platform}), which have no number: each would "
            "run all nodes of the job by itself",
            hint=claim.advice["node_rank"],
        )
    number, size = claim.values["node_rank"], claim.values.get("nnodes")
    of_all = f" of {size.text}" if size else ""
    raise UsageError(
        f"this is node {number.text}{of_all} ({claim.platform}: {number.source}) but RDZV_TOKEN is "
        "not set: it cannot find the others, and would run all nodes of the job by itself",
        hint="run 'rdzv token new' and set its output on every node; or, to run all nodes on "
        "this machine, use --scheduler local",
    )


def this_host() -> Host:
    """What this node knows of itself beside its environment."""
    try:
        hosts = Path("/etc/hosts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        hosts = ""
    return Host(socket.gethostname(), hosts)


def group_launch_id(secret: bytes, run: str) -> str:
    """The launch id that all holders of a group token share."""
    return hkdf(secret, f"launch id|{run}", 5).hex()


def symmetric_join(settings: LaunchSettings, group_token: str) -> JoinString:
    """The join string of a node above node 0; the settings have been settled."""
    secret = parse_group_token(group_token)
    run = check_run_id(settings.rdzv_id or "")
    node = settings.node_rank or 0
    keys = RunKeys(secret, run, group_launch_id(secret, run))
    place = group_place((settings.master_addr or "").split(","), settings.port, secret)
    return JoinString.of(keys, place, node)


def own_variables(settings: LaunchSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a node above node 0 gives to its own program; raises UsageError."""
    files = read_env_files(settings.env_file)
    given = given_variables(settings, environ, files, symmetric=True)
    return given.of_slot(settings.node_rank or 0)


def group_place(addresses: Iterable[str], port: int, secret: bytes) -> RegistryPlace:
    """Where the registry of a group is, whose key everybody makes from the secret."""
    from rendezvous.talk.certificate import public_key_pin

    return RegistryPlace(tuple(addresses), port, "public_key", public_key_pin(secret))


def address_in(said: str, name: str) -> str:
    """The NodeAddr in what `scontrol show node` says; empty where it is no more than the name."""
    found = _NODE_ADDR.search(said)
    return found[1] if found and found[1] not in (name, "(null)") else ""


def _node_address(name: str, environ: Mapping[str, str]) -> str:
    """The NodeAddr of a node, asked of Slurm; empty where that cannot be asked, or knows no more.

    Args:
        name: The node, as Slurm names it.
        environ: The user's environment, which says where Slurm is.
    """
    command = shutil.which("scontrol", path=environ.get("PATH", ""))
    if command is None or name.startswith("-"):
        return ""
    try:
        done = subprocess.run(
            [command, "--oneliner", "show", "node", name],
            env=outside_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return address_in(done.stdout, name)
