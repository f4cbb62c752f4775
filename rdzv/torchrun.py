"""torchrun's rendezvous by rdzv: `torchrun --rdzv-backend=rdzv`; `rdzv docs torchrun` describes it.

torch loads this file by the entry point `torchrun.handlers`, in the user's interpreter: it imports
torch, which is there, and the standard library. All that talks with other nodes is done by a helper
process in rdzv's own environment, over a socket, in lines of JSON. It is started when the handler
is made; `next_rendezvous` asks it for the next table, and `num_nodes_waiting` is how torchrun hears
that its workers are to be stopped for that.

Every rank comes from the table: there is no store of the agents, so no node's end takes it away.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from torch.distributed import DistStoreError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from rdzv.torchrun_agent import TableStore, failure_above, of_agent

BACKEND = "rdzv"
PROTOCOL = 1
"""As `rendezvous.wire.protocol` has it, which may not be installed for this Python."""
SECRETS = ("RDZV_TOKEN", "RDZV_TOKEN_FILE", "RDZV_REGISTRY", "RDZV_REGISTRY_FILE")
"""What the helper alone is given; the workers inherit the environment of torchrun."""

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_pythonpath")
_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
_END_SECONDS = 20.0
"""How long the end of this node is told: the helper gives up before that."""

logger = logging.getLogger(__name__)
_withheld: dict[str, str] = {}


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What the entry point names: gives what makes the handler."""
    return RdzvHandler


class RdzvHandler(RendezvousHandler):
    """The rendezvous of one torchrun. Raises RendezvousConnectionError without a helper."""

    def __init__(self, params: RendezvousParameters) -> None:
        self._run_id = params.run_id
        self._conf = {name: _text(value) for name, value in params.config.items()}
        self._news = threading.Condition()
        self._go: dict[str, Any] | None = None
        self._over: dict[str, Any] | None = None
        self._stop = self._went = self._ended = False
        self._until = math.inf
        self._served: TCPStore | None = None
        self._others = frozenset[int]()
        self._before: dict[str, str | None] = {}
        self._link, theirs = socket.socketpair()
        with theirs:
            self._helper = _start_helper(theirs)
        threading.Thread(target=self._listen, name="rdzv", daemon=True).start()
        self._tell(
            "begin",
            protocol=PROTOCOL,
            version=_version(),
            endpoint=params.endpoint,
            run=params.run_id,
            nodes=[params.min_nodes, params.max_nodes],
            conf=self._conf,
            pid=os.getpid(),
            python=sys.executable,
        )

    # --- what torchrun asks -------------------------------------------------------------------

    def get_backend(self) -> str:
        """See the base class."""
        return BACKEND

    def get_run_id(self) -> str:
        """See the base class."""
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        """Whether the store of MASTER_PORT is this process's: all workers are its clients, so that
        none dials before it is there."""
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next table: the workers of the one before are over.

        Raises:
            RendezvousClosedError: The run has ended, or this node cannot take part.
            RendezvousConnectionError: The helper has ended.
            RendezvousGracefulExitError: The run does without this node; torchrun exits with 0.
        """
        processes, role, failure = of_agent(sys._getframe(), self._conf)
        self._served = None  # its port is free again before this node says that it is ready
        with self._news:
            self._go, self._went, self._ended = None, False, False
        self._tell("next", processes=processes, role=role, failure=failure)
        with self._news:
            while self._go is None and self._over is None:
                self._news.wait()
            go = self._go
        if go is None:
            raise self._end()
        self._set_variables(go["variables"], go["removed"])
        address, port, node = go["address"], go["port"], go["node"]
        if node == 0 and self.use_agent_store:
            self._served = _serve(address, port)
        self._others = frozenset(_children())  # what this process starts from now on are workers
        store = TableStore(go["nodes"], self._await_others)
        place = RendezvousStoreInfo(address, port)
        return RendezvousInfo(store, node, len(go["nodes"]), place)

    def num_nodes_waiting(self) -> int:
        """1 when the workers are to be stopped for the next table; never raises."""
        return int(self._stop or self._over is not None)

    def is_closed(self) -> bool:
        """Whether the run has ended for this node."""
        return self._over is not None

    def set_closed(self) -> None:
        """End the run, as failed."""
        self._tell("failed", failure=None)

    def shutdown(self) -> bool:
        """Tell how this node has ended, and wait until the others know."""
        if not self._ended:
            told = {"failure": failure_above(sys._getframe())} if self._went else {}
            self._tell("failed" if self._went else "leaves", **told)
        with self._news:
            self._news.wait_for(lambda: self._over is not None, _END_SECONDS)
        self._served = None
        self._set_variables({}, ())
        return True

    # --- the helper ---------------------------------------------------------------------------

    def _tell(self, kind: str, **words: Any) -> None:
        with contextlib.suppress(OSError):  # that it has ended is seen where it is read
            self._link.sendall(json.dumps({"kind": kind, **words}).encode() + b"\n")

    def _listen(self) -> None:
        """Take in what the helper says, in a thread of its own."""
        unread = b""
        while True:
            try:
                left = self._until - time.monotonic()
                self._link.settimeout(None if left == math.inf else max(0.001, left))
                piece = self._link.recv(65_536)
            except TimeoutError:
                self._until = math.inf
                _kill_workers(self._others)
                continue
            except OSError:
                piece = b""
            if not piece:
                break
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                self._take_in(json.loads(line))
        self._link.close()
        code = self._helper.wait()
        with self._news:
            if self._over is None:
                words = f"rdzv's helper process ended with exit code {code}"
                self._over = {"code": None, "message": words}
            self._news.notify_all()

    def _take_in(self, said: dict[str, Any]) -> None:
        with self._news:
            match said["kind"]:
                case "go":  # a stop that came before it was for the workers before
                    self._go, self._stop, self._went = said, False, True
                case "stop":
                    self._stop = True
                case "may_run":
                    self._until = said["until"]
                case "over":
                    self._over = said
            self._news.notify_all()

    def _await_others(self, seconds: float) -> None:
        """The workers of this node have ended well: wait for the others'. Raises DistStoreError."""
        self._ended = True
        self._tell("ended")
        with self._news:
            if not self._news.wait_for(lambda: self._over is not None, seconds):
                raise DistStoreError(f"other nodes still run after {seconds:.0f} s")

    def _end(self) -> BaseException:
        """What `next_rendezvous` raises. A torchrun exits with the run's own code, in order: after
        an error of the rendezvous its last lines would be a traceback that says nothing more, and
        of a node that is not needed an AttributeError."""
        assert self._over is not None
        code, message = self._over["code"], self._over["message"]
        if code is None:
            return RendezvousConnectionError(f"{message}; its last lines above say why")
        if _is_torchrun():
            logger.info("rdzv: %s", message)
            return SystemExit(code)
        return RendezvousClosedError(message) if code else RendezvousGracefulExitError(message)

    def _set_variables(self, wanted: dict[str, str], removed: Iterable[str]) -> None:
        """Set what the table says for the workers, which inherit the environment."""
        for name, value in self._before.items():
            _set_variable(name, value)
        changes = {**dict.fromkeys(removed), **wanted}
        self._before = {name: os.environ.get(name) for name in changes}
        for name, change in changes.items():
            _set_variable(name, change)


