"""Programs that rdzv starts by their path, call by call, are as in `started_courses.txt`.

In this process, with stand-ins for what would change it: a torchrun that is begun early, and what
forks a node's processes. They run in processes of their own otherwise. See `make reference`.
"""

from __future__ import annotations

import builtins
import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.support.courses import lines_in, text_of
from tests.worker.told import Instead, Told
from worker.program import cpu_time, keeper
from worker.programs import early_torchrun, processes, rsh
from worker.programs.warm import rank, spawner, starter, store, zygote

KNOWN = Path(__file__).with_name("started_courses.txt")


class Over(BaseException):
    """The process ends here."""


def _ends(told: Told, what: str) -> Callable[..., Any]:
    def end(*given: Any) -> Any:
        told.lines.append(f"@ {what}{given}")
        raise Over

    return end


def _says(told: Told, what: str, found: Any = None) -> Callable[..., Any]:
    def say(*given: Any, **named: Any) -> Any:
        told.lines.append(f"@ {what} {[*given]} {named or ''}".rstrip())
        return found(*given) if callable(found) else found

    return say


def _tries(told: Told, what: str, step: Callable[[], Any]) -> None:
    """What comes of it: a value, an error or the end."""
    told.lines.append(f"* {what}")
    try:
        told.lines.append(f"- {step()!r}")
    except BaseException as exc:  # noqa: BLE001 (each is told)
        told.lines.append(f"! {type(exc).__name__} {exc}")


@contextmanager
def _place() -> Iterator[tuple[Path, pytest.MonkeyPatch, Told]]:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        told = Told()
        yield Path(folder), patch, told
        told.lines = [line.replace(folder, "FOLDER") for line in told.lines]


def _changed(module: Any, **news: Any) -> Any:
    """A module with other values in it."""
    return SimpleNamespace(**{**vars(module), **news})


def an_early_torchrun() -> Told:
    """From its start to its end: with an order and without, without torch, and with a tool."""
    with _place() as (folder, patch, told):
        own = early_torchrun
        main = own.main
        orders: list[Any] = [None, {"n": 1}, {"n": 2}, {"n": 3}]
        patch.setattr(own.sys, "argv", ["early", "torchrun"])  # type: ignore[attr-defined]
        for name, found in {
            "look_like": None,
            "has_torch": lambda: len(orders) != 3 and bool(orders),
            "read_order": lambda: orders.pop(0),
            "follow": None,
            "use_hook": OSError("no hook"),
            "await_store": None,
            "stay_at_barrier": ImportError("no torch"),
            "execute": 300,
        }.items():
            patch.setattr(
                own, name, getattr(Instead(told, SimpleNamespace(), **{name: found}), name)
            )
        patch.setattr(own, "leave", _ends(told, "leave"))
        stand_in = _changed(os, execv=_ends(told, "execv"), environ={"E": "1"})
        patch.setattr(own, "os", stand_in)
        for number in range(3):
            _tries(told, f"main {number}", lambda: main("/bin/torchrun"))
    with _place() as (folder, patch, told_of_parts):
        _of_its_parts(folder, patch, told_of_parts)
    told.lines += told_of_parts.lines
    return told


def _of_its_parts(folder: Path, patch: pytest.MonkeyPatch, told: Told) -> None:
    own = early_torchrun
    here = os.path.dirname(os.path.realpath(own.__file__))
    opened = _says(told, "open", lambda *_: (folder / "comm").open("w", encoding="utf-8"))
    for path in ([here, "/b"], ["/a", here], []):
        patch.setattr(own, "sys", _changed(sys, path=path))
        patch.setattr(own, "open", opened, raising=False)
        own.look_like("/opt/bin/torchrun")
        told.of("looks like", [each.replace(here, "HERE") for each in path])
        told.of("comm", (folder / "comm").read_text())
    refused = Instead(told, SimpleNamespace(), open=PermissionError(13, "no"))
    patch.setattr(own, "open", refused.open, raising=False)
    _tries(told, "without a name", lambda: own.look_like("x"))
    patch.delattr(own, "open")
    calls = Instead(told, os, open=44, dup2=None, close=None)
    for said in (b"", b'{"argv": ["a"]}'):
        (folder / "order").write_bytes(said)
        given = _says(told, "open", lambda *_: (folder / "order").open("rb"))
        patch.setattr(own, "open", given, raising=False)
        patch.setattr(own, "os", calls)
        _tries(told, f"order {said!r}", own.read_order)
    patch.delattr(own, "open")
    for whole in (["python", "-X", "early", "torchrun", "x"], ["python"], None):
        environ = {b"OLD": b"1", b"KEPT": b"2", b"NEW": b"0", b"OLDER": b"3"}
        stand_in = _changed(sys, argv=["early", "torchrun"])
        del stand_in.orig_argv
        if whole is not None:
            stand_in.orig_argv = [*whole]
        patch.setattr(own, "sys", stand_in)
        patch.setattr(own, "os", _changed(os, environb=environ))
        changes = {"unset": ["OLD", "NONE", "OLDER"], "set": {"NEW": "\xc3\xa9", "X": ""}}
        own.follow({"argv": ["t\xff", "\xe9"], **changes})
        told.of(
            f"follows {whole}",
            ascii(stand_in.argv),
            ascii(getattr(stand_in, "orig_argv", None)),
            repr(environ),
        )
    patch.setattr(own, "os", os)
    patch.setattr(own, "sys", sys)
    for text in (
        *("x = 1", "raise SystemExit", "raise SystemExit(7)", "raise SystemExit('words')", "f("),
        *("def f():\n  raise ValueError('x')\nf()", "import sys; sys.exit(None)"),
    ):
        (folder / "script").write_text(text)
        shown: list[Any] = []

        def hook(kind: Any, error: Any, trace: Any, shown: list[Any] = shown) -> None:
            is_its = trace and trace.tb_frame.f_code.co_filename == f"{folder}/script"
            shown.append((kind.__name__, is_its, error.__traceback__ is trace))

        patch.setattr(own, "sys", _changed(sys, excepthook=hook))
        _tries(told, f"executes {text!r}", lambda: own.execute(f"{folder}/script"))
        told.of("told", shown)
    for preload, fails in ((True, False), (False, False), (False, True)):
        error = ValueError("no") if fails else None
        stream = Instead(told, SimpleNamespace(), flush=error)
        variables = {"LD_PRELOAD": "x"} if preload else {}
        patch.setattr(own, "os", _changed(os, environ=variables, _exit=_ends(told, "_exit")))
        patch.setattr(own, "sys", _changed(sys, stdout=stream, stderr=stream))
        threads = Instead(told, SimpleNamespace(), _shutdown=None)
        patch.setattr(own, "threading", threads)
        patch.setattr(own, "atexit", Instead(told, SimpleNamespace(), _run_exitfuncs=error))
        _tries(told, f"leaves {preload} {fails}", partial(own.leave, 300 if fails else 3))
    patch.setattr(own, "sys", sys)
    for has in (True, False):
        for collects in (True, False):
            collector = {"isenabled": collects, "disable": None, "enable": None}
            patch.setattr(own, "gc", Instead(told, SimpleNamespace(), **collector))
            for name in ("torch", "torch.distributed", "torch.distributed.run"):
                patch.setitem(sys.modules, name, ModuleType(name) if has else None)
            _tries(told, f"torch {has} {collects}", own.has_torch)
    _of_its_store(patch, told)


