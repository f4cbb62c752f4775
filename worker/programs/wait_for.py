"""`rdzv wait-for`: wait until something listens at a port of a node of this run.

    rdzv wait-for [--timeout SECONDS] head:PORT | node-N:PORT | HOST:PORT

`head` is node 0, and `node-N` node N, at their addresses in the table. It exits with 0 once a TCP
connection was accepted there, with 1 when none was within the time, and with 64 when it cannot know
where that is. Who waits for long is told what for: on standard error, and by this node's agent
(RDZV_SOCKET) on the launcher's terminal.

It is run by its path in a bare interpreter, as `rdzv rsh`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NOT_THERE = 1
USAGE = 64
_USAGE = "rdzv wait-for [--timeout SECONDS] head:PORT | node-N:PORT | HOST:PORT"
_ATTEMPT_SECONDS = 5.0
_PAUSES = (0.1, 0.2, 0.4, 1.0)
_SAY_AT = (10.0, 30.0, 60.0, 120.0)
_SAY_EVERY = 300.0


class UsageError(Exception):
    """What was asked cannot be understood, or not be found."""


class Place(NamedTuple):
    """Where something is to listen.

    Attributes:
        host: An address or a name.
        words: As a person is told of it.
    """

    host: str
    port: int
    words: str


def parse(words: Sequence[str]) -> tuple[str, float | None]:
    """The place as it was given, and the time-out; None: there is none. Raises UsageError."""
    left, place, limit = list(words), "", None
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name == "--timeout" and (equals or left):
            text = value if equals else left.pop(0)
            try:
                limit = float(text)
            except ValueError:
                limit = -1.0
            if not 0 <= limit < 1e9:
                raise UsageError(f"--timeout {text} is not a number of seconds: {_USAGE}")
        elif word.startswith("-") or place:
            raise UsageError(f"{word!a} is not understood: {_USAGE}")
        else:
            place = word
    if not place:
        raise UsageError(f"no place to wait for: {_USAGE}")
    return place, limit


def find(text: str, environ: Mapping[str, str]) -> Place:
    """Where that is; raises UsageError."""
    host, _, number = text.rpartition(":")
    port = int(number) if number.isascii() and number.isdecimal() and len(number) < 6 else 0
    if not host or not 0 < port < 65536:
        raise UsageError(f"{text!a} is not HOST:PORT: {_USAGE}")
    name = "node-0" if host == "head" else host
    number = name[len("node-") :] if name.startswith("node-") else ""
    if not (number.isascii() and number.isdecimal()):
        return Place(host.strip("[]"), port, text)
    address = _address_of(int(number), environ)
    return Place(address or name, port, f"{text} ({address})" if address else text)


def _address_of(node: int, environ: Mapping[str, str]) -> str:
    """The address of a node in the table; empty where only a name can be tried."""
    path = environ.get("RDZV_TABLE")
    if not path and not environ.get("MASTER_ADDR"):
        raise UsageError(
            "head and node-N are known only in the program of a run's node; give HOST:PORT here"
        )
    try:
        with open(path or "", encoding="utf-8") as file:
            rows = {row["node"]: str(row["address"]) for row in json.load(file)["nodes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return environ.get("MASTER_ADDR", "") if node == 0 else ""
    if node not in rows:
        raise UsageError(f"node-{node} is not in this run: it has {len(rows)} nodes, from node-0")
    return rows[node]


def problem_at(place: Place, seconds: float) -> str:
    """Why nothing there accepts a connection; empty when something does."""
    try:
        socket.create_connection((place.host, place.port), max(0.01, seconds)).close()
    except TimeoutError:
        return "no answer"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


class Reports:
    """What is said while it waits, at growing intervals.

    Args:
        agent: The path of the agent's socket; empty: there is none.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._said = 0

    def waited(self, place: Place, seconds: float, problem: str) -> None:
        """Say it when it is time for it."""
        more = self._said - len(_SAY_AT)
        due = _SAY_AT[self._said] if more < 0 else _SAY_AT[-1] + (more + 1) * _SAY_EVERY
        if seconds >= due:
            self._said += 1
            self._say(f"waiting for {place.words}, {due:.0f} s so far; last error: {problem}")

    def ended(self, place: Place) -> None:
        """Say so to whom it was said that this waits."""
        if self._said:
            self._say(f"{place.words} accepts connections now", over=True)

    def _say(self, words: str, *, over: bool = False) -> None:
        say(words)
        if not self._agent:
            return
        try:
            with socket.socket(socket.AF_UNIX) as agent:
                agent.settimeout(1.0)
                agent.connect(self._agent)
                told = {"do": "waits", "words": words, "over": over}
                agent.sendall(json.dumps(told).encode() + b"\n")
        except OSError:
            pass  # it is shown to a person, and needed by nobody


def say(words: str) -> None:
    """Write a line on standard error."""
    os.write(2, f"rdzv wait-for: {words}\n".encode("utf-8", "replace"))


def wait(place: Place, limit: float | None, reports: Reports) -> str:
    """Wait until it is there; returns the last error when it was not within the limit."""
    began, tries = time.monotonic(), 0
    while True:
        waited = time.monotonic() - began
        left = _ATTEMPT_SECONDS if limit is None else min(_ATTEMPT_SECONDS, limit - waited)
        problem = problem_at(place, left)
        waited = time.monotonic() - began
        if not problem:
            reports.ended(place)
            return ""
        pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
        if limit is not None and waited + pause >= limit:
            return problem
        reports.waited(place, waited, problem)
        time.sleep(pause)
        tries += 1


def main(words: Sequence[str]) -> int:
    """Run as the module's docstring says."""
    try:
        text, limit = parse(words)
        place = find(text, os.environ)
    except UsageError as error:
        say(str(error))
        return USAGE
    problem = wait(place, limit, Reports(os.environ.get("RDZV_SOCKET", "")))
    if not problem:
        return 0
    say(f"{place.words} accepted no connection within {limit:g} s; last error: {problem}")
    return NOT_THERE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
