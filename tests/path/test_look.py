"""A real torchrun whose ranks the hook has moved: all is heard, and a person sees no difference."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import RDZV, environment, launch

pytestmark = [pytest.mark.real_time, pytest.mark.torch, pytest.mark.timeout(120)]

WHERE = """
import json, os, pathlib, sys
rank = os.environ["LOCAL_RANK"]
files = [os.readlink(f"/proc/self/fd/{fd}") for fd in (1, 2)]
kept = [os.environ.get("PYTHONPATH"), os.environ.get("RDZV_LOOK_FOLDER"), sys.path]
pathlib.Path(sys.argv[1], f"seen-{rank}").write_text(json.dumps([*files, *kept]))
print("out", rank)
print("err", rank, file=sys.stderr)
"""


def seen(folder: Path, script: str, *options: str, words: tuple[str, ...] = ()) -> list[list[Any]]:
    """What two ranks have seen of themselves; all of their words have come through."""
    (folder / "train.py").write_text(script)
    command = ["torchrun", *words, str(folder / "train.py"), str(folder)]
    size = ("--nnodes", "1", "--nproc-per-node", "2")
    outcome = launch(folder / "s", *size, *options, command=command)
    assert outcome.code == 0, outcome.err
    out, err = outcome.out.splitlines(), outcome.err.splitlines()
    assert sorted(out) == sorted(f"{start}out {n}" for n, start in _starts(words))
    assert {f"{start}err {n}" for n, start in _starts(words)} <= {*err}
    [log] = (folder / "s" / "r" / "logs").glob("node-0.log")
    assert {*out} <= {*log.read_text().splitlines()}
    kept = {path.name: {*path.read_text().splitlines()} for path in log.parent.glob("rank-*.log")}
    moved = "--look" not in options and not words
    assert {*kept} == ({"rank-0.log", "rank-1.log"} if moved else set())
    for number in range(2 if moved else 0):
        assert {f"out {number}", f"err {number}"} <= kept[f"rank-{number}.log"]
    return [json.loads((folder / f"seen-{n}").read_text()) for n in range(2)]


def _starts(words: tuple[str, ...]) -> list[tuple[int, str]]:
    return [(n, f"[default{n}]:" if "--tee" in words else "") for n in range(2)]


@pytest.mark.parametrize("early", ["auto", "off"])
def test_each_rank_has_its_own_streams(early: str, tmp_path: Path) -> None:
    for rank, (out, err, path, folder, _) in enumerate(
        seen(tmp_path, WHERE, "--early-start", early)
    ):
        assert (out, err) == (f"{folder}/{rank}.stdout", f"{folder}/{rank}.stderr")
        assert path.endswith("worker/look/site")
        assert not Path(folder).parent.exists()


def test_off_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for out, err, path, folder, _ in seen(tmp_path, WHERE, "--look", "off"):
        assert (out[:5], err[:5], path, folder) == ("pipe:", "pipe:", None, None)


def test_what_torchrun_redirects_stays_redirected(tmp_path: Path) -> None:
    words = ("--tee", "3", "--log-dir", str(tmp_path / "torch"))
    for out, err, *_ in seen(tmp_path, WHERE, words=words):
        assert out.startswith(str(tmp_path / "torch")), out
        assert err.startswith(str(tmp_path / "torch")), err


def test_a_rank_that_torchrun_starts_again_is_heard_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "again = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('rank', os.environ['RANK'], 'start', again, os.readlink('/proc/self/fd/1')[-8:])\n"
        "sys.exit(again == '0')\n"
    )
    command = ["torchrun", "--max-restarts", "1", "--monitor-interval", "0.1", str(script)]
    size = ("--nnodes", "1", "--nproc-per-node", "2")
    outcome = launch(tmp_path / "s", *size, command=command)
    assert outcome.code == 0, outcome.err
    found = {*outcome.out.splitlines()}
    assert {f"rank {n} start 1 {n}.stdout" for n in range(2)} <= found


def test_of_one_rank_every_byte_is_the_same_with_and_without(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "os.write(1, bytes(range(256)) * 999)\n"
        "os.write(1, b'no end')\n"
        "os.write(2, b'\\r 10%\\r 20%\\ndone')\n"
    )
    said = []
    for number, look in enumerate(("off", "auto")):
        run = [RDZV, "launch", "--nnodes", "1", "--look", look, "--rdzv-id", f"r{number}"]
        env = environment(tmp_path / "s")
        done = subprocess.run([*run, str(script)], env=env, capture_output=True, timeout=60)
        log = tmp_path / "s" / f"r{number}" / "logs" / "node-0.log"
        said.append((done.returncode, done.stdout, sorted(log.read_bytes())))
        assert b"\r 10%\r 20%\ndone" in done.stderr
    assert said[0] == said[1]
    assert said[0][:2] == (0, bytes(range(256)) * 999 + b"no end")


def test_lines_of_two_ranks_are_not_cut_into_each_other(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "for n in range(5_000): sys.stdout.write(f'{rank} {n} ' + rank * (n % 300) + '\\n')\n"
    )
    size = ("--nnodes", "1", "--nproc-per-node", "2")
    outcome = launch(tmp_path / "s", *size, command=[str(script)])
    wanted = [f"{rank} {n} {rank * (n % 300)}" for rank in "01" for n in range(5_000)]
    lines = outcome.out.splitlines()
    for rank in "01":
        assert [line for line in lines if line.startswith(rank)] == [
            line for line in wanted if line.startswith(rank)
        ]
    assert len(lines) == 10_000