def _of_its_store(patch: pytest.MonkeyPatch, told: Told) -> None:
    """How its store is dialled, and who is connected to it."""
    own = early_torchrun
    now = [50.0]

    def sleep(seconds: float) -> None:
        told.lines.append(f"@ sleep {seconds:.4f}")
        now[0] += max(seconds, 25.0)

    answers: list[Any] = []

    def dial(place: Any, timeout: float) -> Any:
        told.lines.append(f"@ dials {place} {timeout}")
        found = answers.pop(0) if answers else ConnectionRefusedError()
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(close=lambda: told.lines.append("@ hangs up"))

    patch.setattr(own, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    patch.setattr(own, "random", SimpleNamespace(uniform=lambda low, high: high - low / 4))
    patch.setattr(own, "socket", _changed(socket, create_connection=dial))
    place = {"NODE_RANK": "2", "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "29555", "NNODES": "3000"}
    for what, given, said in (
        ("is there", place, [1]),
        ("is late", place | {"NNODES": "3"}, [ConnectionRefusedError(), 1]),
        ("never comes", place, []),
        ("elsewhere", place, [OSError(5, "no"), 1]),
        ("first", place | {"NODE_RANK": "0"}, [1]),
    ):
        answers[:] = said
        _tries(told, what, lambda given=given: own.await_store(given))  # type: ignore[misc]

    class Door:
        """A connection as one of this process's files is."""

        ends: ClassVar[dict[str, tuple[Any, Any]]] = {
            "3": ((10, 29_555), (11, 41)),
            "4": ((10, 29_555), (11, 42)),
            "5": ((10, 41), (1, 29_555)),
            "6": ("path", "other"),
            "8": ((10, 50), (12, 43)),
        }

        def __init__(self, fileno: int) -> None:
            self._name = str(fileno)
            if self._name not in self.ends:
                raise OSError(88, "no socket")

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            told.lines.append(f"@ closes {self._name}")

        def getsockname(self) -> Any:
            return self.ends[self._name][0]

        def getpeername(self) -> Any:
            return self.ends[self._name][1]

    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(own, "socket", _changed(socket, socket=Door))
        for names in ("3 5 7", "3 4 5", "4 3 5 8", "5 6 8", "8 4"):
            stand_in = _changed(os, listdir=lambda path, n=names: n.split(), dup=lambda fd: fd)
            inner.setattr(own, "os", stand_in)
            told.of(f"files {names}", own.has_clients(29_555), own.has_clients(50))
    clients = [True, True, False, True, True, True]
    patch.setattr(own, "has_clients", _says(told, "looks", lambda port: clients.pop(0)))
    for _ in range(2):
        now[0] = 10.0
        own.await_clients(29_555)
        told.of("waited", now[0], len(clients))
        clients.append(True)


class Cuda:
    """torch's, as it may be found."""

    def __init__(self, *, begun: bool, forked: bool | None) -> None:
        self._begun = begun
        if forked is not None:
            self._is_in_bad_fork = lambda: forked

    def is_initialized(self) -> bool:
        """Whether a GPU has been used."""
        return self._begun


def what_forks_a_nodes_processes() -> Told:
    """What is in the way of that; its words, requests, a keeper of each, and what a process is."""
    with _place() as (_, patch, told):
        own = zygote
        children: list[Any] = []

        def waitid(*asked: Any) -> Any:
            if not children:
                raise ChildProcessError

        for begun, forked, threads, child in (
            *((False, None, 1, 0), (True, None, 1, 0), (False, True, 1, 0), (False, False, 1, 0)),
            *((True, False, 1, 0), (False, None, 4, 0), (False, None, 1, 1)),
        ):
            cuda = Cuda(begun=begun, forked=forked)
            children[:] = [1] * child
            patch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
            calls = {"fork": 77, "waitpid": None, "listdir": ["1"] * threads, "waitid": waitid}
            patch.setattr(own, "os", Instead(told, os, **calls))
            _tries(told, f"{begun} {forked} {threads} {child}", own.what_is_in_the_way)
        calls = {"fork": 0, "_exit": _ends(Told(), "")}
        patch.setattr(own, "os", Instead(told, os, **calls))
        patch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Cuda(begun=False, forked=None)))
        _tries(told, "the child of that", own.what_is_in_the_way)
        imported: dict[str, Any] = {"bad": ImportError("no bad"), "ends": SystemExit(3)}

        def imports(name: str) -> None:
            if name in imported:
                raise imported[name]

        patch.setattr(own, "importlib", Instead(told, SimpleNamespace(), import_module=imports))
        patch.setattr(own, "what_is_in_the_way", _says(told, "looks", "nothing"))
        for names in (["torch", "a"], ["torch", "bad", "a"], ["ends"]):
            for collects in (True, False):
                calls = {"isenabled": collects, "disable": None, "enable": None}
                patch.setattr(own, "gc", Instead(told, SimpleNamespace(), **calls))
                _tries(told, f"imports {names} {collects}", lambda n=names: own.import_all(n))  # type: ignore[misc]
        _of_its_requests(patch, told)
        _of_its_start(patch, told)
    return told


