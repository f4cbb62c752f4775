"""`rdzv rsh`: run a command on another node of this run, with ssh's command line and without ssh.

    rdzv rsh [OPTIONS] [USER@]HOST [OPTIONS] COMMAND...

The words of COMMAND are joined with blanks and given to a shell on HOST, as ssh does it. The work
is done by the agent of this node, which RDZV_SOCKET names; this program passes on what it says. It
exits with the command's exit code, or with 255 when the command could not be run.

It is run by its path in a bare interpreter, once for each node that mpirun and its like start
something on, so it imports next to nothing: socket and json would double the time that it takes.
"""

from __future__ import annotations

import _socket
import binascii
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOT_RUN = 255
"""As ssh: it could not be run, or its end is not known."""
MAX_BYTES = 128 * 1024 - 1
"""Of the joined words: the kernel takes no longer one."""

_USAGE = "rdzv rsh [ssh's options] HOST COMMAND..."
_BARE = "1246AaCgKknqTtvXxYy"
_WITH_VALUE = "bcEeFIiJlmoPpSw"


class RefusedError(Exception):
    """Why the command was not run."""


def parse(words: Sequence[str]) -> tuple[str, str]:
    """ssh's command line -> host and command. What its options ask for is done in another way.

    Raises:
        RefusedError: A part is missing, or asks for what cannot be done.
    """
    left = list(words)
    host = ""
    while left:
        word = left.pop(0)
        if word.startswith("-") and len(word) > 1 and word != "--":
            _skip_option(word, left)
        elif word != "--" and not host:
            host = word
        else:
            left = left if word == "--" else [word, *left]
            break
    if not host and left:  # behind "--"
        host = left.pop(0)
    if not host or not left:
        missing = "COMMAND; there is no interactive shell" if host else "HOST"
        raise RefusedError(f"no {missing}: {_USAGE}")
    return host.rpartition("@")[2], " ".join(left)


def _skip_option(word: str, left: list[str]) -> None:
    """One word of options, with its value: -x, -xq, -p 22, -p22, -oX=Y."""
    for index, letter in enumerate(word[1:], 2):
        if letter in _WITH_VALUE:
            if index == len(word):
                if not left:
                    raise RefusedError(f"-{letter} needs a value: {_USAGE}")
                left.pop(0)
            return
        if letter not in _BARE:
            raise RefusedError(f"rdzv rsh does not support ssh's option -{letter}")


def run(host: str, command: str, path: str) -> int:
    """Have the agent behind this socket run the command; its exit code. Raises RefusedError."""
    asked = command.encode("utf-8", "surrogateescape")
    if len(asked) > MAX_BYTES:
        raise RefusedError(f"COMMAND has {len(asked)} bytes; at most {MAX_BYTES} can be run")
    if not host.isascii() or not host.isprintable() or '"' in host or "\\" in host:
        raise RefusedError(f"{host!a} is not a valid host name")
    text = binascii.b2a_base64(asked, newline=False).decode()
    request = f'{{"do": "exec", "host": "{host}", "command": "{text}"}}\n'
    agent = _socket.socket(_socket.AF_UNIX)
    try:
        agent.connect(path)
        agent.sendall(request.encode())
    except OSError as error:
        raise RefusedError(f"no agent of a node at {path}: {error.strerror}") from error
    with open(agent.detach(), "rb", buffering=65_536) as answers:
        return _pass_on(answers)


def _pass_on(answers: Iterable[bytes]) -> int:
    """Each answer is a JSON object with one key; all but an error are read by looking at them."""
    try:
        for line in answers:
            if not line.endswith(b"\n"):
                break
            key, _, value = line.strip(b"{}\n").partition(b": ")
            if key in (b'"stdout"', b'"stderr"'):
                _write(1 + (key == b'"stderr"'), binascii.a2b_base64(value.strip(b'"')))
            elif key == b'"exit"':
                return int(value)
            else:
                import json

                raise RefusedError(json.loads(line)["error"])
    except ConnectionResetError:
        pass
    raise RefusedError("this node's agent ended before the command did")


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # whoever gave it to us had made it non-blocking
            select.select([], [fd], [])


def main(words: Sequence[str]) -> int:
    """Run as the module's docstring says."""
    path = os.environ.get("RDZV_SOCKET")
    try:
        if not path:
            raise RefusedError(
                "RDZV_SOCKET is not set: rdzv rsh works only in the program of a run's node"
            )
        return run(*parse(words), path)
    except RefusedError as refused:
        os.write(2, f"rdzv rsh: {refused}\n".encode("utf-8", "replace"))
    except BrokenPipeError:  # nobody reads what the command prints
        pass
    return NOT_RUN


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
