"""Hostnames: which of them lead nowhere, to every machine, or to an address by their form. Pure."""

from __future__ import annotations

import re

_EVERYONES = ("localhost", "localhost4", "localhost6", "loopback", "broadcasthost")
"""What systems' own hosts files hold; Debian's ip6-localhost, ip6-allnodes, ... beside them."""
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)\Z")


def is_everyones(name: str) -> bool:
    """Return whether every machine has this name for itself, as localhost."""
    first, _, domain = name.lower().removesuffix(".").partition(".")
    is_local = domain in ("", "localdomain", "localdomain4", "localdomain6")
    return is_local and (first in _EVERYONES or first.startswith("ip6-"))


def is_valid_label(name: str) -> bool:
    """Whether `name` may stand in /etc/hosts: one ASCII label, no number, not a reserved name."""
    return bool(_LABEL.match(name)) and not name.isdigit() and not is_everyones(name)


def lookup_error(name: str) -> str:
    """Say why Python cannot even look up a name; empty where it can."""
    try:
        name.encode("idna")
    except UnicodeError as exc:
        return str(exc.__cause__ or exc)
    return ""