def _of_its_requests(patch: pytest.MonkeyPatch, told: Told) -> None:
    own = zygote
    asked: list[Any] = [
        (b'{"grace": 3.5, "port": 29555}', [41, 42, 43, 44], 0, None),
        (b'{"grace": 1, "port": 0}', [51, 52, 53, 54], 0, None),
        (b"", [], 0, None),
    ]

    def recv(link: Any, *sizes: int) -> Any:
        told.lines.append(f"@ recv_fds {sizes}")
        found = asked.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    link: Any = Instead(told, SimpleNamespace(), send=None, close=None)
    served = own.Zygote(link, 66, {})
    calls: dict[str, Any] = {"close": None, "_exit": _ends(told, "_exit")}
    patch.setattr(own, "os", Instead(told, os, **calls))
    patch.setattr(own, "socket", _changed(socket, recv_fds=recv))
    patch.setattr(served, "_fork_keeper", _says(told, "forks", lambda *_: 900 + len(asked)))
    _tries(told, "serves", served.serve)
    asked[:] = [OSError(104, "reset")]
    _tries(told, "its agent is gone", served.serve)
    silent: Any = Instead(told, SimpleNamespace(), send=BrokenPipeError(32, "gone"))
    _tries(told, "nobody hears", lambda: own.Zygote(silent, 66, {}).say(ready=1))
    patch.undo()
    with pytest.MonkeyPatch.context() as inner:
        for forks in ([301, 302], [0, 302], [0, 0]):
            left = [*forks]
            pid = left[0]
            reads, writes = os.pipe()
            if pid:
                os.write(writes, b"302")
            calls = {
                "fork": lambda left=left: left.pop(0),
                "waitpid": None,
                "write": None,
                "_exit": _ends(Told(), ""),
                "pipe": lambda r=reads, w=writes: (r, w),
            }
            stand_in = Instead(told, os, **calls)
            stand_in.__dict__["close"] = os.close
            inner.setattr(own, "os", stand_in)
            served = own.Zygote(link, 66, {})
            inner.setattr(served, "_keep", _says(told, "keeps", lambda *_: _ends(told, "kept")()))
            length = len(told.lines)
            _tries(
                told,
                f"keeper {forks}",
                partial(served._fork_keeper, {"port": 5}, [41, 42, 43, 44]),
            )
            told.lines[length:] = [
                line.replace(f"({reads}, {writes})", "(r, w)").replace(f"({writes},", "(w,")
                for line in told.lines[length:]
            ]
            for fd in (reads, writes):
                try:
                    os.close(fd)
                    told.lines.append(f"- {'rw'[fd == writes]} was open")
                except OSError:
                    pass
        _of_its_keeper(inner, told, link)


