"""`rdzv bench`: what one process of several measures with whom, in which order, and what it makes
of that; on a virtual clock, without torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from worker.programs import bandwidth
from worker.programs.bandwidth import (
    World,
    main,
    measure,
    measure_all_reduce,
    measure_round,
    measure_with,
)

PROCESSES = [(2, 0, "c"), (0, 0, "a"), (0, 1, "a"), (1, 1, "b"), (1, 0, "b"), (2, 1, "c")]
"""Node, local rank and hostname by global rank: no rank is where one would guess it."""
SPEEDS = {(0, 1): 8.0, (0, 2): 3.0, (1, 2): 2.0}
"""GB/s of each process of a node with the other one's."""


class Scripted(World):
    """The process with this rank; all others take a quarter longer for what all do."""

    def __init__(self, rank: int = 2, seconds_a_byte: float = 1e-9) -> None:
        self.rank, self.size, self._processes = rank, len(PROCESSES), PROCESSES
        self.node, self.local, _ = PROCESSES[rank]
        self.backend, self.device, self.torch_version = "gloo", "CPU", "2.9"
        self.clock, self.done = 0.0, list[Any]()
        self.seconds_a_byte = seconds_a_byte
        self.rounds: list[Sequence[bandwidth.Pair]] = []

    def everyone(self, own: Any) -> list[Any]:
        """See the base class."""
        if isinstance(own, tuple):
            [pairs] = self.rounds[-1:]
            with_pair = {node: SPEEDS[pair] for pair in pairs for node in pair}
            return [(node, with_pair.get(node, 0.0)) for node, _, _ in PROCESSES]
        return [own, own * 1.25, own / 2]

    def all_reducing(self, count: int) -> Any:
        """See the base class."""
        self.done.append(f"reduce {count}")
        return lambda: self._spend(count)

    def exchanging(self, peer: int, count: int) -> Any:
        """See the base class."""
        self.done.append(f"with {peer}: {count}")
        return lambda: self._spend(count)

    def _spend(self, count: int) -> None:
        self.done.append(count)
        self.clock += count * self.seconds_a_byte

    def longest(self, peer: int, seconds: float) -> float:
        """See the base class."""
        self.done.append(f"longest {peer}")
        return 2 * seconds

    def now(self) -> float:
        """See the base class."""
        return self.clock


def counted(done: Sequence[Any]) -> list[Any]:
    """The same, what is the same several times in a row in one."""
    found: list[list[Any]] = []
    for one in done:
        if found and found[-1][0] == one:
            found[-1][1] += 1
        else:
            found.append([one, 1])
    return [one if count == 1 else (one, count) for one, count in found]


def test_each_size_is_reduced_once_and_then_as_often_as_there_is_time() -> None:
    world = Scripted(seconds_a_byte=1e-8)
    rows, too_long = measure_all_reduce(world, [4_000_000, 40_000_000, 400_000_000, 1 << 30])
    assert counted(world.done) == [
        "reduce 4000000",
        (4_000_000, 11),
        "reduce 40000000",
        (40_000_000, 2),
        "reduce 400000000",
        (400_000_000, 2),
    ]
    assert [row["bytes"] for row in rows] == [4_000_000, 40_000_000, 400_000_000]
    for row in rows:
        assert row["seconds"] == pytest.approx(1.25e-8 * row["bytes"])
        assert row["algorithm_gb"] == pytest.approx(0.08)
        assert row["bus_gb"] == pytest.approx(0.08 * 2 * 5 / 6)
    assert too_long == 1 << 30
    assert measure_all_reduce(Scripted(), [1_000])[1] == 0
    assert measure_all_reduce(Scripted(seconds_a_byte=1e-2), [1_000])[1] == 0
    many = Scripted()
    measure_all_reduce(many, [1_000])
    assert counted(many.done) == ["reduce 1000", (1_000, 51)]


def test_messages_grow_until_one_takes_long_enough_and_are_sent_for_the_time() -> None:
    world = Scripted(seconds_a_byte=1.25e-8)
    first = 256 << 10
    speed = measure_with(world, 4, 0.2)
    assert counted(world.done) == [
        "with 4: 1",
        1,
        f"with 4: {first}",
        first,
        "longest 4",
        f"with 4: {4 * first}",
        4 * first,
        "longest 4",
        *[4 * first, "longest 4", (4 * first, 2), "longest 4", (4 * first, 4), "longest 4"],
        *[(4 * first, 8), "longest 4"],
    ]
    assert speed == pytest.approx(0.04)
    quick = Scripted(seconds_a_byte=1e-12)
    measure_with(quick, 4, 1e-5)
    sizes = [size for size in quick.done if isinstance(size, str) and size.startswith("with")]
    assert sizes == [f"with 4: {count}" for count in (1, first, 4 * first, 4 << 20)]


