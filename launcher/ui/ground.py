"""Where the page reads runs from: a folder of this machine, or the registry of another one.

It is entered before the rest of the page is imported: the clerk starts beside that.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.ui.clerk import Clerk, HandsOut
from rendezvous.frozen import frozen
from rendezvous.talk.join_string import ViewString
from rendezvous.wire.errors import UsageError

if TYPE_CHECKING:
    from launcher.run.elsewhere import Elsewhere


@frozen
class Ground:
    """Where runs are read from.

    Attributes:
        root: The folder of all of them.
        clerk: Who has their credentials.
        elsewhere: What keeps that folder up to date, of a run on another machine.
    """

    root: Path
    clerk: HandsOut
    elsewhere: Elsewhere | None = None


@contextlib.contextmanager
def ground(root: Path, view: ViewString | None, url: str | None, *, acts: bool) -> Iterator[Ground]:
    """The runs of a folder, or the one of RDZV_VIEW.

    Args:
        root: The folder of all runs that were launched here.
        view: What lets us see a run that was launched elsewhere.
        url: Where its registry is reached from here; None: where it says itself.
        acts: Whether credentials that look and change are held.

    Raises:
        UsageError: Nothing can be seen so.
    """
    if view is None:
        clerk = Clerk(root, acts=acts)
        try:
            yield Ground(root, clerk)
        finally:
            clerk.close()
        return
    if acts:
        raise UsageError(
            "RDZV_VIEW lets a page see a run, and not act",
            hint="use --ui-actions on the machine that launched the run",
        )
    from launcher.run.elsewhere import Elsewhere, place_at
    from launcher.ui.view_keys import ViewKeys

    place = view.place if url is None else place_at(view.place, url)
    with tempfile.TemporaryDirectory(prefix="rdzv-ui-") as folder:
        yield Ground(Path(folder), ViewKeys(view), Elsewhere(Path(folder), view, place))