def _of_its_keeper(patch: pytest.MonkeyPatch, told: Told, link: Any) -> None:
    own = zygote
    begun: list[Any] = []

    class Kept:
        """In place of a `Keeper`."""

        def __init__(self, lifeline: int, grace: float, begin: Any) -> None:
            told.lines.append(f"@ Keeper {lifeline} {grace}")
            begun.append(begin)

        def run(self, words: list[str]) -> int:
            told.lines.append(f"@ runs {words}")
            begun[-1]([*words])
            return 5

        def let_go(self) -> None:
            told.lines.append("@ lets go")

    for parent, settled, error in (
        (0, True, None),
        (7, True, None),
        (7, False, None),
        (7, True, 1),
    ):
        calls = {"setsid": None, "dup2": None, "close": None, "_exit": _ends(told, "_exit")}
        patch.setattr(own, "os", Instead(told, os, **calls))
        patch.setattr(own, "Keeper", Kept)
        patch.setattr(own, "settle", _says(told, "settles", settled))
        patch.setattr(own, "complain", _says(told, "complains"))
        started = OSError(2, "no such thing") if error else 9
        of = Instead(told, SimpleNamespace(), start_node=started)
        patch.setattr(own, "start_node", of.start_node)
        line = SimpleNamespace(socket=lambda fileno: f"line {fileno}")
        patch.setattr(own, "socket", line)
        patch.setattr(own, "sys", _changed(sys, argv=["z", "m", "train.py", "--lr"]))
        patch.setattr(own, "fork", lambda start, parent=parent: start(parent) if parent else 88)
        served = own.Zygote(link, 66, {1: 2})
        port = 0 if settled else 29_555
        _tries(
            told,
            f"keeps {parent} {settled} {error}",
            lambda served=served, port=port: served._keep(  # type: ignore[misc]
                {"grace": 2.5, "port": port}, 41, 42, 43, 44
            ),
        )


def _of_its_start(patch: pytest.MonkeyPatch, told: Told) -> None:
    own = zygote
    for why in ("", "no torch"):
        environ = {rank.ROOM_VARIABLE: "....", "KEPT": "1"}
        calls = {"dup": 31, "open": lambda path, flags: 32 if path == os.devnull else 33}
        stand_in = Instead(told, os, **calls, dup2=None, close=None)
        stand_in.__dict__["environ"] = environ
        patch.setattr(own, "os", stand_in)
        patch.setattr(own, "socket", SimpleNamespace(socket=lambda fileno: f"link {fileno}"))
        for name in ("prctl", "handle_as_at_start", "forget_ours", "search_from"):
            patch.setattr(own, name, _says(told, name))
        patch.setattr(own, "import_all", _says(told, "imports", why))
        patch.setattr(own, "handlers_now", _says(told, "handlers", {3: 4}))
        patch.setattr(own, "gc", Instead(told, SimpleNamespace(), collect=None, freeze=None))
        clock = iter((10.0, 12.5))
        patch.setattr(own, "time", SimpleNamespace(monotonic=lambda clock=clock: next(clock)))

        class Made:
            """In place of a `Zygote`."""

            def __init__(self, *given: Any) -> None:
                told.lines.append(f"@ Zygote {given}")

            def say(self, **words: Any) -> None:
                told.lines.append(f"@ says {words}")

            def serve(self) -> None:
                told.lines.append("@ serves")

        patch.setattr(own, "Zygote", Made)
        files = SimpleNamespace(fileno=lambda: 90, __enter__=None)
        temporary = SimpleNamespace(TemporaryFile=partial(_File, told, files))
        patch.setattr(own, "tempfile", temporary)
        _tries(told, f"begins {why}", lambda: own.main("a,,b", "train.py", "--x"))
        told.of("environment", environ)


class _File:
    """A temporary file whose use is told."""

    def __init__(self, told: Told, file: Any, **how: Any) -> None:
        self._told, self._file = told, file
        told.lines.append(f"@ TemporaryFile {how}")

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._told.lines.append("@ it is closed")


def how_a_node_is_started() -> Told:
    """With its store and without, by an order or none, or where nothing can listen."""
    with _place() as (folder, patch, told):
        own = starter

        class Store:
            """In place of MASTER_PORT's."""

            def __init__(self, port: int) -> None:
                told.lines.append(f"@ Store {port}")
                if port == 7:
                    raise store.CannotListen("it is taken")

            def close(self) -> None:
                told.lines.append("@ the store is closed")

        class Ranks:
            """In place of the processes."""

            def __init__(self, words: Any, environs: Any, handlers: Any, store: Any) -> None:
                told.lines.append(f"@ ranks {words} {handlers} {store is not None}")
                told.lines += [f"@ rank {sorted(one.items())}" for one in environs]

            def run(self) -> int:
                told.lines.append(f"@ run {sorted(one.name for one in folder.rglob('*'))}")
                return 3

        patch.setattr(own, "Store", Store)
        patch.setattr(own, "ForkedProcesses", Ranks)
        patch.setattr(own, "await_store", lambda environ: told.lines.append("@ awaits its store"))
        patch.setattr(own, "await_others", lambda *given, **named: told.lines.append(
            f"@ awaits others {given[1]} {sorted(given[2])} {named}"))  # fmt: skip

        def mkdtemp(prefix: str, dir: str | None) -> str:  # noqa: A002
            told.lines.append(f"@ mkdtemp {prefix} {dir}")
            (folder / "torchelastic_x").mkdir()
            return str(folder / "torchelastic_x")

        patch.setattr(own, "tempfile", SimpleNamespace(mkdtemp=mkdtemp))
        ranks = [{"RANK": "14", "X": "\xe9"}, {"RANK": "15"}]
        order = {"words": ["t.py", "\xff"], "set": {"A": "2"}, "unset": ["B"], "ranks": ranks}
        for port, said in ((7, order), (None, order), (29_555, order), (29_555, None)):
            text = b"" if said is None else json.dumps(said).encode()
            left = [text[:50], text[50:], b""] if text else [b""]
            line: Any = Instead(told, SimpleNamespace(), send=None, close=None)
            line.__dict__["recv"] = lambda most, left=left: left.pop(0)
            printed = iter((b"one", b"two", b""))
            calls = {"read": lambda fd, most, printed=printed: next(printed), "write": None}
            stand_in = Instead(told, os, **calls, close=None)
            stand_in.__dict__["environ"] = {"B": "1", "RDZV_SOCKET": f"{folder}/agent", "C": "3"}
            patch.setattr(own, "os", stand_in)
            _tries(told, f"starts {port}", partial(own.start_node, line, port, 66, {1: 2}))
            told.of("left", sorted(one.name for one in folder.iterdir()))
        told.of("elsewhere")
        own.room_for_errors({})
    return told


