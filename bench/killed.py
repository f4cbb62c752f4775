"""A worker is killed: how soon the programs of all nodes run again, beside what torchrun offers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.rows import Figure, Row, row
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import group_token_text
from worker.offer.ports import find_free

_BIN = Path(sys.executable).parent
_PROGRAM = Path(__file__).parent / "restarted.py"
_NODES = 4
_KILLED_RANK = 2
_START_SECONDS = 120.0
_NEVER_SECONDS = 60.0
_END_SECONDS = 60.0
_FIRST_PORT = 24_000
_PAUSE_SECONDS = (0.3, 1.3)
_LEFT_SECONDS = 0.3
_PLUGIN_BY_C10D = 0.5
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
        system: Its name in the rows.
        commands: For a folder and a free port, what is run.
        note: What it does.
        environ: What is set besides.
        imports_torchrun: Whether a restart starts new torchruns.
    """

    system: str
    commands: Callable[[Path, int], list[list[str]]]
    note: str
    environ: Mapping[str, str] = field(default_factory=dict)
    imports_torchrun: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """What a program has written: moments of the machine's clock, and durations."""

    rank: int
    pid: int
    torchrun_started: float
    first: float
    imported: float
    ready: float
    import_seconds: float
    torchrun_import_seconds: float


@dataclass(frozen=True, slots=True)
class Restarted:
    """Seconds after the kill, until the last node has ...

    Attributes:
        started: ... its torchrun; negative where that goes on.
        first: ... the first statement of its program.
        ready: ... found the others.
        imports: Of that, how long the last node's processes imported torch, one after the other.
        torchrun_imports: Of the time to the first statement, how long its torchrun did.
    """

    started: float
    first: float
    ready: float
    imports: float
    torchrun_imports: float


def _rdzv(folder: Path, port: int) -> list[list[str]]:
    options = ["--state-dir", f"{folder}/state", "--nnodes", f"{_NODES}", "--max-restarts", "1"]
    return [[str(_BIN / "rdzv"), "launch", *options, "--", str(_PROGRAM), str(folder)]]


def _c10d(folder: Path, port: int) -> list[list[str]]:
    options = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "b"]
    options += ["--local-addr", "127.0.0.1", "--nnodes", f"{_NODES}", "--max-restarts", "3"]
    return [[str(_BIN / "torchrun"), *options, str(_PROGRAM), str(folder)]] * _NODES


def _plugin(folder: Path, port: int) -> list[list[str]]:
    token = folder / "token"
    token.write_text(group_token_text(new_secret()))
    words = ["env", f"RDZV_TOKEN_FILE={token}", f"RDZV_STATE_DIR={folder}/state"]
    options = ["--rdzv-backend", "rdzv", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "b"]
    options += ["--nnodes", f"{_NODES}", "--max-restarts", "3"]
    return [[*words, str(_BIN / "torchrun"), *options, str(_PROGRAM), str(folder)]] * _NODES


def _loop(folder: Path, port: int) -> list[list[str]]:
    options = ["--master-addr", "127.0.0.1", "--master-port", f"{port}", "--nnodes", f"{_NODES}"]
    return [["bash", "-c", LOOP_SCRIPT, "loop", str(_BIN / "torchrun"), *options]]


