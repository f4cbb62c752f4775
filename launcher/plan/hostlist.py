"""Which machine of a launch gets which slot. Pure; `host_entries` reads what names them.

The list names *all* nodes of the run. With slot 0's node here (the default) one of them is this
machine, and gets slot 0; with `--no-local-node` all slots go to the list, in its order. The list
may leave this machine out when `--nnodes` counts it, since then nothing is left to guess.
"""

from __future__ import annotations

from collections.abc import Sequence

from launcher.plan.host_entries import Host
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import listed
from worker.counts import Processes, read_size

_SSH_PORT = 22
_USUAL = 64
"""Processes of a node, at most: more are likely to be a port."""


def place(
    hosts: Sequence[Host],
    *,
    nnodes: str | None,
    local_node: bool,
    own_names: Sequence[str],
    spares: int = 0,
    standby: int = 0,
    may_be_more: bool = False,
    given_by: str = "--nnodes",
) -> list[Host]:
    """The machine of each slot; raises UsageError where that would be a guess.

    With `may_be_more` further ones may follow: nodes that take a lost one's place start there.

    Args:
        hosts: What was named.
        nnodes: `--nnodes`, if it was given.
        local_node: Whether slot 0's node is this machine.
        own_names: This machine's names and addresses, its hostname first.
        spares: `--spares`.
        standby: `--standby`.
        given_by: Where `nnodes` was given.
    """
    extra, given = spares + standby, extra_words(spares, standby)
    slots = None if nnodes is None else read_size(nnodes)[1] + extra
    ordered = _with_this_first(hosts, slots, own_names) if local_node else list(hosts)
    is_more = slots is not None and may_be_more and slots < len(ordered)
    if slots is not None and slots != len(ordered) and not is_more:
        more = f" with {given}" if given else ""
        raise UsageError(
            f"{given_by} {nnodes}{more} does not match the hosts, which are {_counted(hosts)}",
            hint=_fitting(given_by, len(ordered) - extra),
        )
    if len(ordered) <= extra:
        raise UsageError(f"{given} leaves none of the hosts: {_counted(hosts)}")
    return ordered


def _fitting(given_by: str, nodes: int) -> str:
    """How to give the number of nodes that fits, where another one was given."""
    if given_by == "--nnodes":
        return f"give --nnodes {nodes}, or remove it"
    return f"--nnodes {nodes} overrides {given_by}; or change it there, or remove it"


def extra_words(spares: int, standby: int) -> str:
    """The options that ask for nodes beyond those of the job; empty where none does."""
    given = (("--spares", spares), ("--standby", standby))
    return " and ".join(f"{name} {count}" for name, count in given if count)


def _with_this_first(
    hosts: Sequence[Host], slots: int | None, own_names: Sequence[str]
) -> list[Host]:
    here = [host for host in hosts if host.is_one_of(own_names)]
    if len(here) > 1:
        raise UsageError(f"{here[0].name} and {here[1].name} are both this machine")
    if here:
        return [*here, *(host for host in hosts if host not in here)]
    if slots is not None and slots == len(hosts) + 1:
        return [Host("localhost"), *hosts]
    raise UsageError(
        f"slot 0 runs on this machine ({own_names[0]}), but the hosts do not include it: they "
        f"are {_counted(hosts)}",
        hint="with --no-local-node all nodes are started on these hosts; --nnodes "
        f"{len(hosts) + 1} adds this machine to them; an entry that is this machine under another "
        "name can be written as localhost",
    )


def processes_of(hosts: Sequence[Host]) -> Processes | None:
    """`--nproc-per-node` from the slots; None without any. Raises UsageError where some lack."""
    counts = tuple(host.slots for host in hosts if host.slots is not None)
    if not counts:
        return None
    for host in hosts:
        if host.slots is None:
            raise UsageError(
                f"{host.name} has no number of slots, but other hosts have one",
                hint="give all hosts slots (n1:8), or use --nproc-per-node",
            )
    return Processes(counts if len(set(counts)) > 1 else counts[:1])


def notes_of(
    hosts: Sequence[Host], source: str, given: Processes | None, option: str = "--nproc-per-node"
) -> list[str]:
    """What of a list's numbers a person may not expect, in sentences.

    Args:
        hosts: The machine of each slot.
        source: The option that named them.
        given: The number of processes that was asked for beside the list; None: that of the list.
        option: With what it was asked for.
    """
    counted = [host for host in hosts if host.slots is not None]
    if given is None:
        again = [host for host in counted if host.times > 1]
        many = [h for h in counted if h.slots == _SSH_PORT or (h.slots or 0) > _USUAL]
        return [
            *(
                f"{source} names {host.name} {host.times} times: one node with {host.slots} "
                "processes"
                for host in again[:1]
            ),
            *(
                f"{source} gives {host.name} {host.slots} processes; a port of its sshd is written "
                f"'{host.name} port={host.slots}'"
                for host in many[:1]
            ),
        ]
    counts = given.counts if len(given.counts) > 1 else given.counts * len(hosts)
    pairs = zip(hosts, counts, strict=False)  # a list that is too short is refused later
    others = [host for host, count in pairs if host.slots not in (None, count)]
    if not others:
        return []
    words = listed([f"{host.name}: {host.slots}" for host in others], 4)
    return [f"{option} {given} counts, and not the slots of {source} ({words})"]


def _counted(hosts: Sequence[Host]) -> str:
    names = ", ".join(host.name for host in hosts[:8])
    return f"{len(hosts)}: {names}{' ...' if len(hosts) > 8 else ''}"