@pytest.mark.parametrize(("rank", "peer"), [(2, 3), (1, 4), (3, 2), (4, 1), (0, None), (5, None)])
def test_a_pair_of_nodes_is_as_fast_as_the_slower_end_of_all_its_processes(
    monkeypatch: pytest.MonkeyPatch, rank: int, peer: int | None
) -> None:
    asked: list[Any] = []

    def with_one(*given: Any) -> float:
        asked.append(given)
        return 7.5

    monkeypatch.setattr(bandwidth, "measure_with", with_one)
    world = Scripted(rank)
    told: list[Any] = []
    speeds = [(2, 9.0), (0, 1.0), (0, 2.0), (1, 2.5), (1, 4.0), (2, 9.0)]

    def everyone(own: Any) -> Any:
        told.append(own)
        return speeds

    world.everyone = everyone  # type: ignore[method-assign]
    assert measure_round(world, [(0, 1)], 0.5) == {(0, 1): 3.0}
    assert measure_round(world, [(1, 2)], 0.5) == {(1, 2): 6.5}
    assert asked[:1] == ([(world, peer, 0.5)] if peer is not None else asked[:1])
    assert told[0] == (world.node, 0.0 if peer is None else 7.5)


def test_nodes_are_counted_and_the_process_on_another_one_is_found() -> None:
    world = Scripted(3)
    assert world.nodes() == [{"hostname": name, "processes": 2} for name in "abc"]
    assert [world.peer_on(node) for node in (0, 1, 2, 3)] == [2, 3, 5, None]
    alone = Scripted()
    alone._processes, alone.local = [*PROCESSES, (1, 2, "b")], 2
    assert alone.nodes()[1] == {"hostname": "b", "processes": 3}
    assert [alone.peer_on(node) for node in (0, 1)] == [None, 6]


def test_all_pairs_are_measured_and_those_that_are_slow_again_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[Any] = []

    def one_round(world: Any, pairs: Any, window: float) -> Any:
        world.rounds.append(pairs)
        done.append((*pairs, window))
        return {pair: 2 * SPEEDS[pair] for pair in pairs}

    monkeypatch.setattr(bandwidth, "measure_round", one_round)
    world = Scripted(2)
    world.rank = 0  # which speaks for all
    result = measure(world, [], 0.5)
    assert done == [((1, 2), 0.2), ((0, 2), 0.2), ((0, 1), 0.2), ((0, 1), 0.5)] + [
        (pair, 0.5) for pair in ((0, 2), (1, 2))
    ]
    assert [row["bytes"] for row in result.pop("all_reduce")] == bandwidth._SIZES["gloo"]
    [sentence] = result.pop("sentences")
    assert sentence.startswith("node 2 (c) is slow: 6 GB/s with node 0 (a) and 4 GB/s with node 1")
    assert "where node 0 (a) and node 1 (b) reach 16 GB/s" in sentence
    assert result == {
        "backend": "gloo",
        "device": "CPU",
        "torch": "2.9",
        "nodes": [{"hostname": name, "processes": 2} for name in "abc"],
        "too_long": 0,
        "pairs": [[0, 1, 16.0], [0, 2, 6.0], [1, 2, 4.0]],
        "second_pass": [[0, 1, 16.0], [0, 2, 6.0], [1, 2, 4.0]],
        "usual": 16.0,
        "slow_below": 0.5,
        "slow_nodes": [2],
        "slow_pairs": [],
    }
    said = ["4 sizes to all-reduce", "3 pairs of nodes in 3 rounds", "3 pairs again, one after the"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" other")[0] for line in lines] == [f"rdzv bench: {s}" for s in said]
    world.rank = 1
    assert [row["bytes"] for row in measure(world, [64, 8], 0.5)["all_reduce"]] == [64, 8]
    assert capsys.readouterr().err == ""


# --- what is asked of torch -----------------------------------------------------------------------


class Tensor(list[Any]):
    """Numbers."""

    def tolist(self) -> list[Any]:
        return [*self]

    def __int__(self) -> int:
        return int(self[0])

    def __float__(self) -> float:
        return float(self[0])


