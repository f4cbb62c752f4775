"""When the registry's process is started again, and when that is given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from launcher.run.actions import CloseChild, StartChild
from launcher.run.desk import Desk
from launcher.run.inputs import ChildEnded
from launcher.run.values import ChildLost

MOST_STARTS: Final = 5
STARTS_SECONDS: Final = 30.0
START_PAUSE_SECONDS: Final = 0.2


@dataclass(slots=True)
class RegistryChild:
    """The registry as a child of the launcher, on a socket that outlives it.

    Attributes:
        starts: When it was started, within the last moments.
        supervised: Whether it is started again.
        begun: Whether there is a process, or a socket, to close.
        lost: It ends again and again.
    """

    desk: Desk
    starts: list[float] = field(default_factory=list)
    supervised: bool = False
    begun: bool = False
    lost: ChildLost | None = None
    killed: int = 0

    def begin(self, now: float) -> None:
        """Start it, and start it again whenever it ends."""
        self.supervised = self.begun = True
        self.lost = None
        self.starts.clear()
        self.killed = 0
        self.start(now)

    def start(self, now: float) -> None:
        """Its time has come."""
        self.starts.append(now)
        self.desk.send("child", StartChild)

    def ended(self, said: ChildEnded, now: float) -> None:
        """It has ended: on its journal nothing is lost, unless it ends again and again."""
        if not self.supervised:
            return
        self.starts = [at for at in self.starts if now - at < STARTS_SECONDS]
        self.killed = min(said.code, self.killed)
        if len(self.starts) >= MOST_STARTS:
            self.supervised = False
            self.lost = ChildLost(
                len(self.starts), STARTS_SECONDS, said.last_words, self.killed or said.code
            )
            return
        pause = START_PAUSE_SECONDS * max(0, len(self.starts) - 1)
        self.desk.look_at("child", now + pause)

    def let_go(self) -> None:
        """It is not started again; while it lives it goes on."""
        self.supervised = False
        self.desk.forget("child")

    def close(self) -> None:
        """End it, and close its socket."""
        self.let_go()
        self.begun = False
        self.desk.send("close", CloseChild)
