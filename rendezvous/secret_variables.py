"""The variables that hold secrets, and the files without a name in which their values go on.

Deleting a variable leaves it readable in /proc/PID/environ; what is started without it has it not.
`rdzv_command` loads this file by its path, before anything else: it imports next to nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import BinaryIO

SECRETS = ("RDZV_JOIN", "RDZV_TOKEN", "RDZV_REGISTRY", "RDZV_UI_KEY", "RDZV_VIEW")
SECRET_VARIABLES = tuple(name + end for name in SECRETS for end in ("", "_FILE"))
"""The secrets, and those that name the file of one: no program of the user's gets them."""

_DESCRIPTORS = "/proc/self/fd/"


def anonymous_file(name: str, content: bytes) -> BinaryIO:
    """A file that is in no folder, at its start; a child has to be given it on purpose."""
    file = open(os.memfd_create(name), "w+b")  # noqa: SIM115 (the caller's to close)
    file.write(content)
    file.seek(0)
    return file


def path_of(fd: int) -> str:
    """Where a process that has inherited the descriptor reads the file from its start."""
    return f"{_DESCRIPTORS}{fd}"


def descriptor_of(path: str) -> int | None:
    """The inverse of `path_of`; None where the file has a name."""
    return int(path[len(_DESCRIPTORS) :]) if path.startswith(_DESCRIPTORS) else None


def hide(environ: MutableMapping[str, str]) -> bool:
    """Move each secret into a file that `<name>_FILE` names, for what replaces this program.

    Returns:
        Whether a variable was taken away.
    """
    found = {name: environ.pop(name) for name in SECRETS if name in environ}
    for name, value in found.items():
        if value:  # set to nothing is not set
            with anonymous_file(name.lower(), os.fsencode(value)) as file:
                fd = os.dup(file.fileno())
            os.set_inheritable(fd, True)
            environ[f"{name}_FILE"] = path_of(fd)
    return bool(found)
