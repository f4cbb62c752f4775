"""A door of its own, and a launcher behind it: what a fork of it sees, and a command of it.

python -E forking.py launch PATH PATH      what a fork sees, and what a command
python -E forking.py ends WORD HOW         how both end
python -E forking.py spoiled HOW PATH      whether the fork is used nevertheless
python -E forking.py refused WHY           how many forks there are
python -E forking.py waits                 forks that get no orders
python -E forking.py _look PATH ...        be what sees
python -E forking.py _end HOW              be what ends
python -E forking.py each JSON             several of these lines, each by a fork: to import is slow
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import psutil

DOOR = str(Path(__file__).resolve())
if __name__ == "__main__":
    sys.path[0] = str(Path(DOOR).parents[2])

from rdzv_command import install_features  # noqa: E402

install_features()

from launcher import processes  # noqa: E402
from tests.support.seen import seen  # noqa: E402

GIVEN = 40
"""The number of a descriptor that a process is given."""


def look() -> None:
    """Write down what can be seen of this process from within."""
    shared = {**seen(), "given": os.pread(GIVEN, 100, 0).decode(), "parent": os.getppid()}
    own: dict[str, Any] = {"random": random.random()}
    own["shown"] = Path("/proc/self/cmdline").read_bytes().decode("latin-1")
    Path(sys.argv[2]).write_text(json.dumps([shared, own]))


def end() -> None:
    """In the way that the command line says."""
    print("an unfinished line", end="")
    match sys.argv[2]:
        case "error":
            raise ValueError("what went wrong")
        case "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        case "words":
            sys.exit("why it ends")
        case "returns":
            return
        case code:
            sys.exit(int(code))


WORDS = {"_look": look, "_end": end}


def become(word: str) -> Callable[[], None]:
    if word == "_absent":
        raise ImportError("no such part")
    return WORDS[word]


async def start(
    made: processes.OwnProcesses, *words: str, given: Sequence[str] = (), **more: str | None
) -> processes.OwnProcess:
    environ = {name: value for name, value in {**os.environ, **more}.items() if value is not None}
    argv = [*processes.OWN_COMMAND, *words]
    return await made.start(argv, environ, pass_fds=[GIVEN], for_programs=given)


async def launch(made: processes.OwnProcesses, *paths: str) -> None:
    """The first one is a fork; the second one is a command, since no fork is left."""
    for path in paths:
        child = await start(made, "_look", path, "a word", "\udcff", "", RDZV_X="\udcfe", RDZV_Y="")
        assert await child.wait() == child.returncode == 0


async def ends(made: processes.OwnProcesses, word: str, how: str) -> None:
    """How a fork ends, and how a command."""
    for _ in range(2):
        child = await start(made, word, how)
        print(await child.wait(), flush=True)


async def spoiled(made: processes.OwnProcesses, how: str, path: str) -> None:
    """Whether it was the fork that was given orders."""
    [ready] = psutil.Process().children()
    if how == "it ended":
        ready.kill()
        while ready.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)
    others: dict[str, dict[str, str | None]] = {
        "another variable": {"LANG": "C"},
        "one variable less": {"HOME": None},
        "one for programs": {"LR": "1"},
        "one for programs that is read at the start": {"LR": "1", "LC_ALL": "C"},
    }
    other = others.get(how, {})
    given = [*other] if how.startswith("one for programs") else []
    child = await start(made, "_look", path, given=given, **other)
    assert await child.wait() == 0
    print(child.pid == ready.pid)


def no_room() -> int:
    raise BlockingIOError


LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

STARTS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "launch": launch,
    "ends": ends,
    "spoiled": spoiled,
}


def refused(made: processes.OwnProcesses, why: str) -> None:
    """Fork where something is in the way, and count."""
    if why == "a thread":
        threading.Thread(target=time.sleep, args=[0.2]).start()
    elif why == "no exit codes":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    elif why == "no pidfd":
        del os.pidfd_open
    elif why == "no room":
        os.fork = no_room
    elif why == "few files":
        few = len(os.listdir("/proc/self/fd")) + 6
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, LIMIT))
    made.fork("_look", 100 if why in ("few files", "many nodes") else 1, become)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    print(len(psutil.Process().children()))


def waits(made: processes.OwnProcesses) -> None:
    """Forks that get no orders: until there is a line of input, and then until there is another."""
    made.fork("_look", 2, become)
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    sys.stdin.readline()
    made.dismiss()
    print(len(psutil.Process().children()), flush=True)
    sys.stdin.readline()


def act(word: str, words: list[str]) -> None:
    """As a launcher that was started with this line."""
    made = processes.OwnProcesses()
    if word == "refused":
        refused(made, *words)
    elif word == "waits":
        waits(made)
    else:
        made.fork(words[0] if word == "ends" else "_look", 1, become)
        asyncio.run(STARTS[word](made, *words))


def each(lines: list[list[str]]) -> None:
    """What each line has said, and its exit code; as JSON."""
    said = []
    for word, *words in lines:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            launcher = os.fork()
            if not launcher:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                act(word, words)
                sys.exit()
            code = os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1])
            texts = [os.pread(file.fileno(), 1 << 20, 0).decode() for file in (out, err)]
            said.append([code, *texts])
    print(json.dumps(said))


if __name__ == "__main__":
    processes.OWN_COMMAND = (sys.executable, "-E", DOOR)
    word, words = sys.argv[1], sys.argv[2:]
    if word in {*WORDS, "_absent"}:
        become(word)()
        sys.exit()
    with open(DOOR, "rb") as given:
        os.dup2(given.fileno(), GIVEN)
    if word == "each":
        each(json.loads(words[0]))
    else:
        act(word, words)
