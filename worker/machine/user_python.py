"""Which Python the user's program runs on, and what is installed there: read, never started.

rdzv has an environment of its own, so its own packages say nothing. The program's interpreter is
the one that `torchrun`, or COMMAND itself, names in its first line; torch is looked up in that
interpreter's folders, and importing it (seconds, and a CUDA context) is not needed for a version.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rendezvous.frozen import frozen
from worker.machine import sysfs

_PYTHON = re.compile(r"python(?P<version>3(\.[0-9]+)?)?t?\Z")
_VERSION = re.compile(r"python(3\.[0-9]+)")
_SHELL_FORM = re.compile(r"'''exec' \"?(?P<path>/[^\"\n]*?)\"? \"\$0\"")
_TORCH_VERSION = re.compile(r"^__version__ *= *['\"]([^'\"\n]+)['\"]", re.MULTILINE)
_TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*= *['\"]([0-9.]+)['\"]", re.MULTILINE)
_NCCL = re.compile(r"nvidia_nccl_cu[0-9]+-(?P<version>[0-9][0-9.]*[0-9])\.dist-info\Z", re.I)
_LIBNCCL = re.compile(r"libnccl\.so\.([0-9]+\.[0-9]+\.[0-9]+)\Z")
_SHARED = re.compile(r"^include-system-site-packages *= *true", re.MULTILINE | re.IGNORECASE)
_HOME = re.compile(r"^home *= *(.+)$", re.MULTILINE)
_DEBIAN = (Path("/usr"), Path("/"))
_SYSTEM = (*_DEBIAN, Path("/usr/local"))
_HEAD_BYTES = 2_048


@frozen
class UserPython:
    """What the user's program will find; what could not be told is empty.

    Attributes:
        executable: The interpreter.
        version: As 3.12: what compiled packages must fit.
        torch: Its version, with the build's name (2.9.0+cu128).
        cuda: What that torch was built for; empty for a CPU build.
        nccl: What that torch will load.
    """

    executable: str = ""
    version: str = ""
    torch: str = ""
    cuda: str = ""
    nccl: str = ""


def look_user_python(program: str, environ: Mapping[str, str]) -> UserPython:
    """Find the interpreter that the program will run on, and what is installed for it.

    Args:
        program: `torchrun`, or COMMAND's first word; of one that is no Python program, the user's
            `torchrun` or `python3` is looked at.
        environ: The user's environment: PATH, PYTHONPATH and HOME count.
    """
    words = (program, "torchrun", "python3", "python")
    interpreter = next(filter(None, (_python_behind(word, environ) for word in words)), None)
    if interpreter is None:
        return UserPython()
    version = _version(interpreter)
    folders = list(_folders(interpreter, version, environ))
    torch, cuda = _torch(folders)
    nccl = _nccl(folders) or _own_nccl(interpreter) if cuda else ""
    return UserPython(str(interpreter), version, torch, cuda, nccl)


def has_module(program: str, environ: Mapping[str, str], names: Sequence[str]) -> bool | None:
    """Whether one of these modules is installed for the Python that a program runs on.

    Args:
        program: An interpreter, or a script that names one in its first line.
        environ: The user's environment.
        names: Modules of the first level.

    Returns:
        None when that cannot be told: no Python, or none whose folders are known.
    """
    interpreter = _python_behind(program, environ)
    version = _version(interpreter) if interpreter else ""
    if interpreter is None or not version:
        return None

    folders = [each for each in _folders(interpreter, version, environ) if os.path.isdir(each)]
    folders += [linked for each in folders for linked in _linked(each)]
    return any(_holds(each, name) for each in folders for name in names) if folders else None


def _linked(folder: Path) -> Iterator[Path]:
    """The folders that a site folder's .pth files add to the path."""
    for entry in sysfs.entries(folder):
        if entry.suffix == ".pth":
            lines = (line.strip() for line in _text(entry).splitlines())
            yield from (folder / line for line in lines if line and not line.startswith("import "))


def _holds(folder: Path, name: str) -> bool:
    """Whether a folder holds a module; one that is installed for editing has its record alone."""
    return (
        os.path.isdir(folder / name)
        or os.path.isfile(folder / f"{name}.py")
        or any(folder.glob(f"{name}-*.dist-info"))
        or any(folder.glob(f"{name}.*.so"))
    )


def _python_behind(word: str, environ: Mapping[str, str]) -> Path | None:
    """The interpreter that runs the program of this name; None when there is no such program, or
    that is no Python (or a shim decides)."""
    found = shutil.which(word, path=environ.get("PATH", ""))
    return _started_by(Path(found), environ)[0] if found else None


