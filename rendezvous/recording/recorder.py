"""Writes down what a machine is fed. A disk that hangs or is full costs the recording, no more."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from operator import methodcaller
from queue import SimpleQueue
from typing import Any, Protocol

from rendezvous.background import in_background
from rendezvous.frozen import frozen
from rendezvous.recording.values import Hide, plain, words
from rendezvous.version import rdzv_version

logger = logging.getLogger(__name__)

FORMAT = 1
LIMIT_BYTES = 64 << 20
"""Of one recording: of a longer one the beginning and the newest are kept."""
_MOST_WAITING = 1_000
_SHORT = (int, float, str, type(None))
_CLOSE_SECONDS = 1.0

Step = Callable[[Any, float], Iterable[Any]]


@frozen
class Codec:
    """What a recording has to know of one kind of machine.

    Attributes:
        of: Its name in the file.
        inputs: Their classes.
        made_with: What the machine is made with: by name, the types.
        without_secrets: An input without what must not be written down; the machine does the same
            with it.
        hide: A text, likewise.
        start: Makes the machine, and starts it at this time; returns what it does first, and the
            step.
    """

    of: str
    inputs: tuple[type, ...]
    made_with: Mapping[str, type]
    without_secrets: Callable[[Any], Any]
    hide: Hide
    start: Callable[[Mapping[str, Any], float], tuple[Iterable[Any], Step]]


class Sink(Protocol):
    """Where the lines go; both raise OSError."""

    def write(self, data: bytes) -> None:
        """Append whole lines."""

    def close(self) -> None:
        """Nothing more comes."""


class DirectRecorder:
    """Writes a recording as the inputs come.

    Args:
        codec: Of the machine.
        sink: Takes the lines.
    """

    def __init__(self, codec: Codec, sink: Sink) -> None:
        self._codec = codec
        self._sink = sink
        self._number = 0
        self._last: dict[tuple[type, str], Any] = {}

    def begin(self, made_with: Mapping[str, Any], at: float, actions: Sequence[Any] = ()) -> None:
        """See `rendezvous.shell.Recorder`."""
        hide = self._codec.hide
        self._write(
            rdzv="recording",
            format=FORMAT,
            of=self._codec.of,
            version=rdzv_version(),
            at=at,
            made_with={name: plain(one, hide) for name, one in made_with.items()},
            actions=[words(action) for action in actions],
        )

    def take(self, said: Any, at: float, actions: Sequence[Any]) -> None:
        """See `rendezvous.shell.Recorder`."""
        self._number += 1
        bare = self._codec.without_secrets(said)
        values, same = {}, []
        for field in fields(bare):
            value, key = getattr(bare, field.name), (type(said), field.name)
            if not isinstance(value, _SHORT) and self._last.get(key) == value:
                same.append(field.name)  # a run that goes on has no news for hours
                continue
            self._last[key] = value
            values[field.name] = plain(value, self._codec.hide)
        done = [words(action) for action in actions]
        more = {"values": values, "same": same, "actions": done}
        more = {name: one for name, one in more.items() if one}
        self._write(number=self._number, at=at, input=type(said).__name__, **more)

    def miss(self, count: int) -> None:
        """So many inputs are not in the recording: their numbers are left out."""
        self._number += count

    async def close(self) -> None:
        """See `rendezvous.shell.Recorder`."""

    def _write(self, **line: Any) -> None:
        self._sink.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


class BackgroundRecorder:
    """Writes a recording in a thread that nobody waits for.

    Args:
        codec: Of the machine.
        open_sink: Opens the file, in that thread; raises OSError.
    """

    def __init__(self, codec: Codec, open_sink: Callable[[], Sink]) -> None:
        self._waiting: SimpleQueue[Callable[[DirectRecorder], None] | None] = SimpleQueue()
        self._missed = 0
        work = partial(self._work, codec, open_sink)
        self._thread = threading.Thread(target=work, name="recorder", daemon=True)
        self._thread.start()

    def begin(self, made_with: Mapping[str, Any], at: float, actions: Sequence[Any] = ()) -> None:
        """See `rendezvous.shell.Recorder`."""
        self._waiting.put(methodcaller("begin", made_with, at, actions))

    def take(self, said: Any, at: float, actions: Sequence[Any]) -> None:
        """See `rendezvous.shell.Recorder`; what finds no room is missing."""
        if not self._thread.is_alive() or self._waiting.qsize() >= _MOST_WAITING:
            self._missed += 1
            return
        if self._missed:
            self._waiting.put(methodcaller("miss", self._missed))
            self._missed = 0
        self._waiting.put(methodcaller("take", said, at, actions))

    async def close(self) -> None:
        """Wait a moment until all is written."""
        self._waiting.put(None)
        await in_background(self._thread.join, _CLOSE_SECONDS)

    def _work(self, codec: Codec, open_sink: Callable[[], Sink]) -> None:
        try:
            sink = open_sink()
            recorder = DirectRecorder(codec, sink)
            while (write := self._waiting.get()) is not None:
                write(recorder)
            sink.close()
        except Exception as exc:  # noqa: BLE001 (the machine does without)
            logger.info("the run is not recorded from here on: %s", exc if str(exc) else repr(exc))
