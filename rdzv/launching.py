"""The process `rdzv launch --json`, for as long as it lives; see `rdzv.run`."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rdzv.command import RdzvError, error_of, start, text_of

OnEvent = Callable[[Mapping[str, Any]], object]
OnOutput = Callable[[str], object]

_logger = logging.getLogger("rdzv")
_KEPT_LINES = 200
_LAST_LINES_SECONDS = 1.0


class Launcher:
    """The launch, and the two threads that read what it writes.

    It ends its run when this process has ended, however that ends (`--parent`), and this process
    does not exit before its launches have.

    Attributes:
        begun: It has told the run's name, or has ended before that.
        ended: It has ended, and all that it wrote was read.
        launched: Its first event, which has the run's name and folder.
        event: Its newest event of the run; before the first one, none.
        result: Its last event.
        exit_code: Of its process, negative for a signal.
    """

    def __init__(
        self,
        words: list[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, object] | None = None,
        on_event: OnEvent | None = None,
        on_output: OnOutput | None = None,
    ) -> None:
        self._words = [words[0], "--json", "--parent", str(os.getpid()), *words[1:]]
        self._cwd, self._env = cwd, env
        self._on_event = on_event or _ignore
        self._on_output = on_output or _show
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self._unsaid: list[str] = []
        self._saying = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: Exception | None = None
        self._owner = os.getpid()
        self._stopped = False
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.launched: Mapping[str, Any] = {}
        self.event: Mapping[str, Any] = {}
        self.result: Mapping[str, Any] = {}
        self.exit_code = 0
        # A daemon, since an interpreter that exits waits for the others before it ends the runs.
        thread = threading.Thread(target=self._live, name="rdzv-launch", daemon=True)
        _living.add(self)
        thread.start()

    def stop(self) -> None:
        """Send the launch SIGTERM: it ends the run in order, and then itself."""
        self._stopped = True
        if self._process is not None and self.is_own:
            self._process.terminate()

    @property
    def is_own(self) -> bool:
        """Whether this process started it, and not one that this is a fork of."""
        return self._owner == os.getpid()

    @property
    def was_stopped(self) -> bool:
        """Whether it was ended by the signal of `stop`, and did not end in order."""
        return self._stopped and self.exit_code == -signal.SIGTERM

    def refusal(self) -> Exception:
        """Why it has ended without a result."""
        if self._failure is not None:
            return self._failure
        code = self.exit_code
        if code < 0:  # what it had said before is no reason
            return RdzvError(f"'rdzv launch' was killed by signal {-code}", "", 128 - code)
        if not (code or self.launched):
            return RdzvError(
                "'rdzv launch' started no run", "options such as 'help' or 'dry_run' start none", 64
            )
        return error_of("\n".join(self._said), code)

    def _live(self) -> None:
        try:
            process = self._process = start(self._words, subprocess.PIPE, self._cwd, self._env)
            if self._stopped:
                process.terminate()
            other = threading.Thread(
                target=self._read_output, args=(process,), name="rdzv-output", daemon=True
            )
            other.start()
            assert process.stdout is not None
            with process.stdout as lines:
                for line in text_of(lines):
                    self._hear(line)
            self.exit_code = process.wait()
            other.join(_LAST_LINES_SECONDS)  # a stray process may still have that pipe
        except Exception as exc:  # noqa: BLE001 (the caller's thread raises it)
            self._failure = exc
        finally:
            _living.discard(self)
            self.ended.set()
            self.begun.set()

    def _read_output(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in text_of(lines):
                self._say(line)

    def _hear(self, line: str) -> None:
        try:
            event = json.loads(line)
            kind = event["kind"]
        except (ValueError, KeyError, TypeError):  # a help text, a dry run
            self._say(line)
            return
        if kind == "launch":
            with self._saying:
                self.launched = event
                self._show_unsaid()
        elif kind == "result":
            self.result = event
        elif "phase" in event:
            self.event = event
        self._tell(self._on_event, event)
        if self.launched:
            self.begun.set()

    def _say(self, line: str) -> None:
        """Lines of a launch that is refused are the exception's, and not shown beside it."""
        with self._saying:
            self._said.append(line)
            self._unsaid.append(line)
            if self.launched:
                self._show_unsaid()

    def _show_unsaid(self) -> None:
        for line in self._unsaid:
            self._tell(self._on_output, line)
        self._unsaid.clear()

    def _tell(self, listener: Callable[[Any], object], what: object) -> None:
        """What a listener raises must not end the run: it is logged."""
        try:
            listener(what)
        except BaseException:  # also what exits: nobody would read on
            _logger.exception("%r failed; the run continues", listener)


_living: set[Launcher] = set()


@atexit.register
def _end_all() -> None:
    """Whoever exits has no run left: the launches end them in order, which may take `--grace`."""
    own = [one for one in list(_living) if one.is_own]
    for one in own:
        one.stop()
    for one in own:
        one.ended.wait()


def _ignore(_: object) -> None:
    """Nobody listens."""


def _show(line: str) -> None:
    """On this process's standard error, as it is now: a notebook has one of its own."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
