"""What a node says of itself: which sentence, with which values. The sentences are made last. Pure.

A decision names its `Note` and the values; only `text_of` makes words of them, so that a sentence
can be improved without anything else noticing.
"""

from __future__ import annotations

from enum import Enum

from rendezvous.frozen import frozen

_DEBUG, _INFO, _WARNING = 10, 20, 30  # as in `logging`


class Note(Enum):
    """Every sentence, with its level in the log."""

    TOLD = _INFO, "{words}"
    WARNED = _WARNING, "{words}"
    STALE_HOSTS_REMOVED = _INFO, "{file}: removed the lines that the ended run '{run}' had left"
    STALE_HOSTS_KEPT = _DEBUG, "{problem}"
    STALE_HOSTS_HANG = (
        _WARNING,
        "{file} could not be read within {seconds:g} s: a disk or network file system hangs",
    )
    NOT_LISTENING = _WARNING, "cannot listen for the other nodes' connection checks: {problem}"
    CANNOT_JOIN_YET = _INFO, "cannot join yet, {left:.0f} s left: {problem}"
    JOINED = (
        _INFO,
        "joined run '{run}' at {base} as slot {slot} (incarnation {incarnation}), offering {offer}",
    )
    NO_SECRETS = _INFO, "this node waits for the secret variables ({names}): {problem}"
    RUN_WAITS = _INFO, "{reason}"
    REGISTRY_SILENT = _INFO, "the registry does not answer, {left:.0f} s left: {problem}"
    REGISTRY_NOT_NOW = (
        _INFO,
        "the registry answers, but cannot serve run '{run}' just now: {problem}",
    )
    REPORT_WAITS = _INFO, "the registry has not accepted this node's report yet: {problem}"
    REPORT_GIVEN_UP = _INFO, "could not notify the registry: {problem}"
    PEERS_ANSWER = _INFO, "{good} of {all} peers answer on {network} ({seconds:.2f} s)"
    PEER_FAILED = (
        _WARNING,
        "slot {slot} ({hostname}) at {address} port {port}: {outcome}: {detail}",
    )
    TABLE_REFUSED = _WARNING, "the table of epoch {epoch} is refused: {problem}"
    NO_SOCKET = _WARNING, "no socket for this node's program: {problem}"
    NO_HOSTFILE = _WARNING, "no hostfile: {folder} cannot be written: {problem}"
    NO_LOG_FILE = _WARNING, "no log file: {folder} cannot be made: {problem}"
    NO_RANK_STREAMS = _WARNING, "the ranks share the program's output: {folder}: {problem}"
    NO_PROGRESS = _WARNING, "{file} does not count as progress: {problem}"
    NO_NCCL_LOG = _WARNING, "NCCL's log cannot be saved: {problem}"
    NCCL_LOG = _INFO, "NCCL's log of each process: {file}"
    WARM = _INFO, "torch is imported ({seconds:.1f} s): this node's processes will be forked"
    COLD = _WARNING, "--warm on: this node starts its processes as with --warm off: {why}"
    STARTS = _INFO, "node {node} starts: {command}"
    SERVES = _INFO, "this node serves the program of node 0"
    RELEASED_UNNEEDED = _INFO, "this node is released: the run has enough other nodes"
    RELEASED = _WARNING, "this node is released: {cause}"
    RANK_FAILED = (
        _WARNING,
        "rank {rank} ended with {code}; the program that started it is still running",
    )
    RANK_FAILED_REPORTED = (
        _WARNING,
        "rank {rank} failed and the other ranks are ending: reporting it",
    )
    MAIN_ENDED_REPORTED = (
        _WARNING,
        (
            "the program ended with {code}, but processes that it started are still running: "
            "reporting it"
        ),
    )
    RANKS_LATE = (
        _WARNING,
        "waiting for {ranks} to end; other ranks of this node ended with exit code 0",
    )
    PART_BROKEN = (
        _WARNING,
        "{what} ended, without which the run continues: {error}",
    )
    DEPARTS = _WARNING, "this node will leave in {seconds:.0f} s: {words}"
    NO_NOTICE_FILE = _WARNING, "the notice file {file} cannot be written: {problem}"
    SIGNAL = _WARNING, "{signal}: ending this node"
    STANDS_BY = _INFO, "this node is a standby: it replaces one that is lost"
    FENCED = (
        _WARNING,
        (
            "no news from the registry for {seconds:.0f} s (--fence-timeout): this node ends its "
            "program, because the run may start its ranks on another node"
        ),
    )
    FENCE_OVER = _WARNING, "--fence-timeout has passed: what is left of the program is killed"
    RUN_ENDING = _INFO, "the run is ending: {said}"
    AGENT_ENDING = _INFO, "this node's agent is ending: {said}"
    FENCE_ENDING = _INFO, "this node has no news from its registry: {said}"
    RUN_OVER = _INFO, "run '{run}' has ended: {message}"
    HOSTS_NOT_BACK = _WARNING, "{file} could not be restored: {problem}"
    HOSTS_HANG = (
        _WARNING,
        (
            "{file} could not be restored within {seconds:g} s: a disk or network file "
            "system hangs; the node ends anyway, and the next rdzv on this machine restores "
            "it"
        ),
    )

    @property
    def level(self) -> int:
        """As in `logging`."""
        return self.value[0]

    @property
    def words(self) -> str:
        """The sentence, to be filled with its values."""
        return self.value[1]


@frozen
class Notice:
    """One sentence with its values; its topic, where it has one, says alone whether it is new."""

    note: Note
    values: tuple[tuple[str, object], ...] = ()
    topic: int | None = None

    def same_but_for_times(self, other: Notice | None) -> bool:
        """Whether nothing has changed since but the time that passes."""
        return other is not None and self._timeless() == other._timeless()

    def _timeless(self) -> tuple[object, ...]:
        if self.topic is not None:
            return self.note, self.topic
        return self.note, *(pair for pair in self.values if pair[0] != "left")


def notice(note: Note, topic: int | None = None, /, **values: object) -> Notice:
    """A notice, its values by name."""
    return Notice(note, tuple(values.items()), topic)


def text_of(said: Notice) -> str:
    """The sentence; a value may be a notice itself."""
    values = {k: text_of(v) if isinstance(v, Notice) else v for k, v in said.values}
    return said.note.words.format(**values)
