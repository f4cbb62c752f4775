"""The hook in a Python process: what it leaves alone, that the user's own still runs, its parts."""

from __future__ import annotations

import ast
import faulthandler
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.contracts.framework import HOOK
from worker.look.site import sitecustomize
from worker.program import process_table

SEES = """
import os, sys
site = sys.modules.get("sitecustomize")
path = [folder for folder in sys.path if folder]
print([path, os.path.dirname(site.__file__) if site else "", sorted(sys.modules)])
"""
PYTHONS = [found for n in range(8, 15) if (found := shutil.which(f"python3.{n}"))]


def run(
    *flags: str, python: str = sys.executable, code: str = SEES, **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_", "RDZV_"))}
    return subprocess.run(
        [python, *flags, "-c", code], capture_output=True, text=True, env={**kept, **more}
    )


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with a sitecustomize of the user's."""
    (tmp_path / "sitecustomize.py").write_text("mine = 1\n")
    return tmp_path


@pytest.mark.parametrize("flags", [(), ("-S",), ("-I",), ("-E",), ("-P",)])
def test_a_process_sees_no_difference(flags: tuple[str, ...], theirs: Path) -> None:
    """With and without the user's own sitecustomize, in a rank and elsewhere."""
    if flags == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no -P")
    for rank in ({}, {"LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": "/nowhere"}):
        for before in ("", str(theirs)):
            bare = run(*flags, PYTHONPATH=before)
            ours = run(*flags, PYTHONPATH=":".join(filter(None, (HOOK, before))), **rank)
            seen = ast.literal_eval(ours.stdout)
            if flags == ("-S",):  # then Python runs nothing that could take it off
                seen[0].remove(HOOK)
            assert seen == ast.literal_eval(bare.stdout)
            assert ours.stderr == ""
            if not flags:
                assert seen[1] == before


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_every_python_can_run_it(python: str, theirs: Path) -> None:
    if run(python=python, code="").returncode:
        pytest.skip("it is named, but not installed")
    rank = {"LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": str(theirs / "nowhere")}
    done = run(
        python=python, code=f"{SEES}\nassert site.mine", PYTHONPATH=f"{HOOK}:{theirs}", **rank
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mine", ["raise ValueError(3)", "import nothing_of_this_name", "1 +"])
def test_what_is_wrong_with_the_users_own_is_said_as_without_the_hook(
    mine: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(mine)
    bare, ours = run(PYTHONPATH=str(tmp_path)), run(PYTHONPATH=f"{HOOK}:{tmp_path}")
    assert "sitecustomize" in bare.stderr
    assert (ours.stdout, ours.stderr) == (bare.stdout, bare.stderr)


def test_a_child_finds_it_again(theirs: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-v', '-c', ''])"
    found = run(code=child, PYTHONPATH=HOOK).stderr
    assert f"{HOOK}/sitecustomize.py" in found or f"{HOOK}/__pycache__/sitecustomize" in found


@pytest.mark.parametrize(
    "text", [None, "", "1:2", "1:2 3:4\n", "1:2 3:4\n\n", "\n\n", "\xff", "x" * 9_000]
)
@pytest.mark.parametrize("rank", ["0", "", "-1", "x", "../0", "99999", "\u0663"])
def test_what_it_does_not_understand_it_leaves(text: str | None, rank: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / sitecustomize.STREAMS_FILE).write_text(text)
    look = {"LOCAL_RANK": rank, "RDZV_LOOK_FOLDER": str(tmp_path)}
    for path, file in (("RDZV_LOOK_FOLDER", str(tmp_path)), ("RDZV_LOOK_FOLDER", "off")):
        done = run(code="print(1)", PYTHONPATH=HOOK, **{**look, path: file})
        assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_start_takes_hardly_longer(tmp_path: Path) -> None:
    """What takes time at a start is what is imported: in a rank that is one module in C."""
    (tmp_path / sitecustomize.STREAMS_FILE).write_text("1:2 3:4\nLOCAL_RANK\n")
    rank = {"LOCAL_RANK": "0", "RDZV_LOOK_FOLDER": str(tmp_path)}
    bare, ours = (run(**more).stdout for more in ({}, {"PYTHONPATH": HOOK, **rank}))
    assert (tmp_path / "0.stacks").exists()
    assert set(ast.literal_eval(ours)[2]) - set(ast.literal_eval(bare)[2]) == {"faulthandler"}


# --- its parts, by value --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "words", "is_launcher"),
    [
        ("/x/torchrun", "", True),
        ("accelerate-launch", "", True),
        ("/x/torchrun.py", "", False),
        ("", "", False),
        ("-m", "python -m torch.distributed.run t.py", True),
        ("-m", "python -mtorch.distributed.launch", True),
        ("-m", "python -um accelerate.commands.launch", True),
        ("-m", "python -Xm torch.distributed.run", False),  # -X takes a value
        ("-m", "python -m pack torch.distributed.run", False),
        ("-m", "python -m", False),
        ("-m", "", False),
        ("-c", "python -m torch.distributed.run", False),
    ],
)
def test_a_launcher_is_known_by_its_script_or_module(
    argv: str, words: str, is_launcher: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [argv])
    monkeypatch.setattr(sys, "orig_argv", words.split())
    assert sitecustomize._is_launcher() is is_launcher


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Reading ends of a rank's and a launcher's FIFOs in this folder; the program's own two pipes
    are named in it."""
    made = [*os.pipe(), *os.pipe()]
    own = [sitecustomize.identity(fd) for fd in made[1::2]]
    names = "SLURM_LOCALID LOCAL_RANK"
    (tmp_path / sitecustomize.STREAMS_FILE).write_text(f"{' '.join(own)}\n{names}\n")
    read = []
    for name in ("5.stdout", "5.stderr", "launcher.stderr"):
        os.mkfifo(tmp_path / name)
        read.append(os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK))
    for name in sitecustomize.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield [made[1], made[3], *read]
    for fd in (*made, *read):
        os.close(fd)


def test_a_stream_of_its_own_stands_in_for_the_programs_pipe_alone(
    tmp_path: Path, pipes: list[int]
) -> None:
    out, err, _, errors, _ = pipes
    own, names = sitecustomize.read_streams(str(tmp_path))
    assert names == ["SLURM_LOCALID", "LOCAL_RANK"]
    os.set_blocking(err, False)
    found = []
    for rank, fd in (("5", out), ("5", err), (sitecustomize.LAUNCHER, err)):
        found.append(sitecustomize.open_own(str(tmp_path), own, rank, fd))
        os.write(found[-1], f"{rank}\n".encode())
    assert [os.read(fd, 100) for fd in pipes[2:]] == [b"5\n", b"5\n", b"launcher\n"]
    assert [os.get_blocking(fd) for fd in found] == [True, False, False]
    assert not any(os.get_inheritable(fd) for fd in found)
    for fd in found:
        os.close(fd)
    other = os.open(os.devnull, os.O_WRONLY)  # redirected by somebody
    os.close(errors)  # nobody reads it
    for rank, fd in (("5", other), ("x", out), ("6", out), ("5", err)):
        assert sitecustomize.open_own(str(tmp_path), own, rank, fd) == -1
    os.close(other)
    pipes[3] = os.open(tmp_path / "5.stderr", os.O_RDONLY | os.O_NONBLOCK)
    both = [own[0], own[0]]  # 2>&1
    fd = sitecustomize.open_own(str(tmp_path), both, "5", out)
    assert sitecustomize.identity(fd) == sitecustomize.identity(pipes[2])
    os.close(fd)


class Hooked:
    """What the hook has begun in this process, where nothing of it takes effect."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[object] = []
        self.claims = True
        self.folder = str(folder)
        monkeypatch.setenv(sitecustomize.FOLDER_VARIABLE, self.folder)
        monkeypatch.setattr(sys, "argv", ["train.py"])
        say = self.done.append
        for name in ("_move_streams", "own_stderr", "_catch_signal"):
            monkeypatch.setattr(
                sitecustomize, name, lambda *given, n=name: say((n, *map(self._short, given)))
            )
        monkeypatch.setattr(sitecustomize, "launcher_stream", lambda folder: 9)
        monkeypatch.setattr(sitecustomize, "_claim", lambda folder, rank: self.claims)
        monkeypatch.setattr(
            sitecustomize, "_let_look", lambda folder, rank, imports: say(("looks", rank))
        )

        def wait(_: object, modules: object, begins: sitecustomize.Beside) -> None:
            say((modules, begins.name, begins.where[1], begins.pid))

        monkeypatch.setattr(sitecustomize.Imports, "wait", wait)

    def _short(self, given: object) -> object:
        return given.replace(self.folder, "") if isinstance(given, str) else given

    def by(self) -> list[object]:
        self.done.clear()
        sitecustomize.install()
        return [*self.done]


def test_each_kind_of_process_has_its_part_of_the_hook(
    tmp_path: Path, pipes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked = Hooked(tmp_path, monkeypatch)
    own, _ = sitecustomize.read_streams(str(tmp_path))
    stacks = [("_catch_signal", "/launcher.stacks")]
    noting = (sitecustomize.WORLDS, "noting.py", "5", 0)
    assert hooked.by() == stacks
    monkeypatch.setattr(sys, "argv", ["/bin/torchrun"])
    assert hooked.by() == [("own_stderr", 9), *stacks]
    # One that is itself a rank has what a rank has.
    monkeypatch.setenv("LOCAL_RANK", "5")
    moved = ("_move_streams", "", own, "5")
    assert hooked.by() == [moved, ("looks", "5"), noting]
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert hooked.by() == [moved, ("looks", "5"), noting]
    hooked.claims = False
    assert hooked.by() == [moved, ("_catch_signal", "/5.stacks"), noting]
    monkeypatch.setenv("SLURM_LOCALID", "4")  # named before
    assert hooked.by()[0] == ("_move_streams", "", own, "4")
    monkeypatch.delenv("SLURM_LOCALID")
    monkeypatch.setenv("LOCAL_RANK", "5x")
    assert hooked.by() == [("_move_streams", "", own, "5x"), *stacks]
    monkeypatch.delenv(sitecustomize.FOLDER_VARIABLE)
    assert hooked.by() == []


def test_a_launchers_own_stream_is_its_errors_alone(
    tmp_path: Path, pipes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sitecustomize, "open_own", lambda *given: asked.append(given))
        sitecustomize.launcher_stream(str(tmp_path))
    assert [given[2:] for given in asked] == [("launcher", 2)]
    assert sitecustomize.launcher_stream(str(tmp_path / "none")) == -1
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "x")
    assert sitecustomize.launcher_stream(str(tmp_path)) == -1


def test_what_a_launcher_forks_has_its_errors_where_ranks_write() -> None:
    """Python's own errors go to the launcher's stream, as soon as a line is whole."""
    code = (
        "import os, sys; from worker.look.site import sitecustomize as hook\n"
        "r, w = os.pipe(); was = sys.stderr; os.write(2, b'to 2;')\n"
        "hook.own_stderr(-1); assert sys.stderr is was\n"
        "hook.own_stderr(w); sys.stderr.write('own\\n')\n"
        "assert (sys.stderr.fileno(), os.get_inheritable(1002)) == (1002, False)\n"
        "assert (sys.stderr.encoding, sys.stderr.errors) == (was.encoding, was.errors)\n"
        "pid = os.fork()\n"
        "if pid == 0: sys.stderr.write('child\\n'); os._exit(0)\n"
        "os.waitpid(pid, 0); sys.stderr.write('end\\n'); print(os.read(r, 100))"
    )
    done = run(code=code)
    assert (done.stdout, done.stderr) == ("b'own\\nend\\n'\n", "to 2;child\n")


@pytest.mark.parametrize(
    ("known", "lives", "is_it"),
    [
        (None, {}, True),
        ("77 33 41", {77: "33"}, False),
        ("77 33 41", {}, True),  # it has ended
        ("77 33 41", {77: "34"}, True),  # its number was used again
        ("OWN 900 41", {}, True),
    ],
)
def test_a_rank_is_the_first_of_its_processes_that_lives(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: str | None,
    lives: dict[int, str],
    is_it: bool,
) -> None:
    own, here = os.getpid(), tmp_path / "5.here"
    monkeypatch.setattr(sitecustomize, "started", lambda pid: ({own: "900"} | lives).get(pid, ""))
    if known:
        here.symlink_to(known.replace("OWN", str(own)))
    assert sitecustomize._claim(str(tmp_path), "5") is is_it
    words = f"{own} 900 {signal.SIGRTMIN + 7}" if is_it else known
    assert os.readlink(here) == words
    assert [path.name for path in tmp_path.iterdir()] == ["5.here"]


def test_when_a_process_was_started_is_known_as_long_as_it_runs() -> None:
    own = process_table.read_process(os.getpid())
    assert own is not None
    assert sitecustomize.started(os.getpid()) == str(own.started)
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it waits to be reaped
        assert sitecustomize.started(ended.pid) == ""
    assert sitecustomize.started(ended.pid) == ""


PUTS = """
import os
from worker.look.site.sitecustomize import put_high
reader, writer = os.pipe()
os.dup2(reader, 1000)
first, second = put_high(os.dup(writer), 0), put_high(os.dup(writer), 3)
print(first, second, os.get_inheritable(first), os.get_inheritable(second))
os.dup2(reader, 60)
try:
    put_high(os.dup(writer), 0)
except OSError:
    print("no room")
for fd in (first, second, writer):
    os.close(fd)
print(os.read(reader, 1))
"""


def test_an_open_file_is_put_out_of_the_programs_way() -> None:
    """And closed where there is no room: its other end sees nothing that was left."""
    assert run(code=PUTS).stdout.splitlines() == ["250 1003 False False", "no room", "b''"]


@pytest.mark.parametrize(
    ("handler", "with_gil", "caught"),
    [(signal.SIG_DFL, True, True), (signal.SIG_IGN, True, False), (signal.SIG_DFL, False, False)],
)
def test_a_stack_is_written_where_nobody_else_has_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: Any, with_gil: bool, caught: bool
) -> None:
    number, asked = signal.SIGRTMIN + sitecustomize.SIGNAL, list[Any]()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: with_gil, raising=False)
    monkeypatch.setattr(
        faulthandler, "register", lambda n, **how: asked.append((n, how.pop("file"), how))
    )
    monkeypatch.setattr(sitecustomize, "put_high", lambda fd, offset: (fd, offset))
    before = signal.signal(number, handler)
    sitecustomize._catch_signal(str(tmp_path / "5.stacks"))
    signal.signal(number, before)
    assert (tmp_path / "5.stacks").exists() is caught
    if caught:
        [(found, (fd, offset), how)] = asked
        assert (found, offset, how) == (number, 0, {"all_threads": False, "chain": False})
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        assert flags & os.O_APPEND
        assert (tmp_path / "5.stacks").stat().st_mode & 0o777 == 0o600
        os.close(fd)
    else:
        assert asked == []


class Began(sitecustomize.Beside):
    """Counts how often it is started."""

    count = 0

    def start(self) -> None:
        self.count += 1


def test_what_waits_for_an_import_begins_with_the_first_of_its_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    imports, one, other, now = sitecustomize.Imports(), Began("a.py"), Began("b.py"), Began("c.py")
    imports.wait(("torch.distributed",), one)
    imports.wait(("torch.distributed", "jax"), other)
    imports.wait(("os", "jax"), now)
    assert (sys.meta_path[0], sys.meta_path.count(imports), now.count) == (imports, 1, 1)
    for name in ("torch", "jax", "jax"):
        imports.find_spec(name)
    assert (one.count, other.count, imports in sys.meta_path) == (0, 1, True)
    imports.find_spec("torch.distributed")
    imports.find_spec("torch.distributed")
    assert (one.count, other.count, imports in sys.meta_path) == (1, 1, False)
