"""Ranks of a real program, moved to their own streams by the hook; no torch is in it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.worker.programs.started import Recording
from worker.contracts.framework import HOOK
from worker.contracts.framework import PROGRAMS as OURS
from worker.look.site import sitecustomize
from worker.program import rank_streams
from worker.program.ending import Ending
from worker.program.output import LAUNCHER, Source
from worker.program.process import Program
from worker.program.rank_streams import RankStreams

RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, "LOCAL_RANK": n}) for n in "01"]
codes = [rank.wait() for rank in ranks]
print("launcher", *codes)
"""
SAYS = """
import os, sys
print("out", os.environ["LOCAL_RANK"])
print("err", os.environ["LOCAL_RANK"], file=sys.stderr)
"""
PYTHON = sys.executable


async def heard(
    folder: Path,
    argv: Sequence[str],
    *,
    ranks: int = 2,
    environ: Mapping[str, str] | None = None,
) -> tuple[Recording, Ending]:
    """What a program has said whose ranks may have their own streams, and how it ended."""
    env = {"PATH": os.environ["PATH"], **(environ or {})}
    streams, output = RankStreams(folder / "look", ranks), Recording()
    env |= {"PYTHONPATH": HOOK, sitecustomize.FOLDER_VARIABLE: str(folder / "look")}
    program = await Program.start(argv, env, grace_seconds=1.0, output=output, ranks=streams)
    ending = await program.wait()
    streams.close()
    assert not (folder / "look").exists()
    return output, ending


def launcher(*rank: str) -> list[str]:
    return [PYTHON, "-c", RANKS, *rank]


async def test_each_rank_is_heard_by_itself_and_its_launcher_too(tmp_path: Path) -> None:
    output, _ = await heard(tmp_path, launcher(PYTHON, "-c", SAYS))
    assert output.of_rank(0) == (b"out 0\n", b"err 0\n")
    assert output.of_rank(1) == (b"out 1\n", b"err 1\n")
    assert output.of_rank(None) == (b"launcher 0 0\n", b"")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
async def test_a_rank_without_the_hook_shares_the_programs_output(
    flag: str, tmp_path: Path
) -> None:
    output, _ = await heard(tmp_path, launcher(PYTHON, flag, "-c", SAYS))
    assert sorted(output.of_rank(None)[0].split(b"\n")[:2]) == [b"out 0", b"out 1"]
    assert (output.of_rank(0), output.of_rank(1)) == ((b"", b""), (b"", b""))


async def test_what_a_rank_starts_or_becomes_speaks_for_it(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "if not os.fork(): os.write(1, b'forked\\n'); os._exit(0)\n"
        "os.wait(); subprocess.run([sys.executable, '-c', 'print(1)'])\n"
        "os.execlp('sh', 'sh', '-c', 'echo became; echo sh >&2')\n"
    )
    output, _ = await heard(tmp_path, launcher(PYTHON, "-c", code))
    assert output.of_rank(0) == output.of_rank(1) == (b"forked\n1\nbecame\n", b"sh\n")


async def test_what_is_redirected_stays_where_it_is(tmp_path: Path) -> None:
    script = f'{PYTHON} -c "$0" > {tmp_path}/$LOCAL_RANK'
    output, _ = await heard(tmp_path, launcher("sh", "-c", script, SAYS))
    assert [(tmp_path / n).read_bytes() for n in "01"] == [b"out 0\n", b"out 1\n"]
    assert (output.of_rank(0), output.of_rank(1)) == ((b"", b"err 0\n"), (b"", b"err 1\n"))
    both = f'{PYTHON} -u -c "$0" 2>&1'
    output, _ = await heard(tmp_path, launcher("sh", "-c", both, SAYS))
    assert output.of_rank(0) == (b"out 0\nerr 0\n", b"")
    piped = f'{PYTHON} -c "$0" | cat'
    output, _ = await heard(tmp_path, launcher("sh", "-c", piped, SAYS))
    assert sorted(output.of_rank(None)[0].split(b"\n")[:2]) == [b"out 0", b"out 1"]


async def test_a_rank_that_is_started_again_is_heard_again(tmp_path: Path) -> None:
    script = 'for n in 1 2 3; do "$0" -c "print($n)"; done; echo end'
    argv = ["sh", "-c", f"LOCAL_RANK=0; export LOCAL_RANK; {script}", PYTHON]
    output, _ = await heard(tmp_path, argv)
    assert output.of_rank(0) == (b"1\n2\n3\n", b"")
    assert output.of_rank(None) == (b"end\n", b"")


