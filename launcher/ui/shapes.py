"""What the page is told: the JSON of each answer, as the page's modules read it. Pure.

Everything a peer has said is text here and nothing else; the page shows it as text. Seconds count
from the run's creation, by the registry's clock, unless a field says otherwise.

    POST ui-api/session                      {"ticket": ..} or {"key": ..} -> Opened
    GET  ui-api/runs                         -> list[RunRow]
    GET  ui-api/runs/RUN/state               -> State
    GET  ui-api/runs/RUN/stream?after=N      NDJSON of Change, after the one numbered N; never ends
    GET  ui-api/runs/RUN/changes?after=N     the same as a list, after at most 1 s: where a proxy
                                             holds back the stream
    GET  ui-api/runs/RUN/checks              -> Checks
    GET  ui-api/runs/RUN/matrix              -> Matrix
    GET  ui-api/runs/RUN/VIEW                -> what a feature's page.py says, for its views
    GET  ui-api/runs/RUN/environment?node=R  -> Environment
    GET  ui-api/runs/RUN/events?before=N     -> list[Event], the 200 before that one
    GET  ui-api/runs/RUN/logs?...            NDJSON of LogPiece; with follow=1 until the run is over
                                             (node, rank, all, epoch, grep, level, lines, follow)
    POST ui-api/runs/RUN/acts                {"act": "look" | "cancel" | "restart" | "drain",
                                             "node": R, "seconds": S, "reason": ".."}
                                             -> Done, of a look Look; or an act of a feature

Each request but the first brings the header `x-rdzv-session`. An error is
{"code", "message", "hint", "retryable"}; 401 means that a new session has to be opened.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Tone = Literal["good", "wait", "bad", "off"]
"""How something is meant: it is well, is awaited, has failed, or is over and done. The words say so
as well; colour alone never does."""

PhaseName = Literal[
    "submitted", "queued", "booted", "joined", "verified", "armed", "running", "ended"
]
"""Of a slot, in this order: its worker run was submitted, waits at the scheduler, has started; its
node has joined, has been verified, is ready; its program runs, has ended."""


class Opened(TypedDict):
    """A session.

    Attributes:
        run: The run to show first; None: the list of runs.
        actions: Whether the page may offer acts.
    """

    session: str
    run: str | None
    actions: bool
    version: str


class RunRow(TypedDict):
    """A run in the list, the newest first.

    Attributes:
        started_at: Seconds since 1970, by the launcher's clock; 0: not known.
        took_seconds: None: not known.
    """

    run: str
    state: str
    tone: Tone
    exit_code: int | None
    nodes: str
    started_at: float
    took_seconds: float | None
    command: str
    reason: str


class Head(TypedDict):
    """How the run stands, in one sentence, and what else is above everything.

    Attributes:
        state: gathering, verifying, arming, running, restarting; ok, failed, cancelled; killed: its
            launcher was; silent: its registry does not answer.
        sentence: The one sentence.
        next_step: What to do; empty: nothing.
        over: Nothing more comes.
        elapsed: Until now, or until its end.
        remaining: Until the phase times out.
        replacements: How many nodes were lost and replaced.
        resubmitted: How many of `max_replacements` are used up: a standby steps in without.
        nodes: How many there are to be, as --nnodes has it.
        trouble: What the registry itself has.
        silent_seconds: For how long the registry has not answered; None: it answers, or the run is
            over.
        finding: What was found while nothing moved; empty: nothing.
        silence: That nothing was printed or called, which nobody has judged; empty: it was.
        checks: What the checks have found, in two words: `8 ok`, `1 failed`; empty: not known.
        result: As `result.json` has it, once the run is over.
    """

    run: str
    launch_id: str
    state: str
    tone: Tone
    sentence: str
    next_step: str
    over: bool
    elapsed: float
    remaining: float | None
    epoch: int
    restarts: int
    max_restarts: int
    replacements: int
    resubmitted: int
    max_replacements: int
    nodes: str
    trouble: str
    silent_seconds: float | None
    finding: str
    silence: str
    checks: str
    command: str
    scheduler: str
    host: str
    started_at: float
    digest: str
    result: dict[str, Any] | None


class Span(TypedDict):
    """A phase of a slot; the next one begins where it ends.

    Attributes:
        end: None: it lasts.
    """

    phase: PhaseName
    start: float
    end: float | None


class Slot(TypedDict):
    """A slot: a row of the table, and of the timeline.

    Attributes:
        state: One word, the same for all that are alike.
        counts_as: What it is among all: its mark, `failed`, `stopped by rdzv`, or its state.
        words: How it stands, in a few words: what its scheduler says, its node's state, its exit.
        problem: What is wrong with it.
        mark: `first cause`, or `failed first` where the cause is not certain; `waited for`; empty:
            none of them.
        suspect: The process of it that is meant by `mark`; None: no single one.
        worse: How much it is what everybody looks for; the table begins with the largest.
        silent: For how many seconds nothing was heard of its node, where that is long.
        spans: Of its newest generation, oldest first.
    """

    slot: int
    node: int | None
    host: str
    address: str
    processes: int
    generation: int
    state: str
    counts_as: str
    tone: Tone
    words: str
    problem: str
    progress: str
    mark: str
    suspect: int | None
    worse: int
    exit_code: int | None
    silent: float | None
    spans: list[Span]


class Event(TypedDict):
    """Something that happened.

    Attributes:
        usual: Every node does the same; shown on request.
    """

    number: int
    at: float
    kind: str
    reason: str
    phase: str
    epoch: int
    slot: int | None
    usual: bool


class Epoch(TypedDict):
    """How the programs of an epoch ended before the run did, and what followed."""

    epoch: int
    ran_seconds: float
    words: str
    then: str
    exit_code: int
    evidence: list[str]


class State(TypedDict):
    """Everything of the first screen.

    Attributes:
        n: The number of the newest change in it.
        events: The newest, oldest first, 200 at most.
        epochs: Oldest first.
        parts: By feature, what its page.py says.
    """

    n: int
    head: Head
    slots: list[Slot]
    events: list[Event]
    epochs: list[Epoch]
    parts: dict[str, Any]


class Change(TypedDict, total=False):
    """What has changed: one of these beside its number. A slot or head that comes replaces the
    one that is known; of a part, its page.js decides.

    Attributes:
        reset: What was missed is no longer known: ask for the state again.
        beat: Nothing has changed for 10 s.
    """

    n: int
    head: Head
    slots: list[Slot]
    events: list[Event]
    epochs: list[Epoch]
    parts: dict[str, Any]
    reset: bool
    beat: bool


class FoundBy(TypedDict):
    """What one check found, in words.

    Attributes:
        level: fail, warn, skipped or ok.
    """

    level: str
    check: str
    text: str
    fix: str


class Checks(TypedDict):
    """What was checked before the start, the worst first.

    Attributes:
        total: In words; empty: nothing was checked yet.
    """

    findings: list[FoundBy]
    total: str


class Network(TypedDict):
    """A network that was tried, and what came of it."""

    network: str
    verdict: str


class Matrix(TypedDict):
    """Who reaches whom, on the network that came nearest.

    Attributes:
        networks: All that were tried.
        shown: Which of them the cells are of; None: nothing was probed.
        names: Of the rows and columns, in words.
        outcomes: What the numbers in `cells` mean; the first is: not probed.
        cells: Base64 of one byte for each cell, row by row; who reports is the row.
        rtts: Base64 of one byte for each cell: 0 is not known, b is 0.001 * 2 ** (b / 10) ms.
        rtt_words: How fast the good pairs are.
    """

    networks: list[Network]
    shown: int | None
    names: list[str]
    outcomes: list[str]
    cells: str
    rtts: str
    rtt_words: str


class Variable(TypedDict):
    """One variable of a node's program, and why it has that value."""

    name: str
    value: str
    reason: str


