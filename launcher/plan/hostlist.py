"""Which machines a launch runs on: what `--hostlist` and `--hostfile` say. Pure.

The list names *all* nodes of the run. With slot 0's node here (the default) one of them is this
machine, and gets slot 0; with `--no-local-node` all slots go to the list, in its order. The list
may leave this machine out when `--nnodes` counts it, since then nothing is left to guess.

A line, or an item of a list, is what the field's own launchers take:

    n1                              a name or an address, or an alias that ssh knows
    n1:8   n1 slots=8               with the number of processes (MPICH; Open MPI, DeepSpeed)
    ada@n1   n1 user=ada port=2222  with what ssh should use; better said in ~/.ssh/config
    [fd00::7]:8   fd00::7           IPv6

A machine that stands there k times has k processes (as PBS writes it), or the sum of its slots.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import bracketed
from worker.settings import Processes, read_size

_LINE = re.compile(
    r"(?:(?P<user>[\w.+-]+)@)?"
    r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<bare6>[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*)"
    r"|(?P<name>[A-Za-z0-9_][\w.-]*))"
    r"(?::(?P<slots>[0-9]+))?",
    re.ASCII,
)
_SETTING = re.compile(r"(?P<key>\w+)=(?P<value>[\w.+-]+)", re.ASCII)
_AROUND_EQUALS = re.compile(r"\s*=\s*")
_MOST_SLOTS = 4096
_EXAMPLES = "for example: n1, n1:8, n1 slots=8, ada@n1, [fd00::7]:8"


@frozen
class Host:
    """One machine of the list.

    Attributes:
        name: Its name or address.
        slots: Processes on it; None when the list does not say.
        user: Who to be there; empty: as ssh is configured.
        port: Where its sshd listens; 0: as ssh is configured.
    """

    name: str
    slots: int | None = None
    user: str = ""
    port: int = 0

    @property
    def destination(self) -> str:
        """`[user@]name[:port]`, an IPv6 address in brackets: what `ssh://` is followed by."""
        user = f"{self.user}@" if self.user else ""
        name = user + bracketed(self.name)
        return f"{name}:{self.port}" if self.port else name

    def is_one_of(self, names: Collection[str]) -> bool:
        """Whether it is the machine with these names and addresses; a domain may be left out."""
        return any(_same_name(self.name.lower(), name.lower()) for name in names)


def _same_name(one: str, other: str) -> bool:
    if one == other:
        return True
    if _address(one) or _address(other):
        return _address(one) == _address(other)
    short = "." not in one or "." not in other
    return short and one.partition(".")[0] == other.partition(".")[0]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


# --- reading ----------------------------------------------------------------------------------


def read_hostlist(items: Sequence[str]) -> list[Host]:
    """The machines of `--hostlist`; each item may name several, with commas. Raises UsageError."""
    words = [word.strip() for item in items for word in item.split(",")]
    return _merged(_host(word, f"--hostlist {','.join(items)}: ") for word in words)


def read_hostfile(text: str, source: str) -> list[Host]:
    """The machines of a hostfile, in its order; raises UsageError with the line."""

    def hosts() -> Iterator[Host]:
        for number, line in enumerate(text.splitlines(), 1):
            if words := line.partition("#")[0].strip():
                yield _host(words, f"{source}:{number}: ")

    found = _merged(hosts())
    if not found:
        raise UsageError(
            (f"{source} does not name a host"), hint=f"write one host per line, {_EXAMPLES}"
        )
    return found


def _host(text: str, where: str) -> Host:
    first, *settings = _AROUND_EQUALS.sub("=", text).split() or [""]
    match = _LINE.fullmatch(first)
    if match is None:
        raise UsageError(f"{where}{first!r} is not a host", hint=_EXAMPLES)
    name = match["v6"] or match["bare6"] or match["name"]
    if match["name"] is None and _address(name) is None:
        raise UsageError(f"{where}{first!r} is not an IPv6 address", hint=_EXAMPLES)
    host = Host(name, user=match["user"] or "")
    words = [f"slots={match['slots']}"] if match["slots"] else []
    for word in [*words, *settings]:
        host = _with_setting(host, word, where)
    return host


def _with_setting(host: Host, word: str, where: str) -> Host:
    match = _SETTING.fullmatch(word)
    key, value = (match["key"], match["value"]) if match else (word, "")
    match key:
        case "slots":
            return replace(host, slots=_number(value, _MOST_SLOTS, f"{where}{word}"))
        case "port":
            return replace(host, port=_number(value, 65535, f"{where}{word}"))
        case "user":
            return replace(host, user=value)
        case "max_slots":
            return host  # how far others may overcommit it; we never do
    raise UsageError(
        f"{where}{word!r} is not known",
        hint="a host may be followed by slots=, max_slots=, user=, port=",
    )


def _number(text: str, most: int, where: str) -> int:
    number = int(text) if text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise UsageError(f"{where} is not a number from 1 to {most}")
    return number


def _merged(hosts: Iterable[Host]) -> list[Host]:
    """Each machine once, where it was named first; its slots are added up."""
    found: dict[tuple[str, str, int], Host] = {}
    for host in hosts:
        key = (host.name.lower(), host.user, host.port)
        known = found.setdefault(key, host)
        if known is not host:
            found[key] = replace(known, slots=(known.slots or 1) + (host.slots or 1))
    return list(found.values())


# --- placing ----------------------------------------------------------------------------------


def place(
    hosts: Sequence[Host],
    *,
    nnodes: str | None,
    local_node: bool,
    own_names: Sequence[str],
    spares: int = 0,
    standby: int = 0,
) -> list[Host]:
    """The machine of each slot; raises UsageError where that would be a guess.

    Args:
        hosts: What was named.
        nnodes: `--nnodes`, if it was given.
        local_node: Whether slot 0's node is this machine.
        own_names: This machine's names and addresses, its hostname first.
        spares: `--spares`.
        standby: `--standby`.
    """
    extra, given = spares + standby, extra_words(spares, standby)
    slots = None if nnodes is None else read_size(nnodes)[1] + extra
    ordered = _with_this_first(hosts, slots, own_names) if local_node else list(hosts)
    if slots is not None and slots != len(ordered):
        more = f" with {given}" if given else ""
        raise UsageError(
            f"--nnodes {nnodes}{more} does not match the hosts, which are {_counted(hosts)}",
            hint=f"give --nnodes {len(ordered) - extra}, or remove it",
        )
    if len(ordered) <= extra:
        raise UsageError(f"{given} leaves none of the hosts: {_counted(hosts)}")
    return ordered


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


def _counted(hosts: Sequence[Host]) -> str:
    names = ", ".join(host.name for host in hosts[:8])
    return f"{len(hosts)}: {names}{' ...' if len(hosts) > 8 else ''}"
