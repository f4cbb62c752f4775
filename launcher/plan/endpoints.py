"""A registry's address as a person writes it: HOST or HOST:PORT. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from launcher.plan.host_entries import name_problem
from rendezvous.talk.join_string import own_port, with_port
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable

_MOST_SHOWN: Final = 60
_EXAMPLE: Final = "give a name or an address, for example 10.0.0.4"
_FORM: Final = re.compile(r"[\w.-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\]:[0-9]+")
_AROUND: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^/@\s]*@)?(?P<endpoint>\[[^]\s]+\](?::\d+)?|[^/?#\s]+).*"
)
"""A URL or `user@host`, and what it has around its endpoint."""


def read_endpoint(text: str, given_by: str, example: str = _EXAMPLE) -> str:
    """An address to dial, in its one written form.

    Args:
        text: What was given; spaces around it, and brackets around an address alone, do not count.
        given_by: What gave it, for the error.
        example: The advice where it cannot be told what was meant.

    Raises:
        UsageError: No client could dial it; it says what to write.
    """
    word = text.strip()
    if not word:
        raise UsageError(f"{given_by} is empty", hint=example)
    if (address := _address(word)) is not None:
        if address.is_unspecified:
            raise UsageError(
                f"{given_by} is {word}: that is every address of a machine, and none to dial",
                hint=example,
            )
        return str(address)
    shown = printable(word, _MOST_SHOWN)
    if not _FORM.fullmatch(word):
        raise UsageError(
            f"{given_by} is '{shown}', which is not a name or an address",
            hint=_instead(word) or example,
        )
    host, _, port = word.rpartition(":") if ":" in word else (word, "", "")
    if port and own_port(word) is None:
        raise UsageError(
            f"{given_by} is '{shown}', and a port is a number from 1 to 65535",
            hint=f"write {host}, which has the port of --port, or {host}:29600",
        )
    problem = "" if host.startswith("[") else name_problem(host)
    if problem:
        raise UsageError(f"{given_by}: {problem}", hint=example)
    return word


def read_endpoints(texts: Iterable[str], given_by: str) -> list[str]:
    """Each address of an option that can be repeated; raises UsageError."""
    return [read_endpoint(text, given_by) for text in texts]


def without_program_port(text: str, ports: Iterable[str]) -> str:
    """The addresses of node 0, with commas between them, as far as it is plain what is meant.

    Args:
        text: MASTER_ADDR.
        ports: The ports that are the program's own, as MASTER_PORT: the registry is at another one.
    """
    known = [port.strip() for port in ports]
    return ",".join(_without_port(word, known) for word in text.split(","))


def _without_port(word: str, ports: list[str]) -> str:
    try:
        endpoint = read_endpoint(word, "")
    except UsageError:
        return word
    found = own_port(endpoint)
    if found is None or str(found[1]) not in ports:
        return endpoint
    return found[0]


def _address(word: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    literal = word[1:-1] if word[:1] == "[" and word[-1:] == "]" else word
    try:
        return ipaddress.ip_address(literal)
    except ValueError:
        return None


def _instead(word: str) -> str:
    """Advise what to write for a URL and the like; empty where that cannot be told."""
    if "," in word and not set(word) & set("/@ "):
        return "give one address, or repeat the option: it takes no list"
    found = _AROUND.fullmatch(word)
    if found is None or found["endpoint"] == word:
        return ""
    try:
        endpoint = read_endpoint(found["endpoint"], "")
    except UsageError:
        return ""
    at = own_port(endpoint)
    return f"write {with_port(*at) if at else endpoint}"