def absent_interpreter(program: str) -> str:
    """Interpreter that a script names in its first line and that is not there; empty: none is.

    An environment that was moved or removed leaves scripts that look executable, and cannot start.

    Args:
        program: The path of the script.
    """
    try:
        with open(program, "rb") as file:
            first = file.read(_HEAD_BYTES).partition(b"\n")[0].decode(errors="replace")
    except OSError:
        return ""
    words = first[2:].split(maxsplit=1) if first.startswith("#!") else []
    return words[0] if words and not os.path.exists(words[0]) else ""


def script_start(script: Path, environ: Mapping[str, str]) -> list[str]:
    """The interpreter and the flags with which a Python script is started.

    Empty where its first line names none, or a way to it that is not known.
    """
    interpreter, flags = _started_by(script, environ)
    return [] if interpreter is None or flags is None else [str(interpreter), *flags]


def _started_by(program: Path, environ: Mapping[str, str]) -> tuple[Path | None, list[str] | None]:
    """The interpreter of a program, and its flags; None: of what is no Python, or not known."""
    try:
        with program.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return None, None
    if not head.startswith("#!"):
        return (program if _PYTHON.match(program.name) else None), None
    words = head[2:].partition("\n")[0].split(maxsplit=1)
    if words and Path(words[0]).name == "env":
        given = words[1].split() if words[1:] else []
        word = next((word for word in given if not word.startswith("-")), "")
        found = _python_behind(word, environ) if _PYTHON.match(word) else None
        return found, [] if given == [word] else None
    # The form in which pip writes an interpreter whose path is too long for a first line.
    shell = _SHELL_FORM.search(head)
    path = Path(shell["path"] if shell else " ".join(words[:1]))
    flags = [] if shell else [flag.strip() for flag in words[1:]]
    return (path if _PYTHON.match(path.name) and os.path.exists(path) else None), flags


def _version(interpreter: Path) -> str:
    """3.12, by pyvenv.cfg, by the name of the file, or by the one library folder there is."""
    config = re.search(r"^version(?:_info)? *= *(3\.[0-9]+)", _config(interpreter), re.MULTILINE)
    if config:
        return config[1]
    named = _VERSION.match(interpreter.resolve().name)
    if named:
        return named[1]
    folders = sysfs.entries(interpreter.parent.parent / "lib")
    versions = {match[1] for folder in folders if (match := _VERSION.fullmatch(folder.name))}
    return versions.pop() if len(versions) == 1 else ""


def _config(interpreter: Path) -> str:
    """pyvenv.cfg, where the interpreter is a virtual environment's."""
    return _text(interpreter.parent.parent / "pyvenv.cfg")


def _folders(interpreter: Path, version: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where this interpreter looks for packages, in its order."""
    yield from (Path(word) for word in environ.get("PYTHONPATH", "").split(":") if word)
    config = _config(interpreter)
    base = environ.get("PYTHONUSERBASE") or (environ.get("HOME") and f"{environ['HOME']}/.local")
    if base and (not config or _SHARED.search(config)):
        yield Path(base, f"lib/python{version}/site-packages")
    for prefix in _prefixes(interpreter):
        yield from _site_folders(prefix, version)


def _prefixes(interpreter: Path) -> Iterator[Path]:
    """Where this interpreter is installed, and what a virtual environment shares with another."""
    yield interpreter.parent.parent
    config = _config(interpreter)
    home = _HOME.search(config) if _SHARED.search(config) else None
    if home:
        yield Path(home[1].strip()).parent


def _site_folders(prefix: Path, version: str) -> Iterator[Path]:
    if prefix in _DEBIAN:
        yield Path(f"/usr/local/lib/python{version}/dist-packages")
        yield Path("/usr/lib/python3/dist-packages")
    for lib in ("lib", "lib64"):
        yield prefix / lib / f"python{version}/site-packages"


def _torch(folders: Sequence[Path]) -> tuple[str, str]:
    """The versions of torch and of the CUDA that it was built for."""
    for folder in folders:
        text = _text(folder / "torch/version.py")
        version = _TORCH_VERSION.search(text)
        if version:
            cuda = _TORCH_CUDA.search(text)
            return version[1], cuda[1] if cuda else ""
    return "", ""


def _nccl(folders: Sequence[Path]) -> str:
    """The version of NCCL's package, which torch's own builds need."""
    for folder in folders:
        for entry in sysfs.entries(folder):
            found = _NCCL.match(entry.name)
            if found:
                return found["version"]
    return ""


def _own_nccl(interpreter: Path) -> str:
    """The version of the library in the interpreter's own `lib`, which conda's torch loads.

    The system's library tells nothing: a torch may bring its own inside.
    """
    prefixes = [prefix for prefix in _prefixes(interpreter) if prefix not in _SYSTEM]
    for prefix in prefixes:
        found = _LIBNCCL.match((prefix / "lib/libnccl.so.2").resolve().name)
        if found:
            return found[1]
    return ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(65_536).decode(errors="replace")
    except OSError:
        return ""
