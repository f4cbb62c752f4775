"""A schedule: what is launched and which faults happen when, as plain values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any


def names(text: str) -> tuple[str, ...]:
    """What a text lists, with commas between."""
    return tuple(" ".join(text.split()).split(", "))


OTHER_JOBS = names("size, framework, command, protocol")
"""How a node may describe another job than the run's."""
HANGING = names("""
restore_stale, look_ahead, make_offer, known_names, arm, remove, trouble, open_nccl_log, look_up
""")
"""What an agent calls in a thread, which may come back late or never."""
BREAKING = names("""
restore_stale, listen, look_ahead, make_offer, known_names, read_conf, install, remove, probe,
start, sink, nccl_log, verdicts, trouble, hear_out, close_socket, close_client, connect, join,
watch, report, publish, relay_take
""")
"""Where an agent may meet what nobody has expected."""
QUEUES = names("requests, few requests, connections, lines, lines of a run, views, frames, rows")
"""What may have no room for more: of a registry all that is asked, or much at a time; connections;
lines that somebody reads, and who reads them; frames of remote commands; of a node rows of metrics.
"""


@dataclass(frozen=True)
class Launch:
    """One launch of one run, and how its nodes behave when nothing disturbs them.

    Attributes:
        boot: By slot, as all that are tuples: seconds from a worker run's start to its join.
        program: How long it runs, and with which code it ends.
        contagion: Seconds after which the other programs fail of a node that failed; 0: never.
        led: Only slot 0 has a program, and the other nodes serve it.
        heads: All have a program, and a good end of slot 0's ends the run.
        ranks_each: Processes that each program starts; 0: it is the only one.
        here: The launcher starts slot 0's node, as its child.
        again: How the person launches it again after its launcher was killed: with another
            COMMAND (`options`), run (`size`), scheduler, while the former one cannot be used any
            more (`gone`), on another host, with a `port`; empty: as before.
        finds: Its scheduler can look for a worker run by name.
        symmetric: The nodes above slot 0 come by themselves, with a group token.
        later: Of the programs that start again, how each of them goes, as `program`; the last one
            for all that follow.
        on_node_loss: As `--on-node-loss`; the next three count then alone.
        fence: Seconds after which a node that hears nothing has ended its program.
        registry_takes: Seconds until its registry's process is there, each time.
        talks: Its programs print lines, which somebody follows, say how they get on, and have
            commands run on each other's nodes.
    """

    run: str
    at: float
    nodes: int
    least: int
    verify: bool
    retries: int
    lease: float
    join_timeout: float
    queue: tuple[float, ...]
    boot: tuple[float, ...]
    program: tuple[tuple[float, int], ...]
    ranks: tuple[int | None, ...]
    contagion: float
    spares: int = 0
    networks: int = 1
    led: bool = False
    addresses: int = 1
    ranks_each: int = 0
    follows_network: bool = False
    subnets: int = 1
    port: int | None = None
    free_port: int | None = None
    owns_registry: bool = False
    here: bool = False
    again: str = ""
    finds: bool = True
    symmetric: bool = False
    max_restarts: int = 0
    later: tuple[tuple[tuple[float, int], ...], ...] = ()
    on_node_loss: str = "fail"
    standby: int = 0
    max_replacements: int = 0
    fence: float = 12.0
    warm: bool = False
    torchruns: tuple[int, ...] = ()
    registry_takes: float = 0.0
    talks: bool = False
    heads: bool = False

    @property
    def framework(self) -> Any:
        return "openmpi" if self.led else "torchrun" if self.ranks_each else "command"

    @property
    def command(self) -> list[str]:
        return ["mpirun", "train"] if self.led else ["train.py"]

    @property
    def slots(self) -> int:
        return self.nodes + self.spares + self.standby

    @property
    def outlives_nodes(self) -> bool:
        return self.on_node_loss != "fail"

    def program_of(self, start: int, slot: int) -> tuple[float, int]:
        """How a slot's program goes at this start, from 0."""
        programs = (self.program, *self.later)
        return programs[min(start, len(programs) - 1)][slot]

    @property
    def leader_ends(self) -> float:
        """When slot 0's program ends well, as all nodes come."""
        begins = max(q + b for q, b in zip(self.queue, self.boot, strict=True))
        return begins + self.program[0][0]


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong: after so many seconds, or at an event of the journal with its
    count and side: `acked 2 before`."""

    when: float | str
    what: str
    launch: int = 0
    slot: int = 0
    seconds: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Schedule:
    """All that a simulation starts from; the seed gives delays and jitter."""

    seed: int
    launches: tuple[Launch, ...]
    faults: tuple[Fault, ...]
    keep_finished: float = 3_600.0

    def without(self, faults: tuple[Fault, ...]) -> Schedule:
        return replace(self, faults=faults)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def from_json(text: str) -> Schedule:
    value = json.loads(text)
    return Schedule(
        value["seed"],
        tuple(_launch(launch) for launch in value["launches"]),
        tuple(Fault(**fault) for fault in value["faults"]),
        value["keep_finished"],
    )


def _launch(value: dict[str, Any]) -> Launch:
    lists = {key: tuple(item) for key, item in value.items() if isinstance(item, list)}
    lists["program"] = tuple((seconds, code) for seconds, code in value["program"])
    lists["later"] = tuple(tuple((seconds, code) for seconds, code in x) for x in value["later"])
    return Launch(**(value | lists))