_BARE = {"GLOO_SOCKET_IFNAME": "lo"}
RDZV = Way("rdzv-launch", _rdzv, "--max-restarts 1")
C10D = Way("c10d", _c10d, "--max-restarts 3, as shipped", _BARE, imports_torchrun=False)
UNSHARED = Way(
    "c10d-unshared",
    _c10d,
    "--max-restarts 3, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
    {**_BARE, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    imports_torchrun=False,
)
LOOP = Way(
    "torchrun-loop", _loop, "static torchruns that a shell loop kills and starts again", _BARE
)

PLUGIN = Way(
    "rdzv-plugin", _plugin, "torchrun --rdzv-backend=rdzv --max-restarts 3", imports_torchrun=False
)
PEERS = (PLUGIN, UNSHARED, LOOP)


def beside_torchrun(rounds: int, ways: Sequence[Way]) -> Iterator[Row | Figure]:
    """`rdzv launch` and these ways, one after the other and again; c10d as shipped once."""
    found: dict[str, list[Restarted | None]] = {way.system: [] for way in (RDZV, *ways)}
    for _ in range(rounds):
        for way in (RDZV, *ways):
            found[way.system].append(restarted(way))
    for way in (RDZV, *ways):
        yield from _rows(way, found[way.system])
    for way in ways:
        yield from _beside(way.system, found[RDZV.system], found[way.system])
    if PLUGIN in ways and UNSHARED in ways:
        pairs = zip(found[PLUGIN.system], found[UNSHARED.system], strict=True)
        yield from _plugin_beside([(a, b) for a, b in pairs if a and b])


def as_shipped() -> Iterator[Row | Figure]:
    """c10d as it is: its agents restart their programs, which find the dead ones' addresses."""
    yield from _rows(C10D, [restarted(C10D)])


def _rows(way: Way, found: Sequence[Restarted | None]) -> Iterator[Row | Figure]:
    came = [one for one in found if one is not None]
    if not came:
        note = f"{way.system}, {way.note}: never within {_NEVER_SECONDS:g} s of the kill"
        yield Figure("restarted", _NODES, 0, f"of {len(found)}", None, len(found), note=note)
        return
    started = round(statistics.median(one.started for one in came), 2)
    left = round(statistics.median(one.first - one.torchrun_imports for one in came), 2)
    met = round(statistics.median(one.ready - one.imports for one in came), 2)
    torchruns = f"new torchruns after {started:g} s" if way.imports_torchrun else "same torchruns"
    whose = "torchrun's and the program's" if way.imports_torchrun else "the program's"
    note = f"{met:g} s without {whose} import of torch; {way.note}"
    missing = [float("inf")] * (len(found) - len(came))
    firsts = [1000 * one.first for one in came] + missing
    readies = [1000 * one.ready for one in came] + missing
    yield row(way.system, _NODES, "killed_first", firsts, note=f"{torchruns}; {way.note}")
    yield row(way.system, _NODES, "killed_ready", readies, note=note)
    if way is RDZV:
        note = f"{way.system}: a worker's SIGKILL until all run, but for torchrun's import of torch"
        yield Figure("restart_left", _NODES, left, "s", _LEFT_SECONDS, len(came), note=note)
        note = f"{way.system}: a worker's SIGKILL until the last node's torchrun is started"
        yield Figure("restart_started", _NODES, started, "s", _LEFT_SECONDS, len(came), note=note)


def _beside(
    system: str, ours: Sequence[Restarted | None], theirs: Sequence[Restarted | None]
) -> Iterator[Figure]:
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a and b]
    if pairs:
        ratio = round(statistics.median(a.ready / b.ready for a, b in pairs), 2)
        note = f"rdzv launch by {system}: a worker's SIGKILL until all have met again"
        yield Figure("restart_ratio", _NODES, ratio, "times", None, len(pairs), note=note)


def _plugin_beside(pairs: Sequence[tuple[Restarted, Restarted]]) -> Iterator[Figure]:
    """torchrun kept as the command: rdzv's plug-in by its own rendezvous."""
    if pairs:
        ratio = round(statistics.median(a.ready / b.ready for a, b in pairs), 2)
        note = "rdzv-plugin by c10d-unshared: a worker's SIGKILL until all have met again"
        yield Figure("plugin_ratio", _NODES, ratio, "times", _PLUGIN_BY_C10D, len(pairs), note=note)


def restarted(way: Way) -> Restarted | None:
    """One launch, of which one worker is killed once; None: its programs do not come again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _running(way, folder) as processes:
            begun = _seen(processes, folder, 0.0, _START_SECONDS)
            if begun is None:
                raise RuntimeError(f"{way.system} did not start: {_last_words(folder)}")
            time.sleep(random.uniform(*_PAUSE_SECONDS))
            killed = time.monotonic()
            os.kill(next(one.pid for one in begun if one.rank == _KILLED_RANK), signal.SIGKILL)
            again = _seen(processes, folder, killed, _NEVER_SECONDS)
            if again is None:
                return None
            (folder / "over").touch()
            codes = [process.wait(_END_SECONDS) for process in processes]
            if any(codes):
                raise RuntimeError(f"{way.system} ended with {codes}: {_last_words(folder)}")
    return after_kill(again, killed, imports_torchrun=way.imports_torchrun)


def after_kill(again: Sequence[Program], killed: float, *, imports_torchrun: bool) -> Restarted:
    """What the new programs have written, seen from the kill."""
    last = max(again, key=lambda one: one.imported)
    imports = last.import_seconds + imports_torchrun * last.torchrun_import_seconds
    started = max(one.torchrun_started for one in again) - killed
    first, ready = max(again, key=lambda one: one.first), max(one.ready for one in again)
    torchruns = imports_torchrun * first.torchrun_import_seconds
    return Restarted(started, first.first - killed, ready - killed, imports, torchruns)


def programs(folder: Path, after: float) -> list[Program]:
    """What the programs that have begun after a moment have written so far."""
    written = [json.loads(path.read_text()) for path in folder.glob("program-*.json")]
    return [Program(**one) for one in written if one["first"] > after]


def _seen(
    processes: Sequence[subprocess.Popen[bytes]], folder: Path, after: float, seconds: float
) -> list[Program] | None:
    """The programs of all nodes that have begun after a moment; None where they do not come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = programs(folder, after)
        if len(found) >= _NODES:
            return found
        if all(process.poll() is not None for process in processes):
            return None
        time.sleep(0.02)
    return None


@contextlib.contextmanager
def _running(way: Way, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of a way; what is left of them in the end is killed."""
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RDZV_")},
        "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "NODES": f"{_NODES}",
        "PROGRAM": str(_PROGRAM),
        "FOLDER": str(folder),
        **way.environ,
    }
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


def _last_words(folder: Path) -> str:
    return (folder / "output").read_text(errors="replace")[-2000:]