async def test_what_numbers_another_launchers_ranks_numbers_none_here(tmp_path: Path) -> None:
    """srun has started the agent: torchrun itself is no rank."""
    environ = {"SLURM_LOCALID": "0"}
    output, _ = await heard(tmp_path, launcher(PYTHON, "-c", SAYS), environ=environ)
    assert output.of_rank(None) == (b"launcher 0 0\n", b"")
    assert output.of_rank(1) == (b"out 1\n", b"err 1\n")
    output, _ = await heard(tmp_path, [PYTHON, "-c", SAYS], environ={"LOCAL_RANK": "1"})
    assert output.of_rank(None) == (b"out 1\n", b"err 1\n")


async def test_a_rank_beyond_those_with_streams_shares_the_programs_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_streams, "MOST_RANKS", 1)
    output, _ = await heard(tmp_path, launcher(PYTHON, "-c", SAYS), ranks=4_096)
    assert output.of_rank(0) == (b"out 0\n", b"err 0\n")
    assert output.of_rank(None)[1] == b"err 1\n"


async def test_all_of_it_comes_complete_and_in_order(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "for n in range(20_000): print(os.environ['LOCAL_RANK'], n, 'x' * (n % 90))\n"
    )
    output, _ = await heard(tmp_path, launcher(PYTHON, "-c", code))
    for rank in range(2):
        wanted = "".join(f"{rank} {n} {'x' * (n % 90)}\n" for n in range(20_000)).encode()
        assert output.of_rank(rank) == (wanted, b"")
    lines = output.of("stdout").decode().splitlines()
    assert {line.split()[0] for line in lines[:-1]} == {"0", "1"}  # no line is cut into another


@pytest.mark.real_time
async def test_a_process_that_escapes_with_a_stream_is_waited_for_a_moment_only(
    tmp_path: Path,
) -> None:
    held = (
        "import os, time\n"
        "print('here', flush=True)\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid(); time.sleep(60)\n"
    )
    began = time.monotonic()
    output, ending = await heard(tmp_path, launcher(PYTHON, "-c", held))
    assert (output.of_rank(0)[0], ending.exit_code) == (b"here\n", 0)
    assert time.monotonic() - began < 20.0


@pytest.mark.real_time
def test_without_a_reader_a_rank_neither_waits_nor_is_moved(tmp_path: Path) -> None:
    streams, (reader, writer) = RankStreams(tmp_path / "look", 1), os.pipe()
    streams.announce({reader: "stdout"}, {})
    for fd in streams.take_readers():
        os.close(fd)
    streams.release()
    env = {"PYTHONPATH": HOOK, "LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": str(tmp_path / "look")}
    subprocess.run([PYTHON, "-c", "print('here')"], stdout=writer, env=env, timeout=30, check=True)
    assert os.read(reader, 100) == b"here\n"
    for fd in (reader, writer):
        os.close(fd)
    streams.close()


@pytest.mark.real_time
def test_a_rank_whose_agent_is_killed_meets_the_end_of_its_pipe(tmp_path: Path) -> None:
    streams, (reader, writer) = RankStreams(tmp_path / "look", 1), os.pipe()
    streams.announce({reader: "stdout"}, {})
    env = {"PYTHONPATH": HOOK, "LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": str(tmp_path / "look")}
    code = "import time\nwhile True: print('x' * 1000, flush=True)"
    rank = subprocess.Popen([PYTHON, "-c", code], stdout=writer, stderr=subprocess.PIPE, env=env)
    readers = streams.take_readers()
    [own] = [fd for fd, source in readers.items() if source == Source("stdout", 0)]
    os.set_blocking(own, True)
    assert os.read(own, 10) == b"x" * 10
    for fd in readers:
        os.close(fd)
    assert b"BrokenPipeError" in rank.communicate(timeout=30)[1]
    for fd in (reader, writer):
        os.close(fd)
    streams.close()


def test_where_a_folder_cannot_be_made_nothing_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()  # what another test has left is not closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="look"):
        RankStreams(tmp_path / "none" / "look", 2)
    made: list[object] = []

    def mkfifo(path: Path, mode: int) -> None:
        made.append(path)
        if len(made) == 3:
            raise OSError(28, "No space left on device")
        os.mkfifo(path, mode)

    monkeypatch.setattr(rank_streams, "os", SimpleNamespace(**{**vars(os), "mkfifo": mkfifo}))
    with pytest.raises(OSError, match="No space"):
        RankStreams(tmp_path / "look", 2)
    assert len(os.listdir("/proc/self/fd")) == before
    assert not (tmp_path / "look").exists()


