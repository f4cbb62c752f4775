"""Writes down what torchrun and its ranks print for each case: `python -m tests.causes.record`.

Without a name it does all that are not recorded yet; `--again` does those that are as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from rendezvous.compat import tomllib
from tests.causes.ending import exit_status
from tests.causes.injected import CASES, Case

OUTPUTS = Path(__file__).parent / "outputs"
INDEX = OUTPUTS / "index.toml"
LIMIT_SECONDS = 90.0
LAYOUTS = ("1x2", "1x4", "2x1", "2x2")
"""Nodes, times ranks on each."""


@dataclass
class Rank:
    """How a rank ended.

    Attributes:
        exit: By the kernel; negative for a signal.
        said: By its torchrun; absent where that has said nothing of it.
        after: Seconds since the first rank of all ended.
    """

    rank: int
    node: int
    exit: int | None
    said: int | None
    after: float


def layouts(case: Case) -> tuple[str, ...]:
    """What is worth recording: where ranks depend on each other, all."""
    return LAYOUTS if case.others else ("1x2",)


def record(case: Case, layout: str) -> dict[str, Any]:
    """Run it and keep what it printed; what is to be in the index."""
    nodes, each = map(int, layout.split("x"))
    with tempfile.TemporaryDirectory(prefix="rdzv-causes-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(case.program)
        guilty = case.guilty[nodes * each]
        with case.by(folder) as by:
            torchruns = [
                _start(case, folder, by, guilty, (node, nodes, each)) for node in range(nodes)
            ]
            ends = _watch(torchruns, nodes * each)
        texts = [_read(folder, node) for node in range(nodes)]
    files = []
    for node, text in enumerate(texts):
        which = f".node{node}" if nodes > 1 else ""
        files.append(f"{case.row:02}-{case.name}.{layout}{which}.txt")
        (OUTPUTS / files[-1]).write_text(text)
    first = min((end[1] for end in ends.values()), default=0.0)
    ranks = []
    for rank, (status, at) in sorted(ends.items()):
        node = rank // each
        ranks.append(Rank(rank, node, status, _said(texts[node], rank), round(at - first, 2)))
    return {
        "row": case.row,
        "name": case.name,
        "layout": layout,
        "recorded": True,
        "cause": case.expected,
        "guilty": guilty,
        "others": case.others,
        "files": files,
        "torchrun_blames": [_root_cause(text) for text in texts],
        "torchrun_exits": [process.returncode for process in torchruns],
        "ranks": [{k: v for k, v in asdict(rank).items() if v is not None} for rank in ranks],
    }


def _start(
    case: Case, folder: Path, by: tuple[str, ...], guilty: int, where: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    node, nodes, each = where
    port = _port(folder)
    words = ["--nnodes", str(nodes), "--nproc-per-node", str(each), "--node-rank", str(node)]
    words += ["--rdzv-backend", "static", "--rdzv-id", "r"]
    words += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    env = {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    env |= {"GUILTY": str(guilty), "FOLDER": str(folder), **case.env}
    with (folder / f"out-{node}").open("wb") as out:
        return subprocess.Popen(
            [*by, "torchrun", *words, "train.py"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=folder,
            start_new_session=True,
        )


def _port(folder: Path) -> int:
    """One for all nodes of a run."""
    kept = folder / "port"
    if not kept.exists():
        with socket.create_server(("127.0.0.1", 0)) as server:
            kept.write_text(str(server.getsockname()[1]))
    return int(kept.read_text())


def _watch(
    torchruns: list[subprocess.Popen[bytes]], count: int
) -> dict[int, tuple[int | None, float]]:
    """Until all have ended: the exit status of each rank, and when that was."""
    held: dict[int, int] = {}
    ends: dict[int, tuple[int | None, float]] = {}
    poll = select.poll()
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        if len(held) < count:
            for rank, pid in _ranks(torchruns):
                if rank not in held:
                    held[rank] = os.pidfd_open(pid)
                    poll.register(held[rank], select.POLLIN)
        for fd, _ in poll.poll(50):
            [rank] = [rank for rank, pidfd in held.items() if pidfd == fd]
            ends[rank] = (None, time.monotonic())
            poll.unregister(fd)
        if all(process.poll() is not None for process in torchruns):
            break
    for process in torchruns:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
    time.sleep(0.3)
    for rank, pidfd in held.items():
        if rank in ends:
            ends[rank] = (exit_status(pidfd), ends[rank][1])
        else:
            with suppress(ProcessLookupError):
                os.kill(_pid_of(pidfd), 9)
        os.close(pidfd)
    return ends


def _pid_of(pidfd: int) -> int:
    [line] = [
        line
        for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
        if line.startswith("Pid:")
    ]
    return int(line.split()[1])


def _ranks(torchruns: list[subprocess.Popen[bytes]]) -> list[tuple[int, int]]:
    found = []
    for process in torchruns:
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    env = child.environ()
                    if "RANK" in env and child.ppid() == process.pid:
                        found.append((int(env["RANK"]), child.pid))
    return found


_PACKAGES = "/usr/lib/python3/dist-packages"


def _read(folder: Path, node: int) -> str:
    """What was printed, with no word of this machine."""
    return without_machine((folder / f"out-{node}").read_text(errors="replace"), folder)


def without_machine(text: str, folder: Path) -> str:
    """The text of a run in this folder, as if it had been in `/app` of some image."""
    ours, base = Path(sys.prefix).resolve(), sysconfig.get_path("stdlib")
    real = Path(sys.executable).resolve()
    places = {folder: "/app"}
    for prefix in (ours, Path(sys.prefix)):
        places[prefix / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)] = _PACKAGES
        places[prefix / "bin"] = "/usr/bin"
    places |= {real: "/usr/bin/python3", Path(base): "/usr/lib/python3"}
    places[Path(__file__).parents[2]] = f"{_PACKAGES}/rdzv/_app"  # as the wheel puts it
    for place, instead in places.items():
        text = text.replace(str(place), instead)
    text = re.sub(r"\.venv/lib/python3\S*/site-packages/", "", text)  # torch's own shortened paths
    text = re.sub(r"[^\s\"\\]*\.venv/lib/python3[\d.]*/[a-z-]*\u2026", f"{_PACKAGES}\u2026", text)
    text = re.sub(r"(Looking in links: )\S+", r"\1/wheels", text)
    text = re.sub(r"/tmp/torchelastic_\w+/\w+?_\w+/", "/run/torchelastic/", text)
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "node", text)


_FAILED = re.compile(r"rank +: (\d+) \(local_rank: \d+\)\s+exitcode +: (-?\d+)")


def _said(text: str, rank: int) -> int | None:
    """The exit code that torchrun told of a rank."""
    told = {int(which): int(code) for which, code in _FAILED.findall(text)}
    return told.get(rank)


def _root_cause(text: str) -> int:
    """Whom torchrun blames; -1 where it blames nobody."""
    _, found, behind = text.partition("Root Cause (first observed failure):")
    match = _FAILED.search(behind) if found else None
    return int(match[1]) if match else -1


def read_index() -> list[dict[str, Any]]:
    """All that is recorded."""
    if not INDEX.exists():
        return []
    runs: list[dict[str, Any]] = tomllib.loads(INDEX.read_text())["run"]
    return runs


def write_index(runs: list[dict[str, Any]]) -> None:
    """The runs, in the order of the catalogue."""
    runs = sorted(runs, key=lambda run: (run["row"], run["name"], run["layout"]))
    INDEX.write_text("\n".join(_table(run) for run in runs))


def _table(run: dict[str, Any]) -> str:
    lines = ["[[run]]"]
    for name, value in run.items():
        if name == "ranks":
            rows = [
                "  { " + ", ".join(f"{key} = {json.dumps(v)}" for key, v in row.items()) + " },"
                for row in value
            ]
            lines += ["ranks = [", *rows, "]"]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--layout", action="append")
    ask = parser.parse_args()
    for case in filter(lambda case: case.alone, CASES):
        for layout in ask.layout or layouts(case):
            done = {(run["row"], run["name"], run["layout"]) for run in read_index()}
            key = (case.row, case.name, layout)
            if (ask.names and case.name not in ask.names) or (key in done and not ask.again):
                continue
            if why_not := case.why_not():
                print(f"{case.name}: {why_not}", flush=True)
                continue
            began = time.monotonic()
            run = record(case, layout)
            others = [
                run for run in read_index() if (run["row"], run["name"], run["layout"]) != key
            ]
            write_index([*others, run])
            print(_line(run), f"{time.monotonic() - began:.0f} s", flush=True)


def _line(run: dict[str, Any]) -> str:
    ends = [f"{rank['rank']}: {rank.get('exit')}, {rank['after']} s" for rank in run["ranks"]]
    blames = f"guilty {run['guilty']}, torchrun blames {run['torchrun_blames']}"
    return f"{run['row']} {run['name']} {run['layout']}: {blames}; {'; '.join(ends)};"


if __name__ == "__main__":
    main()
