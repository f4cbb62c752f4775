"""A real torchrun whose ranks the hook has moved: all is heard, and a person sees no difference."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import RDZV, Outcome, environment, launch
from tests.support.nightly import at_night

pytestmark = [pytest.mark.real_time, pytest.mark.torch, pytest.mark.timeout(120)]

WHERE = """
import json, os, pathlib, sys
rank = os.environ["LOCAL_RANK"]
files = [os.readlink(f"/proc/self/fd/{fd}") for fd in (1, 2)]
kept = [os.environ.get("PYTHONPATH"), os.environ.get("RDZV_LOOK_FOLDER"), sys.path]
pathlib.Path(sys.argv[1], f"seen-{rank}").write_text(json.dumps([*files, *kept]))
"""
SAYS = f"""{WHERE}
print("out", rank)
print("err", rank, file=sys.stderr)
"""
# A rank of it fails at first, and writes a lot when torchrun has started it again.
AGAIN = f"""
import os, sys
again, number = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
print("rank", number, "start", again, os.readlink("/proc/self/fd/1")[-8:], flush=True)
if again == "0":
    sys.exit(1)
{SAYS}
for n in range(5_000):
    sys.stdout.write(f"{{number}} {{n}} " + number * (n % 300) + "\\n")
"""


def run_of_two(folder: Path, script: str, *options: str, words: tuple[str, ...] = ()) -> Outcome:
    """A run of two ranks that ends well; all of their words have come through."""
    (folder / "train.py").write_text(script)
    command = ["torchrun", *words, str(folder / "train.py"), str(folder)]
    size = ("--nnodes", "1", "--nproc-per-node", "2")
    outcome = launch(folder / "s", *size, *options, command=command)
    assert outcome.code == 0, outcome.err
    out, err = outcome.out.splitlines(), outcome.err.splitlines()
    said = sorted(line for line in out if "out" in line and "start" not in line)
    assert said == sorted(f"{start}out {n}" for n, start in _starts(words))
    assert {f"{start}err {n}" for n, start in _starts(words)} <= {*err}
    [log] = (folder / "s" / "r" / "logs").glob("node-0.log")
    assert {*out} <= {*log.read_text().splitlines()}
    kept = {path.name: {*path.read_text().splitlines()} for path in log.parent.glob("rank-*.log")}
    moved = "--log-dir" not in words
    assert {*kept} == ({"rank-0.log", "rank-1.log"} if moved else set())
    for number in range(2 if moved else 0):
        assert {f"out {number}", f"err {number}"} <= kept[f"rank-{number}.log"]
    return outcome


def seen(folder: Path) -> list[list[Any]]:
    """What the two ranks have seen of themselves."""
    return [json.loads((folder / f"seen-{n}").read_text()) for n in range(2)]


def _starts(words: tuple[str, ...]) -> list[tuple[int, str]]:
    return [(n, f"[default{n}]:" if "--tee" in words else "") for n in range(2)]


@pytest.mark.parametrize("early", ["auto", at_night("off")])
@pytest.mark.faults
def test_each_rank_has_its_own_streams_also_when_it_is_started_again(
    early: str, tmp_path: Path
) -> None:
    """And a line of one is not cut by those of the other."""
    words = ("--max-restarts", "1", "--monitor-interval", "0.1")
    outcome = run_of_two(tmp_path, AGAIN, "--early-start", early, words=words)
    for rank, (out, err, path, folder, _) in enumerate(seen(tmp_path)):
        assert (out, err) == (f"{folder}/{rank}.stdout", f"{folder}/{rank}.stderr")
        assert path.endswith("worker/look/site")
        assert not Path(folder).parent.exists()
    lines = outcome.out.splitlines()
    assert {f"rank {n} start 1 {n}.stdout" for n in range(2)} <= {*lines}
    for start in "01":
        assert [line for line in lines if line.startswith(start)] == [
            f"{start} {n} {start * (n % 300)}" for n in range(5_000)
        ]
    ours = [line for line in lines if not line.startswith(("rank ", "out "))]
    assert len(ours) == 10_000


@pytest.mark.frameworks
def test_what_torchrun_redirects_stays_redirected(tmp_path: Path) -> None:
    words = ("--tee", "3", "--log-dir", str(tmp_path / "torch"))
    run_of_two(tmp_path, SAYS, words=words)
    for out, err, *_ in seen(tmp_path):
        assert out.startswith(str(tmp_path / "torch")), out
        assert err.startswith(str(tmp_path / "torch")), err


@pytest.mark.frameworks
def test_every_byte_is_the_same_with_and_without_and_off_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one rank, since those of two come in any order."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = tmp_path / "train.py"
    script.write_text(
        f"{WHERE}\n"
        "os.write(1, bytes(range(256)) * 999)\n"
        "os.write(1, b'no end')\n"
        "os.write(2, b'\\r 10%\\r 20%\\ndone')\n"
    )
    said, found = [], []
    for number, look in enumerate(("off", "auto")):
        run = [RDZV, "launch", "--nnodes", "1", "--look", look, "--rdzv-id", f"r{number}"]
        argv, env = [*run, str(script), str(tmp_path)], environment(tmp_path / "s")
        done = subprocess.run(argv, env=env, capture_output=True, timeout=60)
        log = tmp_path / "s" / f"r{number}" / "logs" / "node-0.log"
        said.append((done.returncode, done.stdout, sorted(log.read_bytes())))
        assert b"\r 10%\r 20%\ndone" in done.stderr
        out, err, *more, _ = json.loads((tmp_path / "seen-0").read_text())
        found.append((out[:5], err[:5], *more, [*log.parent.glob("rank-*.log")]))
    assert said[0] == said[1]
    assert said[0][:2] == (0, bytes(range(256)) * 999 + b"no end")
    assert found[0] == ("pipe:", "pipe:", None, None, [])
    assert not any(one == other for one, other in zip(*found, strict=True)), found[1]
