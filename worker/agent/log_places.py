"""Files for the output of one start of a node's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rendezvous.frozen import frozen
from rendezvous.wire.words import read_bytes
from worker.agent.actions import Start
from worker.agent.arming import NodeSpec
from worker.agent.environment import Sink
from worker.program.log_file import log_name
from worker.program.output import Output
from worker.program.rank_logs import RANK_LOG_BYTES, RankLogs, RankPlace


@frozen
class LogPlaces:
    """The logs of one start.

    Attributes:
        folder: Where they are.
        node: Its number.
        first: The global rank of the node's first process.
        epoch: In the names of what has started again; 0: it has not.
        limit: The bytes that the node's log may have; 0: any number.
        divider: In front of what is appended to what another launch has written.
        prefix: In front of each line that is shown; empty: nothing is.
    """

    folder: Path
    node: int
    first: int
    epoch: int
    limit: int
    divider: str
    prefix: str

    @property
    def file(self) -> Path:
        """The node's log."""
        return self.folder / log_name(self.node, self.epoch)

    def sink(self, make: Callable[..., Sink]) -> Callable[[Path | None], Sink]:
        """Bind all but the file of what takes the node's output."""
        return partial(make, log_limit=self.limit, divider=self.divider, prefix=self.prefix)

    def keep_ranks(self, output: Output) -> RankLogs:
        """The logs of the ranks that have streams of their own, in front of the node's."""
        limit = min(self.limit or RANK_LOG_BYTES, RANK_LOG_BYTES)
        place = RankPlace(self.folder, self.first, self.epoch, limit, self.divider, self.node)
        return RankLogs(output, place)


def log_places(asked: Start, spec: NodeSpec, environ: Mapping[str, str]) -> LogPlaces:
    """Those of what is started.

    Args:
        asked: What that is.
        spec: What this agent is.
        environ: Where its state is, if nothing else is said.
    """
    table, join = asked.table, spec.join
    node = spec.row(table).node
    return LogPlaces(
        folder=spec.log_folder(environ),
        node=node,
        first=spec.first_rank(table),
        epoch=table.epoch if asked.again else 0,
        limit=read_bytes(spec.settings.log_limit),
        divider=f"--- rdzv: node {node} of run '{join.run}', launch {join.launch_id}",
        prefix=f"[{node}] " if spec.settings.prefix else "",
    )
