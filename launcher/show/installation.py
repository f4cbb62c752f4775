"""Which commit of rdzv this is, and where it was installed from."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder of the packages: a checkout, or where they are installed."""


def commit(root: Path = ROOT) -> str:
    """The commit of a build (its file `commit`) or of a checkout, or "". Does not run git."""
    with contextlib.suppress(OSError):
        return (root / "commit").read_text().strip()
    with contextlib.suppress(OSError):
        return _head(root / ".git")
    return ""


def _head(git: Path) -> str:
    if os.path.isfile(git):  # of a worktree: "gitdir: PATH"
        git = git.parent / git.read_text().removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    common = git / "commondir"
    base = git / common.read_text().strip() if os.path.isfile(common) else git
    for folder in (git, base):
        if os.path.isfile(folder / name):
            return (folder / name).read_text().strip()
    packed = (base / "packed-refs").read_text().splitlines()
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")


def how_to_install(extra: str) -> str:
    """The command that installs an extra of this rdzv, which no package index has."""
    source, editable = _source()
    where = "-e " if editable else ""
    again = f"{sys.executable} -m pip install {where}'{source or 'PATH'}[{extra}]'"
    return again if source else f"{again}, where PATH is rdzv's checkout or wheel file"


def _source() -> tuple[str, bool]:
    """The checkout or wheel file that rdzv was installed from, "" if it is gone; is it editable."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        record = json.loads(distribution("rdzv").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        record = {}
    path = unquote(urlsplit(record.get("url", "")).path)
    editable = bool(record.get("dir_info", {}).get("editable"))
    return (path, editable) if path and os.path.exists(path) else ("", False)
