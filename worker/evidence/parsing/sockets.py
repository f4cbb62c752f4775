"""Who has a port, as /proc/net/tcp tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rendezvous.frozen import frozen

_LISTEN, _TIME_WAIT = "0A", "06"


@frozen
class Holder:
    """A socket that has a port.

    Attributes:
        inode: 0 where no process has it any more.
        listens: Or it is a connection.
    """

    port: int
    inode: int
    uid: int
    listens: bool

    @property
    def words(self) -> str:
        """What is known without its process."""
        if not self.inode:
            return "a closed connection (TIME_WAIT)"
        return f"a process of uid {self.uid}"


def holders_in(tables: Iterable[str], ports: Iterable[int]) -> list[Holder]:
    """One holder for each port that somebody has: who listens before who is connected."""
    wanted = {f"{port:04X}": port for port in ports}
    found: dict[int, Holder] = {}
    for holder in _holders(tables, wanted):
        known = found.get(holder.port)
        if known is None or _rank(holder) > _rank(known):
            found[holder.port] = holder
    return [found[port] for port in sorted(found)]


def _rank(holder: Holder) -> tuple[bool, bool]:
    return holder.listens, holder.inode > 0


def _holders(tables: Iterable[str], wanted: dict[str, int]) -> Iterator[Holder]:
    for table in tables:
        for line in table.splitlines():
            words = line.split(None, 10)
            if len(words) < 10 or words[1][-4:] not in wanted:
                continue
            port, state = wanted[words[1][-4:]], words[3]
            if words[7].isdecimal() and words[9].isdecimal():
                inode = 0 if state == _TIME_WAIT else int(words[9])
                yield Holder(port, inode, int(words[7]), state == _LISTEN)
