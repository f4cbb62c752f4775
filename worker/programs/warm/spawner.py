"""Starts the processes of a node where none can be forked, as Python starts any program.

    PYTHON -u spawner.py PROGRAM [ARGUMENT ...] < ORDER

A node of `--warm on` whose zygote is not to be had starts its processes so, and not by torchrun:
that would wait for the torchruns of the other nodes, and there are none. What the processes are
given, how they are seen through, and MASTER_PORT's store are those of `starter`. Its ORDER is read
from standard input, with one name more:

    port      where MASTER_PORT's store listens; null: on another node

torch is imported once the processes are there, which import it as well: the store, and what this
node tells the others' store at its end, need it. PROGRAM and its ARGUMENTs say to people whose this
is.

It is run by its path on the user's interpreter, imports the standard library and modules of this
project that do the same, and keeps to what Python 3.9 knows.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if not __package__:  # run by its path; a user's modules may have our modules' names
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from worker.programs.early_torchrun import read_order
from worker.programs.warm.rank import forget_ours
from worker.programs.warm.starter import OwnRanks, await_others, ranks_of, room_for_errors
from worker.programs.warm.store import CannotListen, serve_here

_TORCH = "torch.distributed"
_CANNOT = 1
"""The exit code where torch cannot be imported, or the store cannot listen."""


class _Enough(BaseException):
    """Ends the import of torch: the processes of this node end, or are to end."""


class SpawnedProcesses(OwnRanks):
    """The processes of this node, each started by Python.

    Args:
        words: As of `OwnRanks`.
        environs: The same.
        port: Where MASTER_PORT's store listens; None: on another node.
    """

    def __init__(
        self, words: Sequence[str], environs: Sequence[Mapping[str, str]], port: int | None
    ) -> None:
        super().__init__(words, environs)
        self._port = port
        self._store: object = None
        self._imports = False

    def _start(self, local_rank: int) -> None:
        try:
            self._running[local_rank] = subprocess.Popen(
                [sys.executable, "-u", *self._words],
                env=self._environs[local_rank],
                start_new_session=True,
            )
        except OSError as error:
            self._give_up(f"{sys.executable!r} cannot be started: {error.strerror}")

    def _all_started(self) -> None:
        """Import torch, and let the store listen; where that fails, so does this node."""
        before = signal.signal(signal.SIGCHLD, lambda number, frame: self._import_no_more())
        try:
            self._imports = True
            self._import_no_more()  # one may have failed before its signal was handled
            importlib.import_module(_TORCH)
            if self._port is not None:
                self._store = serve_here(self._port)
            self._imports = False
        except _Enough:
            pass
        except CannotListen as error:
            self._give_up(f"MASTER_PORT's store: {error}")
        except Exception as error:  # noqa: BLE001 (an import may raise anything)
            self._give_up(f"the import of torch failed with {type(error).__name__}: {error}")
        finally:
            self._imports = False
            signal.signal(signal.SIGCHLD, before)

    def _on_stop_signal(self, number: int) -> None:
        super()._on_stop_signal(number)
        self._import_no_more()

    def _import_no_more(self) -> None:
        """Let the import go where nobody needs it; it may take longer than the grace."""
        if self._imports and (self.is_told or self._has_failed()):
            self._imports = False
            raise _Enough

    def _give_up(self, why: str) -> None:
        """Say why there are no processes here, and end those that run."""
        sys.stderr.write(f"rdzv: {why}\n")
        sys.stderr.flush()
        self._fail(_CANNOT)


def main() -> int:
    """Run as the module's docstring says; the exit code."""
    forget_ours()
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        del sys.path[0]  # this file's folder
    if (order := read_order()) is None:
        return 0
    environ = dict(os.environ)
    folder = room_for_errors(environ)
    port = order["port"]
    processes = SpawnedProcesses(*ranks_of(order, environ, folder), port)
    code = processes.run()
    shutil.rmtree(folder, ignore_errors=True)
    await_others(processes, code, environ, serves=port is not None)
    return code


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # Python would take torch apart first, piece by piece
