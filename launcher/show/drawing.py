"""Pictures: matplotlib, where it is installed, and the file that it draws into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launcher.show.installation import how_to_install
from rendezvous.wire.errors import UsageError

_KINDS = (".svg", ".png", ".pdf")


def check_picture(path: Path) -> None:
    """See, before any work, that it can be drawn into such a file; raises UsageError."""
    if path.suffix not in _KINDS:
        raise UsageError(
            f"cannot draw into {path}", hint="name a file that ends in .svg, .png or .pdf"
        )
    new_figure()


def new_figure(width: float = 6.0, height: float = 4.0) -> Any:
    """A figure of so many inches, which needs no display; raises UsageError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise UsageError(
            "drawing needs matplotlib, which is not installed",
            hint=f"install it: {how_to_install('plot')}",
        ) from exc
    return Figure(figsize=(width, height), layout="constrained")


def plain(text: str) -> str:
    """A text in which a $ is no formula."""
    return text.replace("$", r"\$")


def save_picture(figure: Any, path: Path) -> None:
    """Write the figure in the form that the file's name ends in; raises UsageError."""
    try:
        figure.savefig(path, dpi=120)
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}") from exc
