"""Where the ranks of a run are just now, as their nodes see it: the answers to one look. Pure.

Ages are seconds on the node's own clocks, up to the moment of its look: the clocks of several nodes
are never compared.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from rendezvous.wire.evidence import Rank
from rendezvous.wire.question import Answer, Answers, NodeAnswer
from rendezvous.wire.types import OutputLine, ShortWords, Wire, Words

MAX_LOOK_RANKS = 64
MAX_STACKS = 512
MAX_FRAMES = 128
MAX_GROUPS = 64
MAX_CALLS = 4
MAX_CHILDREN = 16
MAX_HELD_BACK = 4

Age = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=-1, lt=1 << 62)]
Stage = Literal["unknown", "starting", "importing", "imported", "groups"]
Recorder = Literal["read", "none", "silent", "absent"]


class Frame(NamedTuple):
    """One call of a stack."""

    function: ShortWords
    file: ShortWords
    line: Annotated[int, Field(ge=0, lt=1 << 31)]


class Stack(Wire):
    """What one thread is in, the newest call first. Equal ones of a node are told once."""

    frames: Annotated[list[Frame], Field(max_length=MAX_FRAMES)]
    cut: bool = Field(False, description="There are more, older ones.")


class Call(Wire):
    """A collective, or a send or receive, that a rank has called."""

    number: Count = Field(description="Counts those of its process group, from 1.")
    operation: ShortWords = Field(description="Such as `all_reduce`.")
    what: ShortWords = Field("", description="Such as `float32[1024]`; of several, the first.")
    age: Age = Field(description="Seconds since it was called.")
    done: bool | None = Field(None, description="Whether it has ended; none: not known.")


class ProcessGroup(Wire):
    """A process group as one rank's recorder has it."""

    name: ShortWords = Field(description="The same on all of its ranks.")
    words: ShortWords = Field("", description="How the program calls it.")
    members: OutputLine = Field("", description="Global ranks, `0-3,8`; empty: not known.")
    called: Count = Field(description="The number of the newest collective that it has called.")
    ended: Count = Field(-1, description="The newest that has ended; -1: not known.")
    calls: Annotated[list[Call], Field(max_length=MAX_CALLS)] = Field(
        [], description="The newest ones, the oldest of them first."
    )
    usual: Age = Field(0.0, description="The longest pause between the calls before; 0: unknown.")


class SeenProcess(Wire):
    """A process, as /proc and its stack show it."""

    pid: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    state: Annotated[str, Field(max_length=1)] = Field(
        "", description="The letter of `/proc/PID/stat`; empty: there is no such process."
    )
    waits_in: ShortWords = Field("", description="What it waits for in the kernel, by wchan.")
    lives: Age = Field(0.0, description="Seconds since it was started.")
    cpu: Age = Field(0.0, description="Seconds of CPU that it used during the look.")
    bytes: Annotated[int, Field(ge=0, lt=1 << 62)] = Field(
        0, description="That it read and wrote during the look."
    )
    cpu_total: Age = Field(0.0, description="Seconds of CPU that it has used in all.")
    bytes_total: Annotated[int, Field(ge=0, lt=1 << 62)] = Field(
        0, description="That it has read and written in all."
    )
    stack: Annotated[int, Field(ge=0, lt=MAX_STACKS)] | None = Field(
        None, description="Of its main thread, in `stacks`."
    )


class ProcessLook(SeenProcess):
    """A process that is not a rank: a launcher, or a process that a rank has started."""

    name: ShortWords = Field("", description="Its command, without folders.")


class RankLook(SeenProcess):
    """One rank."""

    rank: Rank
    called: Annotated[int, Field(ge=0, lt=1 << 31)] = Field(
        0, description="Collectives that it called, or that ended, during the look."
    )
    stage: Stage = Field("unknown", description="How far it is with torch and its process groups.")
    recorder: Recorder = Field(
        "absent",
        description="Its flight recorder was read; it has none; the rank does not answer, as while "
        "it holds the GIL; or there is no hook in it.",
    )
    threads: Annotated[list[Annotated[int, Field(ge=0, lt=MAX_STACKS)]], Field(max_length=64)] = (
        Field([], description="Those of its other threads.")
    )
    groups: Annotated[list[ProcessGroup], Field(max_length=MAX_GROUPS)] = []
    children: Annotated[list[ProcessLook], Field(max_length=MAX_CHILDREN)] = Field(
        [], description="Processes that it has started, or that those have; the oldest first."
    )
    children_cpu_total: Age = Field(
        0.0, description="Seconds of CPU that all of them have used, ended ones included."
    )
    children_bytes_total: Annotated[int, Field(ge=0, lt=1 << 62)] = Field(
        0, description="Bytes that those which live have read and written."
    )


class LookReport(Answer):
    """Where the ranks of this node are."""

    seconds: Age = Field(0.0, description="How long the look has taken.")
    ranks: Annotated[list[RankLook], Field(max_length=MAX_LOOK_RANKS)] = []
    stacks: Annotated[list[Stack], Field(max_length=MAX_STACKS)] = []
    launcher: ProcessLook | None = Field(
        None, description="What starts the ranks here; its totals count all but the ranks' own."
    )
    unstarted: Annotated[list[Rank], Field(max_length=MAX_LOOK_RANKS)] = Field(
        [], description="Ranks of which the launcher has not started a process."
    )
    left_out: Annotated[int, Field(ge=0, lt=1 << 31)] = Field(
        0, description="Stacks, groups and ranks that did not fit into the report."
    )
    held_back: Annotated[list[Words], Field(max_length=MAX_HELD_BACK)] = Field(
        [], description="What control groups held the ranks back with during the look."
    )


class NodeLook(NodeAnswer):
    """What one node has answered."""

    report: LookReport | None = Field(None, description="None: it has not answered yet.")


class RunLook(Answers):
    """Results of the look with this number, 0 for the newest; waits for the rest."""

    nodes: list[NodeLook] = []


class QuietReport(Wire):
    """That nothing moves on this node, or something does again; sent anew while nothing does."""

    epoch: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="For so long; none: it moves again."
    )
    early: bool = Field(
        False, description="Before the first collectives, where silence alone says little."
    )
    number: Annotated[int, Field(ge=0, lt=1 << 53)] = Field(
        0, description="Counts the silences of a program: the same one is sent anew."
    )