def test_only_the_user_can_look_into_it(tmp_path: Path) -> None:
    streams = RankStreams(tmp_path / "look", 1)
    assert (tmp_path / "look").stat().st_mode & 0o777 == 0o700
    assert [p.stat().st_mode & 0o777 for p in sorted((tmp_path / "look").iterdir())] == [0o600] * 3
    streams.close()


async def test_the_starter_of_processes_gives_each_its_streams(tmp_path: Path) -> None:
    """Also to what is no Python."""
    argv = [PYTHON, "-I", "-S", f"{OURS}/processes.py", "--rank", "4", "--processes", "2"]
    argv += ["--world", "6", "--node", "1", "--grace", "1", "--"]
    output, _ = await heard(tmp_path, [*argv, "sh", "-c", "echo out $LOCAL_RANK; echo err >&2"])
    assert output.of_rank(0) == (b"out 0\n", b"err\n")
    assert output.of_rank(1) == (b"out 1\n", b"err\n")
    output, ending = await heard(tmp_path, [*argv, "sh", "-c", "exit $LOCAL_RANK"])
    assert (ending.exit_code, output.of_rank(1)) == (1, (b"", b""))
    assert b"process 5 (local rank 1) failed first" in output.of_rank(None)[1]
    output, ending = await heard(tmp_path, [*argv, "no-such-program"])
    assert b"'no-such-program' cannot be started" in output.of_rank(None)[1]
    piped = ["sh", "-c", '"$@" 2>&1 | cat', "sh", *argv, PYTHON, "-c", SAYS]
    output, _ = await heard(tmp_path, piped)
    lines = sorted(output.of_rank(None)[0].splitlines())
    assert lines == [b"err 0", b"err 1", b"out 0", b"out 1"]


LAUNCHES = """
import os, subprocess, sys
print("own", file=sys.stderr, flush=True)
os.write(2, b"from C\\n")
env = {**os.environ, "LOCAL_RANK": "0"}
code = "import sys; print('rank', file=sys.stderr)"
for flag in ([], ["-I"]):
    subprocess.run([sys.executable, *flag, "-c", code], env=env)
subprocess.run(["sh", "-c", "echo sh >&2"])
if not os.fork(): print("forked", file=sys.stderr); os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("name", "own"), [("torchrun", True), ("accelerate", True), ("train.py", False)]
)
async def test_only_what_a_launcher_itself_prints_comes_by_its_own_stream(
    name: str, own: bool, tmp_path: Path
) -> None:
    """What it starts or becomes shares the program's pipe, whatever it looks like."""
    (tmp_path / name).write_text(LAUNCHES)
    output, _ = await heard(tmp_path, [PYTHON, str(tmp_path / name)])
    assert output.of_rank(LAUNCHER) == (b"", b"own\n" if own else b"")
    common = b"from C\nrank\nsh\nforked\n"
    assert output.of_rank(None) == (b"", common if own else b"own\n" + common)
    assert output.of_rank(0) == (b"", b"rank\n")


@pytest.mark.parametrize(
    ("module", "own", "flags"),
    [
        ("torch.distributed.run", True, "-um MODULE"),
        ("torch.distributed.run", True, "-mMODULE"),
        ("torch.distributed.run", True, "-u -W error -OmMODULE"),
        ("torch.distributed.other", False, "-m MODULE"),
    ],
)
async def test_a_launcher_that_is_a_module_has_its_own_stream_and_a_rank_keeps_its(
    module: str, own: bool, flags: str, tmp_path: Path
) -> None:
    folder = tmp_path / "torch" / "distributed"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / f"{module.rpartition('.')[2]}.py").write_text(LAUNCHES)
    environ = {"PYTHONDONTWRITEBYTECODE": "1"}
    argv = ["sh", "-c", f'cd {tmp_path}; exec {PYTHON} "$@"', "sh"]
    argv += flags.replace("MODULE", module).split()
    output, _ = await heard(tmp_path, argv, environ=environ)
    assert output.of_rank(LAUNCHER) == (b"", b"own\n" if own else b"")
    output, _ = await heard(tmp_path, argv, environ=environ | {"SLURM_LOCALID": "0"})
    assert output.of_rank(LAUNCHER) == (b"", b"own\n" if own else b"")
    rank = ["sh", "-c", f"export LOCAL_RANK=1; {argv[2]}", *argv[3:]]
    output, _ = await heard(tmp_path, rank, environ=environ)
    assert (output.of_rank(1)[1][:4], output.of_rank(LAUNCHER)) == (b"own\n", (b"", b""))
