"""`rdzv.launch` and what it gives, by what the command says: nothing is started.

The threads of a launch run one after the other here, each when it is started.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rdzv
from rdzv import command, launching
from rdzv import run as run_module
from rdzv.launching import Launcher
from rdzv.run import Node, Result, Run, Status, state_home

LAUNCH = {"kind": "launch", "run": "r7", "folder": "/states/r7"}
RESULT = {
    "kind": "result",
    "status": "failed",
    "exit_code": 81,
    "exit_code_of": "rdzv",
    "message": "node 3 was lost",
    "hint": "see its log",
    "code": "node_lost",
    "cause": "gpu_lost",
    "rank": 26,
    "node": 3,
    "hostname": "h5",
    "log": "/logs/3",
    "tail": ["first", "last"],
}
FAILED = Result(
    status="failed",
    exit_code=81,
    exit_code_of="rdzv",
    message="node 3 was lost",
    hint="see its log",
    code="node_lost",
    cause="gpu_lost",
    rank=26,
    node=3,
    hostname="h5",
    log="/logs/3",
    tail=("first", "last"),
    details=RESULT,
)


class Lines:
    """What a process writes, line by line; between two of them the test looks."""

    def __init__(self, *lines: Any) -> None:
        self._lines, self.closed = lines, False

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            if callable(line):
                line()
            else:
                yield line if isinstance(line, bytes) else f"{json.dumps(line)}\n".encode()


class Process:
    """What is started in the place of `rdzv`."""

    def __init__(self, out: Lines, err: Lines | None = None, code: int = 0) -> None:
        self.stdout, self.stderr, self.code, self.returncode = out, err or Lines(), code, code
        self.done: list[str] = []

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.done.append("left")

    def wait(self) -> int:
        assert self.stdout.closed
        return self.code

    def terminate(self) -> None:
        self.done.append("terminate")

    def kill(self) -> None:
        self.done.append("kill")


class Threads(list[Any]):
    """Each that was started, with how long it is waited for."""

    def made(self, *, target: Any, name: str, args: Any = (), daemon: bool) -> Any:
        def start() -> None:
            self.append((name, daemon))
            target(*args)

        return SimpleNamespace(start=start, join=self.append)


class World:
    """What is started, and by what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[Any] = []
        self.threads = Threads()
        self.next: Process | Exception = Process(Lines(LAUNCH, RESULT))
        parts = {"Event": threading.Event, "Lock": threading.Lock, "Thread": self.threads.made}
        monkeypatch.setattr(launching, "threading", SimpleNamespace(**parts))
        monkeypatch.setattr(launching, "start", self.start)
        for name in ("RDZV_TOKEN", "RDZV_TOKEN_FILE"):
            monkeypatch.delenv(name, raising=False)

    def start(self, *how: Any) -> Process:
        """In the place of the command."""
        self.started.append(how)
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def launch(self, *lines: Any, err: Any = (), code: int = 0, **how: Any) -> Run:
        """A launch that says this."""
        self.next = Process(Lines(*lines), Lines(*err), code)
        return rdzv.launch("train.py", **{"on_output": len, **how})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def living() -> Launcher:
    """The one that is just now at work."""
    (one,) = launching._living
    return one


# ---- a launch -----------------------------------------------------------------------------------