class Environment(TypedDict):
    """What rdzv gives to the program of a node."""

    node: int
    host: str
    table: str
    transport: str
    variables: list[Variable]


class LogPiece(TypedDict, total=False):
    """Lines of one log; or a note; or that nothing more comes.

    Attributes:
        source: Whose lines they are: `rank 3`, `node 0`, or a file: `rank-3`, `launcher-0`.
        at: When each line was written, in seconds since 1970, as exactly as that is known; null:
            it is not. Not given where no time is known.
        kinds: A letter for each line: `e` an error, `w` a warning, `n` noise of the launcher that
            starts the ranks, `-` another one. Not given where all are others.
        note: What a reader has to know: why there is nothing, what is left out.
        beat: Nothing has come for 10 s.
    """

    source: str
    lines: list[str]
    at: list[float | None]
    kinds: str
    note: str
    over: bool
    beat: bool


class Saved(TypedDict):
    """All of a run in one file: what `--save` writes into the page.

    Attributes:
        saved_at: By the clock of who saved it: `2026-11-25 14:30 UTC`.
        views: Their answers, by name.
        environments: By node.
        logs: The end of each log.
    """

    saved_at: str
    version: str
    state: State
    views: dict[str, Any]
    environments: dict[str, Environment]
    logs: list[LogPiece]