class Torch(ModuleType):
    """What is used of it, and in which order."""

    uint8, float32, float64 = "uint8", "float32", "float64"
    __version__ = "2.9.1"

    def __init__(self, *, cuda: bool, texts: list[str]) -> None:
        super().__init__("torch")
        self.done: list[Any] = []
        did = self.did
        self.cuda = SimpleNamespace(
            is_available=lambda: cuda,
            set_device=lambda local: did("device", local),
            get_device_name=lambda device: f"GPU {device.index}",
            synchronize=lambda: did("waits"),
        )
        self.set_num_threads = lambda count: did("threads", count)
        self.device = lambda kind, index=None: SimpleNamespace(type=kind, index=index)
        self.tensor = lambda values, **_: Tensor(values)
        self.empty_like = lambda like: Tensor([0] * len(like))
        self.zeros = lambda count, **how: did("zeros", count, how["dtype"]) or Tensor([0])
        self.ones = lambda count, **how: did("ones", count, how["dtype"]) or Tensor([1])
        self.distributed = dist = ModuleType("torch.distributed")
        self.texts = texts

        def longest(data: Tensor, op: Any = None) -> None:
            did("reduce", op)
            if op == "MAX":
                data[0] = max(map(len, self.texts))

        def gather(found: list[Tensor], own: Tensor) -> None:
            did("gather", bytes(own))
            for one, text in zip(found, self.texts, strict=True):
                one[:] = text.ljust(len(one)).encode()

        def exchange(ways: list[Any]) -> list[Any]:
            for how, data, peer in ways:
                did(how, peer)
                assert (how == "receive") == (data == [0] * len(data))  # nothing is in it yet
                if how == "receive":
                    data[0] = 9.5
            return [SimpleNamespace(wait=lambda: did("waited"))] * 2

        values = {
            "ReduceOp": SimpleNamespace(MAX="MAX"),
            "init_process_group": lambda backend, timeout: did(
                "begins", backend, timeout.total_seconds()
            ),
            "get_rank": lambda: 1,
            "get_world_size": lambda: len(self.texts),
            "all_reduce": longest,
            "all_gather": gather,
            "P2POp": lambda how, data, peer: (how, data, peer),
            "isend": "send",
            "irecv": "receive",
            "batch_isend_irecv": exchange,
            "destroy_process_group": lambda: did("leaves"),
        }
        for name, value in values.items():
            setattr(dist, name, value)

    def did(self, *what: Any) -> None:
        self.done.append(what)


def put(monkeypatch: pytest.MonkeyPatch, torch: Torch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", torch.distributed)
    for name, value in (("LOCAL_RANK", "3"), ("GROUP_RANK", "5")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bandwidth.socket, "gethostname", lambda: "b")  # type: ignore[attr-defined]


TEXTS = ['[4, 0, "a"]', '[5, 3, "b"]', '[4, 3, "a longer name"]']


@pytest.mark.parametrize("cuda", [True, False])
def test_what_a_process_asks_of_torch(monkeypatch: pytest.MonkeyPatch, cuda: bool) -> None:
    torch = Torch(cuda=cuda, texts=TEXTS)
    put(monkeypatch, torch)
    world = World()
    backend = "nccl" if cuda else "gloo"
    begun = [("device", 3) if cuda else ("threads", 1), ("begins", backend, 300.0)]
    own = TEXTS[1].ljust(len(TEXTS[2])).encode()
    asked = [("reduce", "MAX"), ("gather", own)]
    assert torch.done == begun + asked
    shown = world.backend, world.device, world.torch_version
    assert shown == (backend, "GPU 3" if cuda else "CPU", "2.9.1")
    assert (world.rank, world.size, world.node, world.local) == (1, 3, 5, 3)
    assert (world.peer_on(4), world.peer_on(5)) == (2, 1)
    names = [("a longer name", 2), ("b", 1)]
    assert world.nodes() == [{"hostname": name, "processes": n} for name, n in names]
    torch.done.clear()
    world.all_reducing(64)()
    work = world.exchanging(2, 8)
    work()
    assert world.longest(2, 4.0) == 9.5
    assert world.longest(2, 12.0) == 12.0
    ways = [("send", 2), ("receive", 2), ("waited",), ("waited",)]
    reduced = [("zeros", 16, "float32"), ("reduce", None)]
    assert torch.done == [*reduced, ("ones", 8, "uint8"), *ways * 3]
    torch.done.clear()
    world.seconds(lambda: torch.did("work"), 2)
    waits = [("waits",)] * cuda
    assert torch.done == [*waits, ("work",), ("work",), *waits]
    world.close()
    assert torch.done[-1] == ("leaves",)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_process_delivers_and_each_leaves_whatever_comes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int
) -> None:
    left: list[int] = []
    asked: list[Any] = []

    class One:
        def __init__(self) -> None:
            self.rank = rank

        def close(self) -> None:
            left.append(rank)

    def measured(world: One, sizes: Any, slow_below: float) -> dict[str, Any]:
        asked.append((sizes, slow_below))
        if slow_below > 1:
            raise ValueError("not this way")
        return {"a": 1}

    monkeypatch.setattr(bandwidth, "World", One)
    monkeypatch.setattr(bandwidth, "measure", measured)
    monkeypatch.setenv("RDZV_BENCH_RESULT", str(tmp_path / "result"))
    main(["--size", "64", "--size", "8", "--slow-below", "0.25"])
    assert asked == [([8, 64], 0.25)]
    found = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert (found, left) == ([{"a": 1}] * (rank == 0), [rank])
    with pytest.raises(ValueError, match="not this way"):
        main(["--slow-below", "2"])
    assert left == [rank, rank]
