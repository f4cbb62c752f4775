"""Another rdzv, as an image has it: a copy of this one that speaks another protocol."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rendezvous.wire.protocol import PROTOCOL

ROOT = Path(__file__).parents[2]
_PARTS = ("rendezvous", "worker", "launcher", "features", "rdzv", "specs", "docs")
VERSION = "0.9.9"


def other_rdzv(folder: Path, protocol: int = PROTOCOL + 1) -> list[str]:
    """Make it in this folder; returns its command."""
    for name in _PARTS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "rdzv_command.py", folder)
    changes = {
        "rendezvous/wire/protocol.py": (f"\nPROTOCOL = {PROTOCOL}\n", f"\nPROTOCOL = {protocol}\n"),
        "rdzv/torchrun.py": (f"\nPROTOCOL = {PROTOCOL}\n", f"\nPROTOCOL = {protocol}\n"),
        "rendezvous/version.py": ('return version("rdzv")', f'return "{VERSION}"'),
    }
    for name, (ours, theirs) in changes.items():
        text = (folder / name).read_text("utf-8")
        assert text.count(ours) == 1, name
        (folder / name).write_text(text.replace(ours, theirs), "utf-8")
    return [sys.executable, str(folder / "rdzv_command.py")]
