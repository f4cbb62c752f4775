"""The credentials of a run that was launched on another machine, for its page."""

from __future__ import annotations

from launcher.ui.clerk import Keys
from rendezvous.frozen import frozen
from rendezvous.talk.join_string import ViewString


@frozen
class ViewKeys:
    """Stand in for the clerk: the word has the credentials."""

    view: ViewString

    def keys(self, run: str) -> Keys:
        """See `Clerk`."""
        return Keys(read=self.view.read, logs=self.view.logs) if run == self.view.run else Keys()

    def close(self) -> None:
        """See `Clerk`."""
