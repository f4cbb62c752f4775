"""How fast the nodes of a run reach each other: all-reduce by size, and every pair of nodes.

What `rdzv bench` starts through torchrun, on the user's interpreter: it needs torch (NCCL on GPUs,
Gloo on CPUs), imports nothing of rdzv, and keeps to what Python 3.9 knows.

1. All processes all-reduce each size. Bus bandwidth is bytes / seconds * 2 (n - 1) / n for n
   processes: what each one must send, so that it compares with the speed of a link.
2. All pairs of nodes exchange messages, both ways at once, in the rounds of the circle method: in
   a round every node has one partner. For a pair the factor is 1: bytes each way / seconds.
3. A pair far below what is usual here is slow, and a node with several such pairs is suspect. Each
   is measured again, alone on the network, with nodes that are not suspect; so is the fastest
   pair of those, to compare with. Only what is slow again is named.

Bandwidths are in GB/s (10^9 bytes a second). A node is named by its number.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

RESULT_VARIABLE = "RDZV_BENCH_RESULT"
"""Names the file that the result is written to; without it, the report is printed."""

MATRIX_NODES = 32
"""Up to so many nodes the report shows every pair; above, the rows of slow ones only."""

_SIZES = {
    "gloo": [4 << 10, 64 << 10, 1 << 20, 16 << 20],
    "nccl": [1 << 20, 16 << 20, 128 << 20, 1 << 30],
}
_SIZE_SECONDS = 0.5
_MOST_ITERATIONS = 50
_TOO_LONG_SECONDS = 2.0
_FIRST_MESSAGE = 256 << 10
_LARGEST_MESSAGE = {"gloo": 4 << 20, "nccl": 128 << 20}
_MESSAGE_SECONDS = 0.02
_PAIR_SECONDS = 0.2
_AGAIN_SECONDS = 0.5
_HANG_SECONDS = 300.0
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB")

Pair = tuple[int, int]
"""Two nodes by number, the lower one first."""


# --- who is measured with whom, and who is slow -----------------------------------------------


def pair_of(one: int, other: int) -> Pair:
    """The pair of two nodes."""
    return (one, other) if one < other else (other, one)


def rounds_of(nodes: Sequence[int]) -> list[list[Pair]]:
    """All pairs, in rounds in which every node has one partner at most (the circle method)."""
    seats: list[int | None] = [*nodes, None] if len(nodes) % 2 else [*nodes]
    rounds = []
    for _ in range(len(seats) - 1):
        facing = [(seats[place], seats[-1 - place]) for place in range(len(seats) // 2)]
        rounds.append([pair_of(a, b) for a, b in facing if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


@dataclass(frozen=True)
class Suspicion:
    """What a look at all pairs gives.

    Attributes:
        usual: GB/s that a node reaches with its best partner: the median over the nodes.
        limit: GB/s below which a pair is slow.
        nodes: Those with several slow pairs, worst first.
        pairs: Slow pairs of two nodes that are good with the others.
        good: All nodes but those, best first.
    """

    usual: float
    limit: float
    nodes: list[int]
    pairs: list[Pair]
    good: list[int]

    @property
    def is_split(self) -> bool:
        """Whether nobody can be blamed, as too few are left to compare with."""
        return len(self.nodes) >= len(self.good) or len(self.good) < 2


def suspect(pairs: Mapping[Pair, float], slow_below: float) -> Suspicion:
    """Look at the GB/s of all pairs; slow is what is below a part of the usual."""
    best: dict[int, float] = {}
    for pair, speed in pairs.items():
        for node in pair:
            best[node] = max(best.get(node, 0.0), speed)
    usual = statistics.median(best.values() or [0.0])
    limit = slow_below * usual
    slow = sorted(pair for pair, speed in pairs.items() if speed < limit)
    nodes: list[int] = []
    while slow:
        node, count = Counter(node for pair in slow for node in pair).most_common(1)[0]
        if count < 2:  # one slow pair blames nobody
            break
        nodes.append(node)
        slow = [pair for pair in slow if node not in pair]
    good = sorted(best.keys() - {*nodes}, key=lambda node: (-best[node], node))
    return Suspicion(usual, limit, nodes, slow, good)


def second_pass(suspicion: Suspicion, pairs: Mapping[Pair, float]) -> list[Pair]:
    """What is measured again, one pair after the other; first the fastest one of good nodes."""
    if suspicion.is_split or not (suspicion.nodes or suspicion.pairs):
        return []
    good = suspicion.good
    again = [max((p for p in pairs if {*p} <= {*good}), key=lambda pair: pairs[pair])]
    for number, node in enumerate(suspicion.nodes):
        start = 2 * number % len(good)
        partners = [pair_of(node, other) for other in [*good[start:], *good[:start]]]
        partners.sort(key=lambda pair: pairs[pair] >= suspicion.limit)  # where it was slow, first
        again += partners[:2]
    return again + suspicion.pairs


@dataclass(frozen=True)
class Verdict:
    """Who is slow, and what there is to say about it."""

    slow_nodes: list[int]
    slow_pairs: list[Pair]
    sentences: list[str]


def judge(
    names: Sequence[str],
    pairs: Mapping[Pair, float],
    again: Mapping[Pair, float],
    slow_below: float,
) -> Verdict:
    """Name what is slow.

    Args:
        names: Hostname of each node.
        pairs: GB/s of all pairs, in the first pass.
        again: GB/s of those of `second_pass`, in its order.
        slow_below: A pair below this part of what two good nodes reach is slow.
    """
    if len(names) < 3:
        return Verdict([], [], [_of_few(pairs)])
    suspicion = suspect(pairs, slow_below)
    if not (suspicion.nodes or suspicion.pairs):
        return Verdict([], [], [_all_good(names, pairs, suspicion, slow_below)])
    if suspicion.is_split:
        return Verdict([], [], [_split(names, pairs, suspicion)])
    control = next(iter(again))
    limit = slow_below * again[control]
    beside = f"{_who(names, control[0])} and {_who(names, control[1])} reach {_gb(again[control])}"
    nodes, slow_pairs, said = [], [], []
    for node in suspicion.nodes:
        seen = {pair: speed for pair, speed in again.items() if node in pair}
        is_slow = max(seen.values()) < limit
        if is_slow:
            nodes.append(node)
        said.append(_of_node(names, node, seen, beside, is_slow=is_slow))
    for pair in suspicion.pairs:
        is_slow = again[pair] < limit
        if is_slow:
            slow_pairs.append(pair)
        said.append(_of_pair(names, pair, again[pair], beside, is_slow=is_slow))
    return Verdict(nodes, slow_pairs, said)


def _who(names: Sequence[str], node: int) -> str:
    return f"node {node} ({names[node]})"


def _gb(speed: float) -> str:
    return f"{_number(speed)} GB/s"


def _number(speed: float) -> str:
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"


def _of_few(pairs: Mapping[Pair, float]) -> str:
    if not pairs:
        return "one node: there is no pair of nodes to measure"
    [speed] = pairs.values()
    return (
        f"nodes 0 and 1 reach {_gb(speed)} with each other; if that is slow, a third node "
        "would show which of them it is"
    )


def _all_good(
    names: Sequence[str], pairs: Mapping[Pair, float], suspicion: Suspicion, slow_below: float
) -> str:
    worst = min(pairs, key=lambda pair: pairs[pair])
    part = pairs[worst] / suspicion.usual if suspicion.usual else 1.0
    return (
        f"no node is slow: the slowest pair, {_who(names, worst[0])} and {_who(names, worst[1])}, "
        f"reaches {part:.0%} of the usual {_gb(suspicion.usual)} (slow is below {slow_below:.0%})"
    )


def _split(names: Sequence[str], pairs: Mapping[Pair, float], suspicion: Suspicion) -> str:
    slow = sum(speed < suspicion.limit for speed in pairs.values())
    return (
        f"the {len(names)} nodes are split: {slow} of {len(pairs)} pairs are slower than "
        f"{_gb(suspicion.limit)}, and too few nodes have no such pair, so the cause is "
        "unclear; the pairs above show which nodes are fast together"
    )


def _of_node(
    names: Sequence[str], node: int, seen: Mapping[Pair, float], beside: str, *, is_slow: bool
) -> str:
    others = ((pair[0] if pair[1] == node else pair[1], speed) for pair, speed in seen.items())
    words = " and ".join(f"{_gb(speed)} with {_who(names, other)}" for other, speed in others)
    if not is_slow:
        return (
            f"{_who(names, node)} was slow in the first pass and is not when measured alone "
            f"({words}; {beside}): other traffic, or a link that all nodes share, slowed it "
            "down"
        )
    return (
        f"{_who(names, node)} is slow: {words}, measured alone, where {beside}; check its "
        "link (speed, cable, switch port) and what else uses its processors, and run 'rdzv "
        "doctor' there"
    )


def _of_pair(names: Sequence[str], pair: Pair, speed: float, beside: str, *, is_slow: bool) -> str:
    ends = f"{_who(names, pair[0])} and {_who(names, pair[1])}"
    if not is_slow:
        return (
            f"{ends} were slow with each other in the first pass and are not when measured alone "
            f"({_gb(speed)}; {beside})"
        )
    return (
        f"{ends} are slow with each other: {_gb(speed)}, measured alone, where {beside}; both "
        "are fast with all others, so check what is between these two (switch, route, MTU)"
    )


# --- the report -------------------------------------------------------------------------------


def report(result: Mapping[str, Any]) -> str:
    """The result as a page to read."""
    nodes, pairs = result["nodes"], {(p[0], p[1]): p[2] for p in result["pairs"]}
    processes = sum(node["processes"] for node in nodes)
    head = f"{_count(len(nodes), 'node')}, {_count(processes, 'process')}, {result['backend']}"
    lines = [f"{head} on {result['device']}, torch {result['torch']}"]
    if result["all_reduce"]:
        lines += ["", f"{'all-reduce':>10} {'time':>12} {'algorithm':>14} {'bus':>14}"]
        lines += [_size_line(row) for row in result["all_reduce"]]
    if result["too_long"]:
        lines += [
            f"{size_words(result['too_long'])} and more were left out: it would take too long"
        ]
    if len(nodes) > 2:
        head = f"pairs of nodes, % of the usual {_gb(result['usual'])} each way"
        lines += ["", head, *_matrix(nodes, pairs, result)]
    return "\n".join([*lines, "", *result["sentences"]])


def _count(number: int, word: str) -> str:
    many = f"{word}es" if word.endswith("s") else f"{word}s"
    return f"{number} {word if number == 1 else many}"


def size_words(count: float) -> str:
    """Bytes in binary units."""
    unit = 0
    while count >= 1024 and unit < len(_BINARY_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.4g} {_BINARY_UNITS[unit]}"


def _size_line(row: Mapping[str, float]) -> str:
    size, time_ms = size_words(row["bytes"]), _number(row["seconds"] * 1000)
    algorithm, bus = _gb(row["algorithm_gb"]), _gb(row["bus_gb"])
    return f"{size:>10} {time_ms:>9} ms {algorithm:>14} {bus:>14}"


def _matrix(
    nodes: Sequence[Mapping[str, Any]], pairs: Mapping[Pair, float], result: Mapping[str, Any]
) -> list[str]:
    slow = {*result["slow_nodes"], *(node for pair in result["slow_pairs"] for node in pair)}
    everyone = range(len(nodes))
    rows = [node for node in everyone if len(nodes) <= MATRIX_NODES or node in slow]
    names = {node: f"{node} ({nodes[node]['hostname']})" for node in everyone}
    width = max(len(name) for name in names.values())
    if len(nodes) > MATRIX_NODES:
        return [_row_in_words(names[node], node, pairs) for node in rows]
    usual = result["usual"] or 1.0
    lines = ["".join([" " * width, *(f"{node:>5}" for node in everyone)])]
    for node in rows:
        speeds = [pairs.get(pair_of(node, other)) for other in everyone]
        cells = ["    -" if speed is None else f"{100 * speed / usual:5.0f}" for speed in speeds]
        mark = "  slow" if node in result["slow_nodes"] else ""
        lines.append(f"{names[node]:<{width}}{''.join(cells)}{mark}")
    return lines


def _row_in_words(name: str, node: int, pairs: Mapping[Pair, float]) -> str:
    own = sorted(speed for pair, speed in pairs.items() if node in pair)
    median = _number(statistics.median(own))
    return f"{name}: from {_number(own[0])} to {_number(own[-1])}, median {median} GB/s"


# --- measuring --------------------------------------------------------------------------------


class World:
    """All processes of the run, over torch.distributed. All must make the same calls.

    Attributes:
        device: What the data lies on, for a person.
        torch_version: Of torch.
        size: How many processes there are.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch = torch
        self._dist = dist
        cuda = torch.cuda.is_available()
        self.backend = "nccl" if cuda else "gloo"
        local = int(os.environ["LOCAL_RANK"])
        if cuda:
            torch.cuda.set_device(local)
        else:
            torch.set_num_threads(1)  # Gloo has threads of its own, and these would be in its way
        self._device = torch.device("cuda", local) if cuda else torch.device("cpu")
        dist.init_process_group(self.backend, timeout=timedelta(seconds=_HANG_SECONDS))
        self.device = str(torch.cuda.get_device_name(self._device)) if cuda else "CPU"
        self.torch_version = str(torch.__version__)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        own = (int(os.environ["GROUP_RANK"]), local, socket.gethostname())
        self._processes = self.everyone(own)
        self.node, self.local, _ = own

    def nodes(self) -> list[dict[str, Any]]:
        """Hostname and number of processes of each node, by its number."""
        counts = Counter(node for node, _, _ in self._processes)
        names = {node: name for node, _, name in self._processes}
        return [{"hostname": names[node], "processes": counts[node]} for node in sorted(counts)]

    def peer_on(self, node: int) -> int | None:
        """The process on another node with this one's local rank, if there is one."""
        for rank, (other, local, _) in enumerate(self._processes):
            if other == node and local == self.local:
                return rank
        return None

    def everyone(self, own: Any) -> list[Any]:
        """What every process gives here, by rank: any JSON. Nobody passes before all have come."""
        torch, dist = self._torch, self._dist
        text = json.dumps(own).encode()
        length = torch.tensor([len(text)], device=self._device)
        dist.all_reduce(length, op=dist.ReduceOp.MAX)
        padded = torch.tensor([*text.ljust(int(length))], dtype=torch.uint8, device=self._device)
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded)
        return [json.loads(bytes(each.tolist())) for each in found]

    def all_reducing(self, count: int) -> Callable[[], None]:
        """One all-reduce of so many bytes, over all processes."""
        # However often they are added up, zeros stay what they are.
        data = self._torch.zeros(count // 4, dtype=self._torch.float32, device=self._device)
        return lambda: self._dist.all_reduce(data)

    def exchanging(self, peer: int, count: int) -> Callable[[], None]:
        """One exchange with another process: so many bytes there, and back, at the same time."""
        mine = self._torch.ones(count, dtype=self._torch.uint8, device=self._device)
        theirs = self._torch.empty_like(mine)
        return lambda: self._exchange(peer, mine, theirs)

    def _exchange(self, peer: int, mine: Any, theirs: Any) -> None:
        dist = self._dist
        ways = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
        for work in dist.batch_isend_irecv(ways):
            work.wait()

    def longest(self, peer: int, seconds: float) -> float:
        """The longer one of this process's time and the other's."""
        mine = self._torch.tensor([seconds], dtype=self._torch.float64, device=self._device)
        theirs = self._torch.empty_like(mine)
        self._exchange(peer, mine, theirs)
        return max(seconds, float(theirs))

    def seconds(self, work: Callable[[], None], times: int = 1) -> float:
        """How long it takes, once for all times."""
        began = self.now()
        for _ in range(times):
            work()
        return self.now() - began

    def now(self) -> float:
        """Seconds of a clock, once all that was begun is done."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()
        return time.perf_counter()

    def say(self, count: int, word: str, more: str) -> None:
        """Tell the person what comes next, where there is anything; once for all processes."""
        if count and self.rank == 0:
            words = f"{_count(count, word)} {more}"
            sys.stderr.write(f"rdzv bench: {words}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Leave."""
        self._dist.destroy_process_group()


def measure_all_reduce(world: World, sizes: Sequence[int]) -> tuple[list[dict[str, float]], int]:
    """A row for each size, and the first size that was left out because it would take too long."""
    rows: list[dict[str, float]] = []
    for count in sizes:
        work = world.all_reducing(count)
        warm = max(world.everyone(world.seconds(work)))
        times = max(1, min(_MOST_ITERATIONS, int(_SIZE_SECONDS / warm)))
        seconds = max(world.everyone(world.seconds(work, times))) / times
        algorithm = count / seconds / 1e9
        bus = algorithm * 2 * (world.size - 1) / world.size
        row = {"bytes": count, "seconds": seconds, "algorithm_gb": algorithm, "bus_gb": bus}
        rows.append(row)
        if seconds > _TOO_LONG_SECONDS:
            return rows, next((size for size in sizes if size > count), 0)
    return rows, 0


def measure_with(world: World, peer: int, window: float) -> float:
    """GB/s each way with another process, over a window of seconds."""
    count = _FIRST_MESSAGE
    world.seconds(world.exchanging(peer, 1))  # the connection is made here
    while True:
        work = world.exchanging(peer, count)
        once = world.longest(peer, world.seconds(work))
        if once > _MESSAGE_SECONDS or count >= _LARGEST_MESSAGE[world.backend]:
            break
        count *= 4
    # By the clock and not by a number: a node that stops now and then may be fast in between.
    began, spent, done, times = world.now(), 0.0, 0, 1
    while spent < window:
        for _ in range(times):
            work()
        done, times = done + times, times * 2
        spent = world.longest(peer, world.now() - began)
    return done * count / spent / 1e9


def measure_round(world: World, pairs: Sequence[Pair], window: float) -> dict[Pair, float]:
    """GB/s each way of pairs of nodes at the same time: the sum over their processes."""
    own = next((pair for pair in pairs if world.node in pair), None)
    speed = 0.0
    if own is not None:
        peer = world.peer_on(own[0] if own[1] == world.node else own[1])
        if peer is not None:
            speed = measure_with(world, peer, window)
    by_node: dict[int, float] = {}
    for node, each in world.everyone((world.node, speed)):
        by_node[node] = by_node.get(node, 0.0) + each
    return {pair: min(by_node[pair[0]], by_node[pair[1]]) for pair in pairs}


def measure(world: World, sizes: Sequence[int], slow_below: float) -> dict[str, Any]:
    """All of it; every process gets the same result."""
    nodes = world.nodes()
    sizes = (sizes or _SIZES[world.backend]) if world.size > 1 else []
    world.say(len(sizes), "size", "to all-reduce")
    rows, too_long = measure_all_reduce(world, sizes)
    rounds = rounds_of(range(len(nodes)))
    world.say(sum(map(len, rounds)), "pair", f"of nodes in {_count(len(rounds), 'round')}")
    pairs: dict[Pair, float] = {}
    for some in rounds:
        pairs |= measure_round(world, some, _PAIR_SECONDS)
    suspicion = suspect(pairs, slow_below)
    suspects = second_pass(suspicion, pairs)
    world.say(len(suspects), "pair", "again, one after the other")
    again: dict[Pair, float] = {}
    for pair in suspects:
        again |= measure_round(world, [pair], _AGAIN_SECONDS)
    verdict = judge([node["hostname"] for node in nodes], pairs, again, slow_below)
    return {
        "backend": world.backend,
        "device": world.device,
        "torch": world.torch_version,
        "nodes": nodes,
        "all_reduce": rows,
        "too_long": too_long,
        "pairs": [[*pair, speed] for pair, speed in sorted(pairs.items())],
        "second_pass": [[*pair, speed] for pair, speed in again.items()],
        "usual": suspicion.usual,
        "slow_below": slow_below,
        **asdict(verdict),
    }


def deliver(result: Mapping[str, Any], path: str | None) -> None:
    """Write the result into the file, whole or not at all; without one, print the report."""
    if path is None:
        sys.stdout.write(report(result) + "\n")
        return
    draft = Path(f"{path}.new")
    draft.write_text(json.dumps(result), encoding="utf-8")
    draft.replace(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, as one process of many."""
    parser = argparse.ArgumentParser(description="Started by 'rdzv bench' through torchrun.")
    parser.add_argument("--size", type=int, action="append", default=[], metavar="BYTES")
    parser.add_argument("--slow-below", type=float, default=0.5, metavar="PART")
    options = parser.parse_args(argv)
    world = World()
    try:
        result = measure(world, sorted(options.size), options.slow_below)
        if world.rank == 0:
            deliver(result, os.environ.get(RESULT_VARIABLE))
    finally:
        world.close()


if __name__ == "__main__":
    main()
