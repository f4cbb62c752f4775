"""A worker is killed: how soon the programs of all nodes run again, beside what torchrun offers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.rows import Row, row
from tests.support.launching import BIN, RDZV, environment
from worker.offer.ports import find_free

_PROGRAM = Path(__file__).parent / "restarted.py"
_NODES = 4
_KILLED_RANK = 2
_START_SECONDS = 120.0
_NEVER_SECONDS = 60.0
_FIRST_PORT = 24_000
_GO = b"; starting "
LOOP_SCRIPT = """
while :; do
  left=() failed=
  for rank in $(seq 0 $((NODES - 1))); do
    "$@" --node-rank $rank "$PROGRAM" "$FOLDER" & left+=($!)
  done
  while [ -z "$failed" ] && [ ${#left[@]} -gt 0 ]; do
    sleep 0.05
    alive=()
    for pid in "${left[@]}"; do
      if kill -0 $pid 2>/dev/null; then alive+=($pid); else wait $pid || failed=1; fi
    done
    left=("${alive[@]}")
  done
  [ -z "$failed" ] && exit
  [ ${#left[@]} -eq 0 ] || kill "${left[@]}"
  wait
done
"""
"""What a person writes who has static torchruns start again."""


@dataclass(frozen=True, slots=True)
class Way:
    """How programs are started, and start again.

    Attributes:
        name: Of its rows.
        commands: For a folder and a free port, what is run.
        environ: What is set besides.
        torchruns: Whether a restart starts new torchruns.
        pause: Seconds until the kill, between these.
    """

    name: str
    commands: Callable[[Path, int], list[list[str]]]
    environ: Mapping[str, str] = field(default_factory=dict)
    torchruns: bool = True
    pause: tuple[float, float] = (0.3, 1.3)


Program = dict[str, Any]
"""What `restarted.py` has written: moments of the machine's clock, and durations."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """Seconds of one launch.

    Attributes:
        first: From the kill until the last node's program has run its first statement.
        ready: From the kill until all have found each other.
        imports: Of that, how long the last node's processes imported torch.
        gos: From each go until all had found each other; empty where nobody says it.
    """

    first: float
    ready: float
    imports: float
    gos: tuple[float, ...] = ()


def _rdzv(*options: str) -> Callable[[Path, int], list[list[str]]]:
    words = [RDZV, "launch", "--nnodes", f"{_NODES}", "--max-restarts", "1", *options, "--"]
    return lambda folder, port: [[*words, str(_PROGRAM), str(folder)]]


def _c10d(folder: Path, port: int) -> list[list[str]]:
    options = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "b"]
    options += ["--local-addr", "127.0.0.1", "--nnodes", f"{_NODES}", "--max-restarts", "3"]
    return [[str(BIN / "torchrun"), *options, str(_PROGRAM), str(folder)]] * _NODES


def _loop(folder: Path, port: int) -> list[list[str]]:
    options = ["--master-addr", "127.0.0.1", "--master-port", f"{port}", "--nnodes", f"{_NODES}"]
    return [["bash", "-c", LOOP_SCRIPT, "loop", str(BIN / "torchrun"), *options]]


_BARE = {"GLOO_SOCKET_IFNAME": "lo"}
_UNSHARED = {**_BARE, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
RDZV_LAUNCH = Way("rdzv launch", _rdzv())
PEERS = (
    Way("torchrun, a shell loop", _loop, _BARE),
    Way("c10d, no shared store", _c10d, _UNSHARED, torchruns=False),
)
C10D = Way("c10d, as it is", _c10d, _BARE, torchruns=False)
# A first warm start that fails earlier is repeated cold.
WARM = tuple(
    Way(f"--warm {warm}", _rdzv("--warm", warm), pause=(10.5, 11.5)) for warm in ("off", "on")
)


def in_turn(rounds: int, ways: Sequence[Way]) -> Iterator[Row]:
    """These ways, one after the other and again."""
    found: dict[str, list[Restarted | None]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way.name].append(restarted(way))
    for way in ways:
        yield from _rows(way.name, found[way.name])


def _rows(name: str, found: Sequence[Restarted | None]) -> Iterator[Row]:
    came = [one for one in found if one is not None]
    missing = [float("inf")] * (len(found) - len(came))
    if not came:
        never = f"never within {_NEVER_SECONDS:g} s of the kill"
        yield Row(f"killed, {name}", _NODES, 0, 0, f"of {len(found)}", len(found), never)
        return
    without = [one.ready - one.imports for one in came]
    yield row(f"killed, {name}, first", _NODES, [one.first for one in came] + missing, "s")
    yield row(f"killed, {name}, all", _NODES, [one.ready for one in came] + missing, "s")
    yield row(f"killed, {name}, bare", _NODES, without, "s", "all, without torch's imports")
    for number, what in enumerate(("first start", "restart")):
        if gos := [one.gos[number] for one in came if len(one.gos) > number]:
            yield row(f"{name}, {what}", _NODES, gos, "s", "from the go until all have met")


def restarted(way: Way) -> Restarted | None:
    """One launch, of which one worker is killed once; None: its programs do not come again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _running(way, folder) as processes:
            gos: list[float] = []
            begun = _seen(processes, folder, 0.0, _START_SECONDS, gos)
            if begun is None:
                raise RuntimeError(f"{way.name} did not start: {_tail(folder)}")
            time.sleep(random.uniform(*way.pause))
            killed = time.monotonic()
            victim = next(one["pid"] for one in begun if one["rank"] == _KILLED_RANK)
            os.kill(victim, signal.SIGKILL)
            again = _seen(processes, folder, killed, _NEVER_SECONDS, gos)
            if again is None:
                return None
            (folder / "over").touch()
            codes = [process.wait(_NEVER_SECONDS) for process in processes]
            if any(codes):
                raise RuntimeError(f"{way.name} ended with {codes}: {_tail(folder)}")
    return after_kill(way, begun, again, killed, gos)


def after_kill(
    way: Way, begun: list[Program], again: list[Program], killed: float, gos: list[float]
) -> Restarted:
    """What the programs have written, seen from the kill and from each go."""
    last = max(again, key=lambda one: float(one["imported"]))
    imports = last["import_seconds"] + way.torchruns * last["torchrun_import_seconds"]
    first = max(one["first"] for one in again) - killed
    ready = [max(one["ready"] for one in each) for each in (begun, again)]
    met = tuple(at - go for at, go in zip(ready, gos, strict=False))
    return Restarted(first, ready[1] - killed, imports, met if len(gos) == len(ready) else ())


def _seen(
    processes: Sequence[subprocess.Popen[bytes]],
    folder: Path,
    after: float,
    seconds: float,
    gos: list[float],
) -> list[Program] | None:
    """The programs of all nodes that have begun after a moment; None where they do not come.

    Adds the moment of each go that the launcher says meanwhile.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (folder / "output").read_bytes().count(_GO) > len(gos):
            gos.append(time.monotonic())
        written = [json.loads(path.read_text()) for path in folder.glob("program-*.json")]
        found = [one for one in written if one["first"] > after]
        if len(found) >= _NODES:
            return found
        if all(process.poll() is not None for process in processes):
            return None
        time.sleep(0.02)
    return None


@contextlib.contextmanager
def _running(way: Way, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of a way; what is left of them in the end is killed."""
    more = {"NODES": f"{_NODES}", "PROGRAM": str(_PROGRAM), "FOLDER": str(folder)}
    environ = environment(folder / "state", OMP_NUM_THREADS="1", **more, **way.environ)
    port = find_free(_FIRST_PORT)
    assert port is not None
    with (folder / "output").open("ab") as output:
        processes = [
            subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            for command in way.commands(folder, port)
        ]
        try:
            yield processes
        finally:
            for process in processes:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it, and all that it has started."""
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10.0)
    for one in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.kill()
    process.wait()


def _tail(folder: Path) -> str:
    return (folder / "output").read_text(errors="replace")[-2000:]