def test_all_that_a_launch_says_is_told_and_no_output_before_it_has_its_name(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    def on_event(event: Any) -> None:
        told.append((event["kind"], living().begun.is_set()))
        if event["kind"] == "joined":
            raise KeyboardInterrupt

    def on_output(line: str) -> None:
        told.append(line)
        if line == "last before":
            raise ValueError

    joined = {"kind": "joined", "phase": "gathering", "reason": "n", "epoch": 0}
    go = {"kind": "go", "phase": "running", "reason": "all run", "epoch": 4}
    out = Lines(
        *(b"a help text\n", [1], {"phase": "early"}),
        lambda: told.append(living().launched),
        LAUNCH,
        lambda: told.append(living().begun.is_set()),
        lambda: living()._say("rest"),
        *(joined, b"5\n", go, {"kind": "look"}, RESULT),
    )
    err = Lines(b"first\r half\n", b"last before\n", b"\xff\n")
    world.next = Process(out, err, 81)
    run = rdzv.launch(
        ["train.py", 3, Path("x y")],
        nnodes="2:5",
        nproc_per_node=[2, 1, 4],
        framework="env",
        scheduler="slurm",
        hostlist=["n3", "n1"],
        rdzv_id="r7",
        max_restarts=6,
        options={"strict": True, "join_timeout": 9},
        cwd="/there",
        on_event=on_event,
        on_output=on_output,
    )
    assert (run.name, run.folder, run.done) == ("r7", "/states/r7", True)
    assert told == [
        {},
        *("first\r half", "last before", "\ufffd", "a help text", "[1]", '{"phase": "early"}'),
        *(("launch", False), True, "rest", ("joined", True), "5"),
        *(("go", True), ("look", True), ("result", True)),
    ]
    assert run.wait() == FAILED
    launcher = run._launcher
    assert launcher is not None
    assert (launcher.event, launcher.result, launcher.exit_code) == (go, RESULT, 81)
    assert (out.closed, err.closed, world.next.done) == (True, True, [])
    assert (launching._living, launcher.is_own, launcher.was_stopped) == (set(), True, False)
    assert world.threads == [("rdzv-launch", True), ("rdzv-output", True), 1.0]
    words = ["--nnodes=2:5", "--nproc-per-node=2,1,4", "--framework=env", "--scheduler=slurm"]
    words += ["--hostlist=n3,n1", "--rdzv-id=r7", "--max-restarts=6", "--strict"]
    begin = ["launch", "--json", "--parent", str(os.getpid())]
    expected = [*begin, *words, "--join-timeout=9", "--", "train.py", "3", "x y"]
    assert world.started == [(expected, subprocess.PIPE, "/there", None)]
    logged = [record.message for record in caplog.records]
    assert [line.endswith("failed; the run continues") for line in logged] == [True, True]
    with pytest.raises(rdzv.RunFailed) as raised:
        run.wait(check=True)
    error = raised.value
    assert (error.exit_code, error.hint, error.args) == (81, "see its log", (FAILED,))


def test_without_a_listener_its_output_is_on_standard_error(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.launch(LAUNCH, lambda: living()._say("one"), RESULT, err=(b"zero\n",), on_output=None)
    assert capsys.readouterr() == ("", "zero\none\n")
    monkeypatch.setattr(sys, "stderr", None)
    assert world.launch(LAUNCH, b"lost\n", RESULT, on_output=None).done
    monkeypatch.setattr(sys, "stderr", closed := io.StringIO())
    closed.close()
    assert world.launch(LAUNCH, b"lost\n", RESULT, on_output=None).done


def test_a_launch_that_is_told_to_stop_is_told_once_it_is_there_and_not_by_a_fork(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        living().stop()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            living().stop()

    run = world.launch(LAUNCH, stop, code=-signal.SIGTERM)
    assert isinstance(world.next, Process)
    assert world.next.done == ["terminate"]
    assert (run.wait().status, run.wait().code, run.wait().exit_code) == (
        *("cancelled", "cancelled"),
        143,
    )
    assert run.wait().message == "run 'r7' was cancelled before it began"
    whole = world.start

    def slow(*how: Any) -> Any:
        living().stop()  # while it is started
        return whole(*how)

    monkeypatch.setattr(launching, "start", slow)
    run = world.launch(LAUNCH, RESULT)
    assert world.next.done == ["terminate"]
    assert run.wait() == FAILED
    assert run._launcher is not None
    assert run._launcher.was_stopped is False  # it has ended in order


def test_whoever_exits_tells_all_its_launches_to_stop_before_it_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def one(name: str, *, is_own: bool = True) -> Any:
        wait = SimpleNamespace(wait=lambda: done.append(f"{name} ended"))
        return SimpleNamespace(stop=lambda: done.append(name), ended=wait, is_own=is_own)

    ours = [one("a"), one("b", is_own=False), one("c")]
    monkeypatch.setattr(launching, "_living", ours)
    launching._end_all()
    assert done == ["a", "c", "a ended", "c ended"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_who_is_interrupted_before_the_launch_has_its_name_leaves_no_run(
    world: World, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    stopped: list[bool] = []

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise error

    monkeypatch.setattr("rdzv.launching.threading.Event", Interrupted)
    monkeypatch.setattr(Launcher, "stop", lambda self: stopped.append(True))
    with pytest.raises(type(error)):
        world.launch(LAUNCH, RESULT)
    assert stopped == [True]


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (64, [*[b"x\n"] * 300, b"rdzv: no such option\n", b"      see --help\n"], "no such option"),
        (-9, [b"rdzv: hello\n"], "'rdzv launch' was killed by signal 9"),
        (0, [b"usage\n"], "'rdzv launch' started no run"),
        (5, [], "the command ended with exit code 5"),
    ],
)
def test_why_there_is_no_run(world: World, code: int, said: list[bytes], expected: str) -> None:
    with pytest.raises(rdzv.RdzvError) as raised:
        world.launch(err=said, code=code)
    assert raised.value.message == expected
    assert raised.value.exit_code == {0: 64, -9: 137}.get(code, code)
    world.next = PermissionError(13, "no")
    with pytest.raises(PermissionError):
        rdzv.launch("train.py")
    assert launching._living == set()


def test_a_launch_that_ends_without_a_result_is_said_to_have(world: World) -> None:
    clean = "clean up with: rdzv cancel r7"
    gone = "run 'r7' has ended without a result: its launcher was killed"
    refused = [*[b"x\n"] * 300, b"rdzv: why\n", b"      what to do\n"]
    assert world.launch(LAUNCH, code=-9).wait() == Result("failed", 137, "rdzv", gone, clean)
    found = world.launch(LAUNCH, err=refused, code=85).wait()
    assert found == Result("failed", 85, "rdzv", "why", "what to do")

    def breaks() -> None:
        raise OSError(5, "no more")

    found = world.launch(LAUNCH, breaks).wait()
    words = "its launch cannot be followed: OSError(5, 'no more')"
    assert found == Result("failed", 1, "rdzv", f"{gone.partition(': ')[0]}: {words}", clean)


# ---- what is asked of a run ---------------------------------------------------------------------


class Asked:
    """The command `rdzv`, which is asked for lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[list[str]] = []
        self.answers: list[Any] = []
        monkeypatch.setattr(run_module, "lines_of", self._lines_of)

    def _lines_of(self, words: list[str]) -> Iterator[str]:
        self.words.append(words)
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        yield from answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


STANDS = {"phase": "arming", "reason": "2 of 3", "epoch": 3, "slots": []}


def made(folder: Path, launcher: Any = None) -> Run:
    folder.mkdir(exist_ok=True, parents=True)
    return Run(folder.name, str(folder), launcher)


def launched(*, ended: bool = False, **more: Any) -> Any:
    over = threading.Event()
    if ended:
        over.set()
    stopped: list[int] = []
    stop = {"stop": lambda: stopped.append(1), "stopped": stopped}
    return SimpleNamespace(**{"ended": over, "event": {}, "result": {}, **stop, **more})


def test_how_a_run_stands_is_asked_while_it_goes_on(tmp_path: Path, asked: Asked) -> None:
    mine = launched()
    run = made(tmp_path / "s" / "r7", mine)
    begin = ["status", "--state-dir", str(tmp_path / "s"), "r7", "--json"]
    asked.answers = [[json.dumps(STANDS)]]
    assert run.status() == Status("arming", "2 of 3", 3, details=STANDS)
    assert asked.words == [begin]
    asked.answers = [json.dumps(STANDS, indent=1).splitlines()]
    assert run.status().details == STANDS
    no = rdzv.RdzvError("no answer")
    asked.answers = [no, no]
    assert run.status() == Status("gathering", "the launch begins", 0)
    mine.event = {"phase": "running", "reason": "n", "epoch": 7}
    assert run.status() == Status("running", "n", 7, details=mine.event)
    attached, asked.answers = made(tmp_path / "s" / "r7"), [no]
    with (tmp_path / "s" / "r7" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(rdzv.RdzvError, match="no answer"):
            attached.status()

    (tmp_path / "s" / "r7" / "table.json").write_text(json.dumps({"epoch": 9}))

    def ends(answer: Any) -> Callable[[], Any]:
        def now() -> Any:
            mine.ended.set()
            mine.result = RESULT
            return answer

        return now

    for answer in (no, ["{}"]):
        mine.ended.clear()
        asked.answers = [ends(answer)]
        over = Status("finished", "node 3 was lost", 9, FAILED, RESULT)
        assert run.status() == over
        assert run.status() == over  # and nobody is asked
        assert asked.answers == []


def test_a_run_is_cancelled_by_its_registry_or_by_its_launcher(
    tmp_path: Path, asked: Asked
) -> None:
    mine = launched()
    run = made(tmp_path / "r7", mine)
    begin = ["cancel", "--state-dir", str(tmp_path), "r7", "--reason"]
    asked.answers = [[], rdzv.RdzvError("not there yet"), []]
    run.cancel()
    assert (asked.words, mine.stopped) == ([[*begin, "from Python"]], [])
    run.cancel("enough")
    assert (asked.words[1:], mine.stopped) == ([[*begin, "enough"]], [1])
    mine.ended.set()
    run.cancel()
    assert (len(asked.words), mine.stopped) == (2, [1])
    others = made(tmp_path / "r7")
    others.cancel("by another")
    assert asked.words[2:] == [[*begin, "by another"]]
    asked.answers = [rdzv.RdzvError("no such run")]
    with pytest.raises(rdzv.RdzvError):
        others.cancel()


def test_a_with_block_waits_and_cancels_first_what_an_exception_leaves(
    tmp_path: Path, asked: Asked
) -> None:
    done: list[Any] = []
    run = made(tmp_path / "r7", launched(result=RESULT))

    def waits(seconds: float | None = None) -> bool:
        done.append("waits")
        return True

    def cancels() -> list[str]:
        done.append("cancels")
        return []

    run._launcher.ended.wait = waits  # type: ignore
    asked.answers = [cancels]
    with run as same:
        assert same is run
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    assert done == ["waits", "cancels", "waits"]
    assert asked.words[0][-1] == "ZeroDivisionError in the program that launched it"


def test_logs_are_asked_for_in_the_words_of_the_command(tmp_path: Path, asked: Asked) -> None:
    run = made(tmp_path / "r7")
    asked.answers = [["==> a log <==", "one", "==> not a title"], ["one", "two"], [], ["x"]]
    assert list(run.logs(rank=0)) == ["one", "==> not a title"]
    assert list(run.logs(node=0, lines=3)) == ["one", "two"]
    assert list(run.logs()) == []
    assert list(run.logs(follow=True)) == ["x"]
    begin = ["logs", "--state-dir", str(tmp_path), "r7"]
    assert asked.words == [
        [*begin, "--rank=0", "--lines=20"],
        [*begin, "--node=0", "--lines=3"],
        [*begin, "--all", "--lines=20"],
        [*begin, "--all", "--lines=20", "--follow"],
    ]
    with pytest.raises(ValueError, match="not both"):
        run.logs(rank=0, node=0)


def test_the_table_and_the_result_are_read_where_the_launch_keeps_them(tmp_path: Path) -> None:
    mine = launched(ended=True, result={**RESULT, "message": "as told"})
    run = made(tmp_path / "r7", mine)
    attached = made(tmp_path / "r7")
    assert (run.table(), run.wait().message) == ((), "as told")
    gone = "run 'r7' has ended without a result: its launcher was killed"
    clean = "clean up with: rdzv cancel r7"
    assert attached.wait() == Result("failed", 1, "rdzv", gone, clean)
    row = {"node": 1, "slot": 4, "hostname": "h2", "address": "10.0.0.3", "interface": "eth6"}
    rows = [{**row, "nproc_per_node": 8, "probe_port": 5}, {**row, "node": 2, "nproc_per_node": 7}]
    (tmp_path / "r7" / "table.json").write_text(json.dumps({"rows": rows, "epoch": 5}))
    nodes = (Node(1, 4, "h2", "10.0.0.3", "eth6", 8), Node(2, 4, "h2", "10.0.0.3", "eth6", 7))
    assert run.table() == attached.table() == nodes
    kept = {**RESULT, "status": "ok", "message": "as kept", "last_words": "/w"}
    (tmp_path / "r7" / "result.json").write_text(json.dumps(kept))
    for one in (run, attached):
        found = one.wait(check=True)
        assert (found.message, found.ok, found.details) == ("as kept", True, kept)
    assert attached.status() == Status("finished", "as kept", 5, attached.wait(), kept)
    (tmp_path / "r7" / "table.json").write_text("{")
    assert (attached.table(), attached.status().epoch) == ((), 0)


def test_who_attached_looks_now_and_then_and_not_beyond_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    clock = [100.0]

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 2))
        clock[0] += seconds
        if len(slept) == 6:
            held.close()

    monkeypatch.setattr(
        run_module, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    )
    run = made(tmp_path / "r7")
    assert run.done  # nobody holds it
    held = (tmp_path / "r7" / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    assert not run.done
    with pytest.raises(TimeoutError, match=r"^run 'r7' has not ended after 0.5 s; it continues$"):
        run.wait(0.5)
    assert slept == [0.2, 0.2, 0.1]
    with pytest.raises(TimeoutError):
        run.wait(0)
    assert len(slept) == 3
    run.wait()
    assert slept[3:] == [0.2, 0.2, 0.2]
    assert run.done
    run.wait(0)


def test_a_run_is_attached_to_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s" / "r7").mkdir(parents=True)
    where = rf"no run 'r7' was launched here \(looked in {tmp_path}/s"
    with pytest.raises(rdzv.RdzvError, match=where) as raised:
        rdzv.attach("r7", state_dir="s")
    assert raised.value.exit_code == 64
    (tmp_path / "s" / "r7" / "launch.json").touch()
    run = rdzv.attach("r7", state_dir="s")
    assert (run.name, run.folder, run._launcher) == ("r7", str(tmp_path / "s" / "r7"), None)
    for name in ("../s/r7", ""):
        with pytest.raises(rdzv.RdzvError):
            rdzv.attach(name, state_dir="s")
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path / "s"))
    assert rdzv.attach("r7").folder == run.folder


def test_a_run_is_looked_for_in_the_places_that_are_this_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    real = os.lstat
    owners = {"mine": 4711, "other": 4712}

    def lstat(path: str) -> Any:
        about = real(path)
        owner = owners.get(Path(path).parent.name, 0)
        return SimpleNamespace(st_uid=owner, st_mode=about.st_mode)

    monkeypatch.setattr(os, "lstat", lstat)
    home = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
    usual = str(tmp_path / "xdg" / "rdzv")
    places = {}
    for name in ("mine", "other"):
        folder = tmp_path / name / "rdzv-state-4711"
        (folder / "r").mkdir(parents=True)
        folder.chmod(0o700)
        places[name] = {**home, "TMPDIR": str(tmp_path / name)}
    spare = str(tmp_path / "mine" / "rdzv-state-4711")
    assert state_home(places["mine"], "r") == spare
    assert state_home(places["mine"], "other") == state_home(places["mine"]) == usual
    assert state_home(places["other"], "r") == usual
    Path(spare).chmod(0o750)
    assert state_home(places["mine"], "r") == usual
    Path(spare).chmod(0o700)
    (tmp_path / "xdg" / "rdzv" / "r").mkdir(parents=True)
    assert state_home(places["mine"], "r") == usual
    assert state_home({"RDZV_STATE_DIR": "/a", **home}, "r") == "/a"


@pytest.mark.parametrize("name", ["RDZV_TOKEN", "RDZV_TOKEN_FILE"])
def test_a_node_of_a_symmetric_start_launches_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(rdzv.RdzvError, match="would become a node") as raised:
        world.launch(LAUNCH)
    assert (raised.value.exit_code, world.started) == (64, [])


# ---- the command --------------------------------------------------------------------------------


def test_the_command_is_this_pythons_and_no_part_of_this_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **how: given.append((words, how)))
    folder = os.path.dirname(sys.executable)
    monkeypatch.setenv("MINE", "x")
    for path, expected in (
        ("/usr/bin:/bin", f"{folder}:/usr/bin:/bin"),
        (f"{folder}:/bin", f"{folder}:/bin"),
        (f"/bin:{folder}", f"{folder}:/bin:{folder}"),
        (None, f"{folder}:{os.defpath}"),
    ):
        monkeypatch.delenv("PATH") if path is None else monkeypatch.setenv("PATH", path)
        command.start(["status", "r"], 7, "/there")
        words, how = given.pop()
        assert words == [sys.executable, "-I", command._MAIN, "status", "r"]
        env = how.pop("env")
        assert (env.pop("PATH"), env["MINE"]) == (expected, "x")
        assert how == {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": 7,
            "cwd": "/there",
            "start_new_session": True,
        }
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(rdzv.RdzvError, match="does not know its own path"):
        command.start([], 2)


def test_lines_come_as_they_are_printed_and_whoever_has_enough_ends_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Any] = []

    def start(words: list[str], stderr: Any) -> Any:
        assert words == ["logs", "r"]
        said.append(stderr)
        stderr.write(b"[0] hi\nrdzv: no log\n      try another\n")
        return process

    monkeypatch.setattr(command, "start", start)
    process = Process(Lines(b"one\r\n", b"tw\xffo"))
    assert list(command.lines_of(["logs", "r"])) == ["one\r", "tw\ufffdo"]
    assert (process.done, said.pop().closed) == (["left"], True)
    process = Process(Lines(b"one\n", b"two\n"), code=66)
    lines = command.lines_of(["logs", "r"])
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(rdzv.RdzvError) as raised:
        next(lines)
    error = raised.value
    assert (error.message, error.hint, error.exit_code) == ("no log", "try another", 66)
    assert str(error) == "no log\ntry another"
    process = Process(Lines(b"one\n", b"two\n"))
    lines = command.lines_of(["logs", "r"])
    assert next(lines) == "one"
    lines.close()  # type: ignore[attr-defined]
    assert (process.done, said[-1].closed) == (["kill", "left"], True)
