"""A torchrun that is begun while the nodes find each other, and told at the go how it is called.

Importing torch is nearly all of torchrun's start, and depends on nothing that the nodes agree on.
`worker.programs.early_torchrun` does it, below a keeper as every program is. Where anything is in
the way, torchrun is started at the go, as any program: a wrapper in its place, an environment that
an import may have read before it was changed, a process that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rendezvous.frozen import frozen
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.talk.secret_words import is_secret
from rendezvous.wire.errors import RdzvError
from worker.contracts.framework import HOOK
from worker.contracts.looking import with_hook
from worker.machine.user_python import script_start
from worker.program.kept import Kept, end_kept, has_ended, start_keeper
from worker.program.output import Output
from worker.program.process import Program
from worker.program.rank_streams import RankStreams
from worker.programs import early_torchrun

_SCRIPT = re.compile(
    rb"(#.*\n|'''exec' .*\n|' '''\n|import (re|sys)\n|\n)*"
    rb"from torch\.distributed\.run import main\n"
)
"""How the script begins that pip, uv or conda write; another may choose which torch is imported."""

_LARGEST_SCRIPT = 65_536
_FREE = re.compile(
    "(MASTER|RDZV|NCCL|GLOO|TP|UCX|OMPI_MCA|PET)_.*|NODE_RANK|NNODES|NPROC_PER_NODE"
    "|TORCH_ELASTIC_SHUTDOWN_TIMEOUT|COLUMNS|LINES|TQDM_NCOLS"
)
"""Variables that no import reads: ranks and torchrun's own options do. To an import that reads the
terminal's size it does no harm to have the former one."""


class EarlyTorchrun:
    """The torchrun that a node begins before its go; at most one, and perhaps none.

    Args:
        command: How COMMAND calls torchrun's script; its arguments are seen by `ps` alone.
        environ: The user's environment.
        grace_seconds: As of a `Program`.
        in_thread: Calls something that may hang.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        grace_seconds: float,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._command = command
        self._given = {n: v for n, v in environ.items() if n not in SECRET_VARIABLES}
        self._grace_seconds = grace_seconds
        self._in_thread = in_thread
        self._script = ""
        self._kept: Kept | None = None
        self._wanted = True

    async def begin(self) -> None:
        """Look for torchrun's script, and start what imports for it, where that can be."""
        with contextlib.suppress(OSError, RdzvError):
            look = self._in_thread(look_script, self._command[0], self._given)
            self._script, start = await look
            if start and self._wanted:
                program = str(Path(early_torchrun.__file__).resolve())
                command = [*start, program, self._script, *self._command[1:]]
                self._kept = await start_keeper(
                    command, self._given, self._grace_seconds, stdin=asyncio.subprocess.PIPE
                )
        if not self._wanted:
            await self.end()

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        output: Output,
        ranks: RankStreams | None = None,
        until: float | None = None,
    ) -> Program | None:
        """Make a program of it, called like this; None where it does not fit, and it is ended."""
        self._wanted = False  # a disk that hangs is not waited for
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        order = order_of([self._script, *argv[1:]], self._given, env)
        if order is None or has_ended(kept):
            await end_kept(kept)
            return None
        program = Program.of_begun(
            kept,
            env,
            grace_seconds=self._grace_seconds,
            output=output,
            ranks=ranks,
            until=until,
        )
        assert kept.process.stdin is not None
        kept.process.stdin.write(order)
        kept.process.stdin.close()
        return program

    async def end(self) -> None:
        """End it, if it has not become a program."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await end_kept(kept)


def look_script(launcher: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """torchrun's script, with its interpreter and flags; without these where it is another's."""
    script = shutil.which(launcher, path=environ.get("PATH", "")) or ""
    path = Path(script)
    if not os.path.isfile(path) or path.stat().st_size > _LARGEST_SCRIPT:
        return script, []
    return script, script_start(path, environ) if _SCRIPT.match(path.read_bytes()) else []


@frozen
class Changes:
    """What is changed in an environment, before a program in it is told.

    Attributes:
        set: Variables with new values.
        unset: Variables that are taken out.
        seen: Those of them that an import may have read before.
    """

    set: Mapping[str, str]
    unset: frozenset[str]
    seen: frozenset[str]

    def order(self, **more: object) -> bytes:
        """As one JSON object, with what else is told."""
        unset = [latin(name) for name in sorted(self.unset)]
        return json.dumps({**more, "set": latin_variables(self.set), "unset": unset}).encode()


def changes(given: Mapping[str, str], env: Mapping[str, str]) -> Changes:
    """What turns the environment `given`, in which something was begun, into `env`."""
    unset = given.keys() - env.keys()
    changed = {name: value for name, value in env.items() if given.get(name) != value}
    # The hook is for the ranks, which inherit it: torchrun itself does well without.
    hooked = with_hook(HOOK, given)
    free = {"PYTHONPATH"} if changed.get("PYTHONPATH") == hooked else set()
    seen = {name for name in (unset | changed.keys()) - free if not _FREE.fullmatch(name)}
    return Changes(changed, frozenset(unset), frozenset(seen))


def order_of(argv: Sequence[str], given: Mapping[str, str], env: Mapping[str, str]) -> bytes | None:
    """What turns a torchrun that was begun in the environment `given` into one begun in `env`.

    None where a variable has changed that an import may have read; none of torchrun's reads a
    secret, and those come after it has begun.
    """
    found = changes(given, env)
    return None if without_secrets(found.seen) else found.order(argv=[latin(word) for word in argv])


def without_secrets(names: Iterable[str]) -> set[str]:
    """Names of variables that torch's and torchrun's own imports may read: of no secret."""
    return {name for name in names if not is_secret(name)}


def latin(text: str) -> str:
    """Bytes, as JSON can hold them."""
    return os.fsencode(text).decode("latin-1")


def latin_variables(named: Mapping[str, str]) -> dict[str, str]:
    """Return names and values as `latin` has them."""
    return {latin(name): latin(value) for name, value in named.items()}