def how_processes_are_forked() -> Told:
    """With signals held; the child becomes its program, and lets go of what is not its own."""
    with _place() as (_, patch, told):
        own = starter
        quiet = SimpleNamespace(**{n: v for n, v in vars(signal).items() if n.startswith("SIG")})
        quiet.valid_signals = lambda: {signal.SIGTERM}
        quiet.pthread_sigmask = _says(told, "masks")
        patch.setattr(own, "signal", quiet)
        patch.setattr(own, "become", lambda *given: _ends(told, "becomes")(*given[:3]))
        for pid in (71, 0):
            calls = {"fork": pid, "setsid": None, "close": None, "read": b"", "pipe": (91, 92)}
            patch.setattr(own, "os", Instead(told, os, **calls))
            environs = [{"RANK": "14"}, {"RANK": "15"}]
            kept: Any = Instead(told, SimpleNamespace(), let_go=None)
            forked = own.ForkedProcesses(["t.py"], environs, {1: 2}, kept)
            wake, forked._wake = forked._wake, (93, 94)
            for fd in wake:
                os.close(fd)
            _tries(told, f"starts {pid}", partial(forked._start, 1))
            told.of("runs", {rank: one.pid for rank, one in forked._running.items()})
            _tries(told, "lets go" if pid == 0 else "all started",
                   forked._let_go if pid == 0 else forked._all_started)  # fmt: skip
    return told


def what_serves_a_nodes_store() -> Told:
    """In the process of its own, and as it is seen by the one that has started it."""
    with _place() as (_, patch, told):
        own = store
        for parent, found in ((33, "a store"), (34, "a store"), (33, ValueError("in  use " * 300))):
            said = SimpleNamespace(**{n: v for n, v in vars(signal).items() if n.startswith("SIG")})
            said.signal = _says(told, "handles", lambda number, _: None)
            patch.setattr(own, "signal", said)
            patch.setattr(own, "prctl", _says(told, "prctl"))
            of = Instead(told, SimpleNamespace(), _tcp_store=found)
            patch.setattr(own, "_tcp_store", of._tcp_store)
            calls = Instead(told, SimpleNamespace(), getppid=33, _exit=None)
            patch.setattr(own, "os", calls)
            line: Any = Instead(told, SimpleNamespace(), send=None, recv=b"")
            _tries(told, f"serves {parent}", partial(own._serve, 29_555, line, parent))
        for pid, heard in ((77, b"1"), (77, b"it is taken"), (77, b""), (0, b"")):
            ours: Any = Instead(told, SimpleNamespace(), recv=heard, close=None)
            theirs: Any = Instead(told, SimpleNamespace(), close=None)
            pair = [(ours, theirs)]
            patch.setattr(own, "socket", SimpleNamespace(socketpair=pair.pop))
            patch.setattr(own, "_serve", lambda *given: _ends(told, "serves")(given[0], given[2]))
            calls = Instead(told, SimpleNamespace(), fork=pid, getpid=44, waitpid=None)
            patch.setattr(own, "os", calls)
            made: list[Any] = []

            def start(made: list[Any] = made) -> None:
                made.append(own.Store(29_555))

            _tries(told, f"starts {pid} {heard!r}", start)
            for one in made:
                one.let_go()
                one.close()
    return told


def how_processes_are_spawned() -> Told:
    """Without a fork: by an order or none, on Pythons that are safe by themselves and others."""
    with _place() as (folder, patch, told):
        own = spawner
        ranks = [{"RANK": "14"}, {"RANK": "15"}]
        order = {"words": ["t.py"], "ranks": ranks, "set": {}, "unset": []}
        for safe, said in (
            (False, order | {"port": None}),
            (True, order | {"port": 7}),
            (True, None),
        ):
            patch.setattr(own, "forget_ours", _says(told, "forgets"))
            patch.setattr(own, "read_order", _says(told, "reads", said))
            flags = SimpleNamespace(safe_path=True) if safe else SimpleNamespace()
            stand_in = _changed(sys, path=["/own", "/b"], flags=flags)
            patch.setattr(own, "sys", stand_in)
            made = _says(told, "makes room", str(folder))
            patch.setattr(own, "room_for_errors", lambda environ, made=made: made(environ.get("X")))
            patch.setattr(own, "os", _changed(os, environ={"X": "9"}))
            patch.setattr(own, "ranks_of", _says(told, "ranks of", (["t.py"], ranks)))
            run = SimpleNamespace(run=_says(told, "run", 3))
            patch.setattr(own, "SpawnedProcesses", _says(told, "processes", run))
            patch.setattr(own, "shutil", Instead(told, SimpleNamespace(), rmtree=None))
            others = _says(told, "awaits others")
            patch.setattr(
                own, "await_others", lambda *given, o=others, **named: o(*given[1:], **named)
            )
            _tries(told, f"main {safe}", own.main)
            told.of("path", stand_in.path)
    return told


