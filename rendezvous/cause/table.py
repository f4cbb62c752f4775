"""The causes that can be told from each other, as `rows.toml` lists them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from rendezvous.cause.row import Kind, Row, Then
from rendezvous.compat import tomllib

__all__ = ["BY_CODE", "BY_ID", "CAUSES", "OF_DEVICES", "SICK_XID", "Kind", "Row", "Then", "read"]


def read(name: str) -> dict[str, Any]:
    """Read a table that stands beside this module."""
    return tomllib.loads(files(__package__).joinpath(name).read_text("utf-8"))


_TABLE = read("rows.toml")
_FRAGMENT = re.compile(r"<<([A-Z_]+)>>")


def _whole(pattern: str) -> str:
    """A pattern with its fragments, on one line."""
    fragments: Mapping[str, str] = _TABLE["fragments"]
    return _FRAGMENT.sub(lambda name: _whole(fragments[name[1]]), pattern.replace("\n", ""))


def _row(of: Mapping[str, Any]) -> Row:
    return Row(
        **{
            **of,
            "patterns": tuple(map(_whole, of.get("patterns", ()))),
            "words": tuple(map(_whole, of.get("words", ()))),
            "codes": tuple(of.get("codes", ())),
            "kind": Kind(of.get("kind", Kind.OWN)),
            "then": Then(of.get("then", Then.MAY_HELP)),
        }
    )


CAUSES: tuple[Row, ...] = tuple(map(_row, _TABLE["cause"]))
SICK_XID = re.compile(_whole("<<SICK_XID>>"))
OF_DEVICES = frozenset(row.id for row in CAUSES if row.group == "devices" and row.kind is Kind.OWN)
BY_ID = {row.id: row for row in CAUSES}
BY_CODE = {code: row.id for row in CAUSES for code in row.codes}