def _version() -> str:
    """The version of the rdzv that this file is part of; empty where it is not installed here."""
    try:
        return version("rdzv")
    except PackageNotFoundError:
        return ""


def _start_helper(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start rdzv's own process; the secrets go to it, and to nobody else."""
    for name in SECRETS:
        if name in os.environ:
            _withheld[name] = os.environ.pop(name)
    words = _helper_words()
    try:
        return subprocess.Popen(
            words,
            stdin=theirs.fileno(),
            stdout=2,
            env={**os.environ, **_withheld},
            start_new_session=True,  # a Ctrl-C is torchrun's, and then told
        )
    except OSError as exc:
        raise RendezvousConnectionError(
            f"'{words[0]}' cannot be started: {exc.strerror}; set RDZV_PYTHON to the Python that "
            "has rdzv"
        ) from exc
    finally:
        _forget_folder()


def _helper_words() -> list[str]:
    if python := os.environ.get("RDZV_PYTHON"):
        return [python, "-I", "-m", "rdzv", "_torchrun"]
    if found := shutil.which("rdzv"):
        return [found, "_torchrun"]
    if find_spec("pydantic") is not None and os.path.isfile(_MAIN):
        return [sys.executable, "-I", _MAIN, "_torchrun"]
    raise RendezvousConnectionError(
        "no 'rdzv' is on PATH: set RDZV_PYTHON to the Python that has rdzv, or install it here"
    )


def _forget_folder() -> None:
    """Take the folder that has let torch find this file out of PYTHONPATH: the workers need it
    no more."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    left = [one for one in folders if os.path.abspath(one) != _FOLDER]
    if left != folders:
        _set_variable("PYTHONPATH", os.pathsep.join(left) or None)


def _serve(address: str, port: int) -> TCPStore:
    """The store of MASTER_PORT, at the table's address alone."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listens = socket.create_server((address, port), family=family, backlog=2048)
    except OSError as exc:
        raise RendezvousConnectionError(
            f"the master port {port} cannot be opened: {exc.strerror}"
        ) from exc
    fd = listens.detach()
    return TCPStore(address, port, None, True, wait_for_workers=False, master_listen_fd=fd)


def _kill_workers(others: frozenset[int]) -> None:
    """Nothing may run here any more, as the helper has not said so again: another node may have
    taken this one's place."""
    logger.warning("rdzv: this node has lost its registry, so its workers are ended")
    for pid in _children():
        if pid not in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """The processes that this one has started, and that have not ended."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found


def _is_torchrun() -> bool:
    """Whether this process is torchrun, and not a program that calls it as a library."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), str(getattr(main, "__file__", ""))
    is_script = os.path.basename(file) == "torchrun"
    return is_script or (spec is not None and spec.name == "torch.distributed.run")


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