def what_a_keeper_starts() -> Told:
    """A child that becomes the program, or says why not; what it inherits."""
    with _place() as (folder, patch, told):
        own = keeper
        quiet = SimpleNamespace(**{n: v for n, v in vars(signal).items() if n.startswith("SIG")})
        valid = {signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP}
        quiet.valid_signals = lambda: valid
        for name in ("set_wakeup_fd", "signal", "pthread_sigmask"):
            setattr(quiet, name, _says(told, name))
        patch.setattr(own, "signal", quiet)
        whole = own.prctl
        patch.setattr(own, "prctl", _says(told, "prctl"))
        for parent in (33, 34):
            patch.setattr(own, "os", Instead(told, SimpleNamespace(), setsid=None, getppid=33))
            _tries(told, f"settles below {parent}", partial(own.settle, parent))
        for pid in (0, 77):
            patch.setattr(own, "os", Instead(told, SimpleNamespace(), getpid=44, fork=pid))
            _tries(told, f"forks {pid}", partial(own.fork, _says(told, "child")))
        script, folder_of = str(folder / "train.sh"), str(folder)
        Path(script).write_text("no program")
        errors = (
            *((2, "train"), (2, script), (2, "/no/such"), (20, "/a/b"), (13, script)),
            *((8, script), (7, "train"), (12, folder_of)),
        )
        for noexec in (False, True):
            patch.setattr(own, "os", os)
            patch.setattr(own, "is_noexec", lambda program, noexec=noexec: noexec)
            for number, program in errors:
                why = own.explain(program, OSError(number, os.strerror(number)))
                told.of(f"{noexec} {number} {program}", *why)
        patch.setattr(own, "original_environment", dict)
        for settles, error in ((True, FileNotFoundError(2, "x")), (False, None), (True, None)):
            patch.setattr(own, "settle", _says(told, "settles", settles))
            calls = {"execvpe": error, "_exit": None, "write": None}
            stand_in = Instead(told, SimpleNamespace(path=os.path), **calls)
            patch.setattr(own, "os", stand_in)
            _tries(told, f"becomes {settles}", partial(own.become, ["train", "x"], 33))
        broken = Instead(told, SimpleNamespace(), write=BrokenPipeError(32, "gone"))
        patch.setattr(own, "os", broken)
        _tries(told, "nobody reads", partial(own.complain, "a \udcff"))
        for found in (0, -1):
            library = Instead(told, SimpleNamespace(), prctl=found)
            patch.setattr(own, "os", SimpleNamespace(strerror=lambda number: f"error {number}"))
            kinds = SimpleNamespace(c_ulong=int, get_errno=lambda: 22)
            kinds.CDLL = lambda name, use_errno, library=library: library
            patch.setattr(own, "ctypes", kinds)
            _tries(told, f"prctl {found}", partial(whole, 36, 1))
        kept = SimpleNamespace(run=_says(told, "runs", 5))
        patch.setattr(own, "Keeper", lambda *given: _says(told, "keeper", kept)(*given[:2]))
        _tries(told, "main", partial(own.main, ["7", "2.5", "--", "train", "x"]))
    return told


