"""The machines that `--hostlist` and `--hostfile` name, in the forms of the field. Pure.

    n1                              a name or an address, or an alias that ssh knows
    n1:8   n1 slots=8   n1 8        with the number of processes (MPICH; Open MPI, DeepSpeed; LSF)
    ada@n1   n1 user=ada port=2222  with what ssh should use; better said in ~/.ssh/config
    [fd00::7]:8   fd00::7           IPv6
    gpu[01-04,7]-ib[0-1]:8          Slurm, pdsh
    n1 8 all.q@n1 UNDEFINED         Grid Engine

Between hosts there is a comma or a space; in a file of several lines, each line is one host or a
list with commas. A machine that stands there k times has k processes (as PBS and LSF write it), or
the sum of its slots.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from launcher.plan.host_ranges import expand
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.types import MOST_PROCESSES
from rendezvous.wire.words import bracketed, printable

_WORD = re.compile(r"(?:\[[^\[\]]*\]|[^,\s])+|,")
_HOST = re.compile(
    r"(?:(?P<user>[\w.+-]+)@)?"
    r"(?:\[(?P<v6>[0-9a-fA-F]*:[0-9a-fA-F:.]*)\]|(?P<bare6>[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*)"
    r"|(?P<names>(?:[\w.-]|\[[^\[\]]*\])+))"
    r"(?::(?P<slots>[0-9]+))?",
    re.ASCII,
)
_SETTING = re.compile(r"(?P<key>[\w-]+)=(?P<value>[\w.+-]+)", re.ASCII)
_AROUND_EQUALS = re.compile(r"\s*=\s*")
_KEYS = {
    "slots": "slots",
    "port": "port",
    "user": "user",
    "username": "user",
    "max_slots": "max_slots",
    "slots_max": "max_slots",
}
_MOST_OF_OTHERS = 1_000_000
"""For what Open MPI alone reads."""
_GRID_ENGINE = re.compile(r"(\S+\s+[0-9]+)\s+\S+@\S+\s+\S+")
_EXAMPLES = "for example: n1, n1:8, n1 slots=8, ada@n1, [fd00::7]:8, gpu[01-04]"
_FOLLOWING = "a host may be followed by slots=, max_slots=, user=, port="
_SSH_PORT = (
    "a number behind a host is its number of processes; the port of its sshd is written "
    "'{name} port=2222', or Port in ~/.ssh/config"
)
_LINK_LOCAL = "is a link-local address, which ssh takes from its configuration alone"
_ALIAS = "write an alias of the host, and in ~/.ssh/config: Host ALIAS, HostName fe80::1%eth0"
_MOST_LABEL, _MOST_NAME, _MOST_SHOWN = 63, 253, 60

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@frozen
class Host:
    """One machine of the list.

    Attributes:
        name: Its name or address.
        slots: Processes on it; None when the list does not say.
        user: Who to be there; empty: as ssh is configured.
        port: Where its sshd listens; 0: as ssh is configured.
        times: How often the list names it.
    """

    name: str
    slots: int | None = None
    user: str = ""
    port: int = 0
    times: int = 1

    @property
    def destination(self) -> str:
        """`[user@]name[:port]`, an IPv6 address in brackets: what `ssh://` is followed by."""
        user = f"{self.user}@" if self.user else ""
        name = user + bracketed(self.name)
        return f"{name}:{self.port}" if self.port else name

    def is_one_of(self, names: Collection[str]) -> bool:
        """Return whether it has one of these names and addresses; a domain may be left out."""
        return any(_same_name(self.name.lower(), name.lower()) for name in names)


def _same_name(one: str, other: str) -> bool:
    if one == other:
        return True
    if _address(one) or _address(other):
        return _address(one) == _address(other)
    short = "." not in one or "." not in other
    return short and one.partition(".")[0] == other.partition(".")[0]


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def read_hostlist(items: Sequence[str]) -> list[Host]:
    """The machines of `--hostlist`; each item may name several. Raises UsageError."""
    where = f"--hostlist {printable(','.join(items), _MOST_SHOWN)}: "
    words = [word for item in items for word in _words(item, where)]
    found = _merged(list(_entries(words, where)), where)
    if not found:
        raise UsageError("--hostlist does not name a host", hint=_EXAMPLES)
    return found


def read_names(items: Sequence[str], given_by: str) -> list[str]:
    """Hosts by their names alone, each once. Raises UsageError."""
    where = f"{given_by} {printable(','.join(items), _MOST_SHOWN)}: "
    words = [word for item in items for word in _words(item, where)]
    hosts = [host for word in words for host in _hosts(word, where)]
    for host in hosts:
        if host.slots is not None or host.user:
            message = f"{where}{host.name} is given with a user or a number of processes"
            raise UsageError(message, hint="give the names of hosts alone: n1,gpu[01-04]")
    if not hosts:
        raise UsageError(f"{given_by} does not name a host", hint=_EXAMPLES)
    return list(dict.fromkeys(host.name for host in hosts))


def read_hostfile(text: str, source: str) -> list[Host]:
    """The machines of a hostfile, in its order; raises UsageError with the line."""
    lines = {
        number: entry
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
        if (entry := line.partition("#")[0].strip())
    }
    hosts: list[Host] = []
    for number, entry in lines.items():
        where = f"{source}:{number}: "
        words = _words(_GRID_ENGINE.sub(r"\1", entry), where)
        found = list(_entries(words, where))
        if len(lines) > 1 and "," not in entry:
            _check_one_host(words, where)
        hosts += found
    if not hosts:
        raise UsageError(
            f"{source} does not name a host", hint=f"write one host per line, {_EXAMPLES}"
        )
    return _merged(hosts, f"{source}: ")


def _words(text: str, where: str) -> list[str]:
    """Split at commas and spaces; a comma at the end is nothing."""
    words = _WORD.findall(_AROUND_EQUALS.sub("=", text))
    for number, word in enumerate(words):
        if word == "," and (number == 0 or words[number - 1] == ","):
            raise UsageError(f"{where}there is no host before a comma", hint=_EXAMPLES)
    return [word for word in words if word != ","]


def _check_one_host(words: Sequence[str], where: str) -> None:
    for word in words[1:]:
        if not _is_setting(word):
            raise UsageError(
                f"{where}{word!r} is not known",
                hint=f"{_FOLLOWING}; write one host per line, or commas between hosts",
            )


def _is_setting(word: str) -> bool:
    return word.isdecimal() or "=" in word or _key(word) in _KEYS


def _key(word: str) -> str:
    return word.lower().replace("-", "_")


def _entries(words: Iterable[str], where: str) -> Iterator[Host]:
    """Hosts, each with what follows it; what follows a range is said of all that it names."""
    group: list[Host] = []
    for word in words:
        if group and _is_setting(word):
            group = [_with_setting(host, word, where) for host in group]
        else:
            yield from group
            group = _hosts(word, where)
    yield from group


def _hosts(word: str, where: str) -> list[Host]:
    match = _HOST.fullmatch(word)
    if match is None:
        raise UsageError(f"{where}{_why_not(word)}", hint=_advice(word))
    if literal := match["v6"] or match["bare6"]:
        names = [_checked_v6(literal, word, where)]
    else:
        names = _checked_names(match["names"], word, where)
    hosts = [Host(name, user=match["user"] or "") for name in names]
    if match["slots"]:
        hosts = [_with_slots(host, match["slots"], word, where) for host in hosts]
    return hosts


def _checked_v6(literal: str, word: str, where: str) -> str:
    address = _address(literal)
    if address is None:
        raise UsageError(f"{where}{word!r} is not an IPv6 address", hint=_EXAMPLES)
    if address.is_link_local:
        raise UsageError(f"{where}'{literal}' {_LINK_LOCAL}", hint=_ALIAS)
    return literal


def _checked_names(pattern: str, word: str, where: str) -> list[str]:
    try:
        names = expand(pattern) if "[" in pattern else [pattern]
    except ValueError as exc:
        raise UsageError(f"{where}{word!r} is not a list of hosts: {exc}", hint=_EXAMPLES) from exc
    for name in names:
        if problem := name_problem(name):
            raise UsageError(f"{where}{problem}", hint=_EXAMPLES)
    return names


def name_problem(name: str) -> str:
    """Say in one clause why this name leads to no machine; empty where it may."""
    labels = name.removesuffix(".").split(".")
    shown = f"'{printable(name, _MOST_SHOWN)}'"
    if not all(labels):
        return f"{shown} has an empty label: there is no name before or between its dots"
    longest = max(labels, key=len)
    if len(longest) > _MOST_LABEL:
        return (
            f"{shown} has a label of {len(longest)} characters, and a name has at most "
            f"{_MOST_LABEL} between its dots"
        )
    if len(name) > _MOST_NAME:
        return f"{shown} has {len(name)} characters, and a name has at most {_MOST_NAME}"
    if name.startswith("-"):
        return f"{shown} begins with '-', and is not a host"
    if all(label.isdecimal() for label in labels) and _address(name) is None:
        return f"{shown} is {'not an IPv4 address' if len(labels) > 1 else 'a number, not a host'}"
    return ""


def _why_not(word: str) -> str:
    """Say what is wrong with a word that has not the form of a host."""
    shown = f"'{printable(word, _MOST_SHOWN)}'"
    strange = next((letter for letter in word if not letter.isascii()), "")
    if strange:
        return (
            f"{shown} has the character {strange!r} (U+{ord(strange):04X}), and a host is written "
            "in ASCII letters, digits, '.', '-' and '_'"
        )
    return f"{shown} {_LINK_LOCAL}" if "%" in word else f"{shown} is not a host"


def _advice(word: str) -> str:
    """Advise another way to write it."""
    if not word.isascii():
        return "type the name again, or write its ASCII form (xn--...)"
    if "%" in word:
        return _ALIAS
    if "://" in word:
        return f"write it without '{word.partition('://')[0]}://': {_EXAMPLES}"
    if word[0] in "/^@~" or ("/" in word and "*" not in word):
        return f"a file with hosts is given by --hostfile FILE; {_EXAMPLES}"
    if "{" in word:
        return "a range is written with brackets: gpu[01-04], gpu[1,3]"
    if "*" in word or "+" in word or "ppn" in word:
        return "processes are written n1:8, and hosts have commas between them: n1:8,n2:8"
    if ";" in word:
        return "hosts have commas between them: n1,n2"
    return _EXAMPLES


def _with_setting(host: Host, word: str, where: str) -> Host:
    if word.isdecimal():
        return _with_slots(host, word, f"{host.name} {word}", where)
    match = _SETTING.fullmatch(word)
    key, value = (match["key"], match["value"]) if match else (word, "")
    match _KEYS.get(_key(key)):
        case "slots":
            return _with_slots(host, value, word, where)
        case "port":
            return replace(host, port=_number(value, 65535, f"{where}{word}"))
        case "user" if value:
            return replace(host, user=value)
        case "max_slots" if value:
            return _overcommitted(host, value, word, where)
    is_known = match is None and _key(word.removesuffix("=")) in _KEYS
    problem = "has no value" if is_known else "is not known"
    raise UsageError(f"{where}{word!r} {problem}", hint=_FOLLOWING)


def _overcommitted(host: Host, text: str, word: str, where: str) -> Host:
    """The host as it is: how far others may overcommit it; Open MPI refuses the same ones."""
    if _number(text, _MOST_OF_OTHERS, f"{where}{word}") < (host.slots or 0):
        raise UsageError(
            f"{where}{word!r} is less than slots={host.slots} of {host.name}",
            hint=f"write slots={text}, or remove {word}: rdzv never starts more than slots",
        )
    return host


def _with_slots(host: Host, text: str, word: str, where: str) -> Host:
    if text.isdecimal() and int(text[:9]) > MOST_PROCESSES:
        raise UsageError(
            f"{where}'{word}' is read as {printable(text, 20)} processes on {host.name}, and a "
            f"node has at most {MOST_PROCESSES}",
            hint=_SSH_PORT.format(name=host.name),
        )
    return replace(host, slots=_number(text, MOST_PROCESSES, f"{where}slots={text}"))


def _number(text: str, most: int, where: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise UsageError(f"{where} is not a number from 1 to {most}")
    return number


def _merged(hosts: Sequence[Host], where: str) -> list[Host]:
    """Each machine once, where it was named first, with the sum of its slots.

    Where the list says no number, but names one machine several times, all are counted.
    """
    keys = [(_known_as(host.name), host.user, host.port) for host in hosts]
    if all(host.slots is None for host in hosts) and len(set(keys)) < len(hosts):
        hosts = [replace(host, slots=1) for host in hosts]
    found: dict[tuple[str, str, int], Host] = {}
    for key, host in zip(keys, hosts, strict=True):
        known = found.setdefault(key, host)
        if known is not host:
            slots = (known.slots or 1) + (host.slots or 1)
            found[key] = replace(known, slots=slots, times=known.times + 1)
    for host in found.values():
        if (host.slots or 0) > MOST_PROCESSES:
            raise UsageError(
                f"{where}{host.name} is named {host.times} times, which is read as "
                f"{host.slots} processes on it, and a node has at most {MOST_PROCESSES}",
                hint=_SSH_PORT.format(name=host.name),
            )
    return list(found.values())


def _known_as(name: str) -> str:
    """One spelling for each name and address."""
    return str(_address(name) or name.lower().removesuffix("."))