def how_cpu_time_is_watched() -> Told:
    """With each of both limits, and where it is met; what is left afterwards."""
    told = Told()
    with pytest.MonkeyPatch.context() as patch:
        own = cpu_time
        handlers: dict[int, Any] = {}

        def added(number: int, call: Any, *given: Any) -> None:
            told.lines.append(f"@ handles {int(number)} {[*given]}")
            handlers[number] = partial(call, *given)

        def removed(number: int) -> None:
            told.lines.append(f"@ no longer {int(number)}")
            del handlers[number]

        loop = SimpleNamespace(add_signal_handler=added, remove_signal_handler=removed)
        patch.setattr(own, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
        patch.setattr(own, "time", SimpleNamespace(process_time=lambda: 7.5))
        limit = own.resource.RLIM_INFINITY  # type: ignore[attr-defined]
        for soft, hard in ((limit, limit), (60, limit), (60, 90), (limit, 90), (5, 8)):
            limits = _changed(own.resource, getrlimit=lambda which, s=soft, h=hard: (s, h))  # type: ignore[attr-defined]
            patch.setattr(own, "resource", limits)
            timers = {"setitimer": lambda which, at: None, "signal": lambda number, how: None}
            stand_in = SimpleNamespace(**vars(signal))
            for name, call in timers.items():
                setattr(stand_in, name, _says(told, name, call))
            patch.setattr(own, "signal", stand_in)
            told.of(f"{soft} {hard}")
            with own.cpu_time_watched(_says(told, "met"), _says(told, "used up")):
                for number in sorted(handlers):
                    handlers[number]()
                    handlers[number]()
            told.of("left", sorted(map(int, handlers)))
            handlers.clear()
    return told


def how_processes_are_called() -> Told:
    """Their options, environments, streams, store and limits, as the starter reads them."""
    with _place() as (_, patch, told):
        own = processes
        words = [
            "--rank",
            "14",
            "--processes",
            "2",
            "--world",
            "9",
            "--node",
            "3",
            "--grace",
            "2.5",
        ]
        more = ["--set", "A=$RANK-${LOCAL_RANK}$HOME", "--set", "B=x=y", "--set", "C"]
        for store_of in ([], ["--store", "[::1]:29555"], ["--store", "h:7", "--serve"]):
            options = own._parse([*words, *more, *store_of, "--", "train", "--", "x"])
            told.of(f"options {store_of}", sorted(vars(options).items()))
            for answers in (True, False):
                patch.setattr(own, "serve_store", _says(told, "serves"))
                patch.setattr(own, "await_store", _says(told, "awaits", answers))
                patch.setattr(own, "_say", _says(told, "says"))
                run = SimpleNamespace(run=_says(told, "run", 3))
                patch.setattr(own, "Processes", lambda options, run=run: run)
                call = partial(own.main, [*words, *store_of, "--", "train"])
                _tries(told, f"main {answers}", call)
        patch.setattr(own, "os", _changed(os, environ={"HOME": "/h", "RANK": "77", "A": "0"}))
        for local in (0, 1):
            told.of(f"rank {local}", sorted(own.environment_of(options, local).items()))
        for fds in ([], [-1], [5], [-1, 6]):
            told.of(f"{fds}", own._or_pipe(fds))
        for found in (([3, 4], 5), OSError(2, "x"), ValueError("x")):
            of = Instead(told, SimpleNamespace(), read_streams=found)
            patch.setattr(own, "read_streams", of.read_streams)
            told.of("look", own._look("/look"), own._look(""))
        ended = SimpleNamespace(si_status=3, si_code=os.CLD_EXITED)
        for ends in (None, ended, SimpleNamespace(si_status=9, si_code=os.CLD_KILLED)):
            stand_in = Instead(
                told, SimpleNamespace(CLD_EXITED=os.CLD_EXITED), waitid=lambda *_, e=ends: e
            )
            for name in ("P_PID", "WEXITED", "WNOHANG", "WNOWAIT"):
                stand_in.__dict__[name] = getattr(os, name)
            patch.setattr(own, "os", stand_in)
            told.of("ended", own._exit_code(71))
    return told


def what_a_remote_command_says() -> Told:
    """Answers of the agent, each passed on; and what is refused before it is asked."""
    with _place() as (_, patch, told):
        own = rsh

        def takes(fd: int, data: Any) -> int:
            told.lines.append(f"@ write {fd} {bytes(data)!r}")
            return min(len(data), 2)

        patch.setattr(own, "os", SimpleNamespace(environ={}, write=takes))
        for answers in (
            [b'{"stdout": "b25l"}\n', b'{"stderr": "dHdv"}\n', b'{"exit": 7}\n'],
            [b'{"error": "no \\u00e9 such node"}\n'],
            [b'{"stdout": "b25l"}\n', b'{"exit": 7}'],
            [],
        ):
            _tries(told, f"{answers}", partial(own._pass_on, answers))

        def resets() -> Iterator[bytes]:
            yield b'{"stdout": "b25l"}\n'
            raise ConnectionResetError

        _tries(told, "reset", partial(own._pass_on, resets()))
        full = [BlockingIOError(11, "full"), 2, BlockingIOError(11, "full"), 1]

        def write(fd: int, data: Any) -> Any:
            found = full.pop(0)
            told.lines.append(f"@ write {fd} {bytes(data)!r} {found}")
            if isinstance(found, Exception):
                raise found
            return found

        patch.setattr(own, "os", SimpleNamespace(write=write))
        patch.setattr(own, "select", Instead(told, SimpleNamespace(), select=None))
        _tries(told, "full", partial(own._write, 1, b"abc"))
        sent: list[Any] = []
        agent = SimpleNamespace(connect=_says(told, "connects"), sendall=sent.append)
        agent.detach = lambda: os.open(os.devnull, os.O_RDONLY)
        patch.setattr(own, "_socket", SimpleNamespace(AF_UNIX=1, socket=lambda family: agent))
        for host, command in (
            ("n1", "ls -l"),
            ('n"', "x"),
            ("n\\", "x"),
            ("é", "x"),
            ("n1", "x" * 131_072),
        ):
            _tries(told, f"runs on {host!a}", partial(own.run, host, command, "/s/agent"))
        told.of("sent", *sent)
        for error in (None, own.RefusedError("no such"), BrokenPipeError()):
            of = Instead(told, SimpleNamespace(), run=7 if error is None else error)
            patch.setattr(own, "run", of.run)
            for path in ("/s/agent", ""):
                stand_in = Instead(told, SimpleNamespace(environ={"RDZV_SOCKET": path}), write=None)
                patch.setattr(own, "os", stand_in)
                _tries(told, f"main {error!r} {path}", partial(own.main, ["-p", "22", "n1", "ls"]))
    return told


def what_a_forked_process_becomes() -> Told:
    """Its signals, environment, words and path, in this order; a script, a module, and its end."""
    with _place() as (folder, patch, told):
        own = rank
        (folder / "train.py").write_text("x = __name__, __file__, sorted(globals())\n")
        calls: dict[str, Any] = {
            "set_wakeup_fd": None,
            "signal": None,
            "pthread_sigmask": None,
            "valid_signals": lambda: {
                signal.SIGINT,
                signal.SIGTERM,
                signal.SIGKILL,
                signal.SIGPIPE,
            },
            "getsignal": lambda number: None if number == signal.SIGPIPE else number + 100,
        }
        quiet = SimpleNamespace(**{n: v for n, v in vars(signal).items() if n.startswith("SIG")})
        quiet.default_int_handler = "default"
        valid = {signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}
        quiet.valid_signals = lambda: valid
        for name in ("set_wakeup_fd", "signal", "pthread_sigmask"):
            setattr(quiet, name, _says(told, name))
        quiet.getsignal = calls["getsignal"]
        patch.setattr(own, "signal", quiet)
        patch.setattr(own, "install", _says(told, "install"))
        patch.setattr(own, "show", _says(told, "show"))
        patch.setattr(own, "seed", _says(told, "seed"))
        for words, has, fault in (
            (["train.py", "--lr", "3"], True, True),
            (["-m", "pkg.train", "x"], False, False),
            (["none.py"], False, True),
        ):
            environ = {"OLD": "1"} | ({"LC_CTYPE": "C"} if has else {})
            places = _changed(os, environ=environ, getcwd=lambda: "/cwd")
            patch.setattr(own, "os", places)
            modules: dict[str, Any] = {}
            errors = io.StringIO()
            stand_in = _changed(
                sys, argv=["a"], orig_argv=["b"], path=["/was", "/c"], modules=modules
            )
            stand_in.executable, stand_in.stderr = "/bin/python", errors
            stand_in.flags = SimpleNamespace(safe_path=has)
            patch.setattr(own, "sys", stand_in)
            faults = {"is_enabled": fault, "disable": None, "enable": None}
            patch.setattr(own, "faulthandler", Instead(told, SimpleNamespace(), **faults))
            patch.chdir(folder)
            found: list[Any] = []

            def go(words: list[str] = words, found: list[Any] = found) -> None:
                try:
                    own.become(words, {"NEW": "2", "RANK": "6"}, {10: "ignored"}, _says(told, "go"))
                except own.Become as exc:
                    found.append(exc.program)

            _tries(told, f"becomes {words}", go)
            told.of("is", stand_in.argv, stand_in.orig_argv, stand_in.path, errors.getvalue())
            told.of("environment", [*environ.items()])
            made = modules.get("__main__")
            told.of("main", sorted(vars(made)) if made else None)
            if words[0] == "-m":
                program = found[0]
                told.of("module", program.func is runpy._run_module_as_main, program.args)  # type: ignore[attr-defined]
            elif found and made:
                found[0]()
                told.of("script", made.x, made.__builtins__ is builtins, made.__annotations__)
        known = dict.fromkeys(("worker", "worker.a", "workers", "b"))
        stand_in = _changed(sys, modules=known, path=["/x", own._ROOT, own._ROOT])
        patch.setattr(own, "sys", stand_in)
        own.forget_ours()
        told.of("forgets", sorted(own.sys.modules), own.sys.path.count(own._ROOT))  # type: ignore[attr-defined]
        told.of("handlers", sorted(own.handlers_now().items()))
        for safe, words in ((False, ["-m", "x"]), (False, ["deep/t.py"]), (True, ["t.py"])):
            path = ["/was"]
            stand_in = _changed(sys, path=path, flags=SimpleNamespace(safe_path=safe))
            patch.setattr(own, "sys", stand_in)
            own.search_from(words)
            told.of(f"from {safe} {words}", path)
        _of_its_words(patch, told)
    return told


def _of_its_words(patch: pytest.MonkeyPatch, told: Told) -> None:
    """What `ps` shows, and how its error is told."""
    own = rank
    patch.undo()
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(own, "_fill", _says(told, "fills"))
        fields = b" ".join(b"%d" % n for n in range(60))
        for text in (b"7 (a) b) " + fields, b"7 (a) " + b"x " * 60):
            reads = lambda *_, text=text: io.BytesIO(text)  # noqa: E731
            inner.setattr(own, "open", reads, raising=False)
            _tries(
                told,
                "shows",
                lambda: own.show(["p", "-u"], {"B": "1", "LOCAL_RANK": "2", "RANK": "3"}),
            )
    here = own.__file__
    for error in (None, SystemExit(4), KeyboardInterrupt(), ValueError("x")):
        shown: list[str] = []

        def program(error: BaseException | None = error) -> None:
            if error is not None:
                raise error

        hook = lambda kind, value, trace, shown=shown: shown.append(  # noqa: E731
            f"{kind.__name__} {trace.tb_frame.f_code.co_name} {value.__traceback__ is trace}"
        )
        with pytest.MonkeyPatch.context() as inner:
            stand_in = _changed(sys, excepthook=hook)
            inner.setattr(own, "sys", stand_in)
            _tries(told, f"runs {error!r}", lambda: own.run(program, (here,)))
            told.of("told", shown, stand_in.excepthook is hook)
            if shown:
                told.of("and again", stand_in.excepthook("kind", "error", "trace"))


COURSES = {
    one.__name__: one
    for one in (
        *(an_early_torchrun, what_forks_a_nodes_processes),
        *(how_a_node_is_started, how_processes_are_forked, what_serves_a_nodes_store),
        how_processes_are_spawned,
        *(what_a_forked_process_becomes, what_a_keeper_starts, how_cpu_time_is_watched),
        *(how_processes_are_called, what_a_remote_command_says),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_started_by_its_path(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)
    assert gc.isenabled()


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)
