"""Whether what a contract needs is installed on this node: looked for, and nothing is imported.

Only a program that another make may take the place of is asked for its version, and one that may
have been built without what the table needs is asked for that.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable
from worker.contracts import FRAMEWORKS, needs_of
from worker.contracts.choice import no_python_script
from worker.contracts.framework import SHELLS, Lack, Need, Rival
from worker.contracts.script import Script, script_of
from worker.contracts.torchrun import names_python, python_target
from worker.machine import aside
from worker.machine.user_python import absent_interpreter, has_module
from worker.program.first_line import first_line_problem, is_noexec

_VERSION_SECONDS = 5.0
_NAME_CHARACTERS = 200
_MOST_CONFIG = 65_536
_HEAD_BYTES = 512
_LAUNCH_FOLDERS = ("RDZV_LAUNCH_FOLDER", "SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "LS_SUBCWD")
"""Variables that name the folder where the launch was started: of the ssh spec, of schedulers."""
_SHEBANG = re.compile(rb"#![ \t]*(?:\S*/env[ \t]+)?(?:\S*/)?(?P<name>[a-z]+)\b")


def user_program(command: Sequence[str], framework: str) -> str:
    """What the user's Python is found by: the framework's launcher, or COMMAND's own program."""
    try:
        needs = FRAMEWORKS[framework].needs(command) if command else ()
    except UsageError:  # it is refused where it would be started
        needs = ()
    return needs[0].program if needs else "torchrun"


def missing_here(
    framework: str, command: Sequence[str], environ: Mapping[str, str], *, leads: bool
) -> str:
    """What a node that starts COMMAND in this folder can never do without, and is not here: its
    launcher, what that needs, or its script. One sentence; empty when nothing is known to be.

    Args:
        framework: A name of `FRAMEWORKS`.
        command: The COMMAND; it has been checked.
        environ: The user's environment.
        leads: Whether it is the node of a led framework's launcher.
    """
    needs = needs_of(framework, command, leads=leads)
    # Whose a program is takes its time to find out, and is looked at before the start.
    missing = missing_of((replace(need, rivals=()) for need in needs), environ)
    config = FRAMEWORKS[framework].config_file(command, {})
    scripts = [script_of(framework, command, environ), Script(config) if config else None]
    return missing or next(filter(None, (missing_script(one, environ) for one in scripts)), "")


def read_config(framework: str, command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Read the file that decides how the launcher of COMMAND starts the processes.

    Args:
        framework: A name of `FRAMEWORKS`.
        command: The COMMAND; it has been checked.
        environ: The user's environment.

    Returns:
        Its text; empty where there is none, or it cannot be read here.
    """
    path = FRAMEWORKS[framework].config_file(command, environ) if command else ""
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CONFIG)
    except (OSError, ValueError):
        return ""


def missing_of(needs: Iterable[Need], environ: Mapping[str, str]) -> str:
    """What is missing and how to install it, in one sentence; empty when nothing is known to be.

    Args:
        needs: Of the contract.
        environ: The program's environment: PATH, PYTHONPATH and HOME count.
    """
    path = environ.get("PATH", "")
    for need in needs:
        found = shutil.which(need.program, path=path) if need.program else None
        if need.program and found is None:
            return _words_of_program(need, path, environ)
        if need.install and found and (interpreter := absent_interpreter(found)):
            return (
                f"'{found}' cannot start on this node: its interpreter '{interpreter}' is not "
                f"there; install {need.name} again in the job's environment ({need.install}), or "
                "put another environment first on PATH"
            )
        if not need.install and found and (problem := first_line_problem(found)):
            name = printable(need.program, _NAME_CHARACTERS)
            return f"'{name}' of COMMAND cannot be started: {problem}"
        if need.modules and has_module(need.program, environ, need.modules) is False:
            return (
                f"{need.name} is not installed for '{found}' on this node; install it in the "
                f"job's environment ({need.install}), or put that environment first on PATH"
            )
        if found and need.rivals and (rival := _rival(need, found, environ)):
            return (
                f"'{found}' is {rival.name}'s, and would not start processes on the other "
                f"nodes as {need.name}'s does; use {rival.instead}, or put {need.name}'s first "
                "on PATH"
            )
        if found and need.lack and _lacks(need.lack, found, environ):
            return f"'{found}' {need.lack.words}"
    return ""


def missing_script(script: Script | None, environ: Mapping[str, str]) -> str:
    """Whether COMMAND's script is not there, in one sentence; empty when that is not certain.

    A disk that hangs or refuses tells nothing.
    """
    if script is None:
        return ""
    found = shutil.which(script.path, os.F_OK, environ.get("PATH", ""))
    if script.on_path and found:
        return ""
    try:
        os.stat(script.path)
    except (FileNotFoundError, NotADirectoryError):
        if found:
            name, where = printable(script.path, _NAME_CHARACTERS), _where(script.path, environ)
            return (
                f"'{name}' of COMMAND is a program on PATH ({found}), but its launcher starts "
                f"Python scripts, and there is no such file{where}"
            )
        return _absent(script.path, environ)
    except (OSError, ValueError):
        pass
    return ""


def refuse_program(command: Sequence[str], framework: str, environ: Mapping[str, str]) -> None:
    """Refuse a program as the script that torchrun would start, with what starts it.

    Args:
        command: The COMMAND; it has been checked.
        framework: A name of `FRAMEWORKS`.
        environ: The user's environment.

    Raises:
        WrongCommand: It is a file that Python cannot run, or there is none of its name in this
            folder but one on PATH.
    """
    target = python_target(command) if framework == "torchrun" else []
    if not target or names_python(command) or script_of(framework, command, environ) is None:
        return
    is_elsewhere = "/" not in target[0] and not os.path.exists(target[0])
    is_program = is_elsewhere and shutil.which(target[0], path=environ.get("PATH", "")) is not None
    if is_program or _is_no_python(target[0]):
        raise no_python_script(target)


def _is_no_python(path: str) -> bool:
    """Return whether Python certainly cannot run this file: a binary, or a script of a shell.

    Where the path of an interpreter is long, pip writes a shell's line in front of a Python script;
    the shell's part is in a string of Python's then.
    """
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            first, _, rest = file.read(_HEAD_BYTES).partition(b"\n")
    except OSError:
        return False
    shell = _SHEBANG.match(first)
    is_shell = shell is not None and shell["name"].decode() in SHELLS
    is_string = rest.lstrip().startswith((b"'''", b'"""'))
    return first.startswith(b"\x7fELF") or (is_shell and not is_string)


def _absent(path: str, environ: Mapping[str, str]) -> str:
    """That a file of COMMAND is not on this node, and where it was looked for."""
    name, launched = printable(path, _NAME_CHARACTERS), absent_folder(environ)
    if os.path.isabs(path):
        return f"{name} does not exist on this node{_where(path, environ)}"
    try:
        here = f"in {printable(os.getcwd(), _NAME_CHARACTERS)}"
    except OSError:
        here = "here: the working directory was removed"
    return f"{name} does not exist {here}" + (f"; {launched}" if launched else "")


def _where(path: str, environ: Mapping[str, str]) -> str:
    """The folder that a relative path begins at; and that of the launch, where it is not here."""
    launched = absent_folder(environ)
    if os.path.isabs(path):
        return f"; {launched}" if launched and _is_below(path, environ) else ""
    try:
        here = f"in {printable(os.getcwd(), _NAME_CHARACTERS)}"
    except OSError:
        here = "its working directory was removed"
    return f" ({here}); {launched}" if launched else f" ({here})"


def absent_folder(environ: Mapping[str, str]) -> str:
    """That the folder where the launch was started is not on this node; empty: not known to be."""
    folder = _launch_folder(environ)
    try:
        if not folder or stat.S_ISDIR(os.stat(folder).st_mode):
            return ""
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError):
        return ""
    return (
        f"the launch folder {printable(folder, _NAME_CHARACTERS)} does not exist here: copy it to "
        "this node, or launch from a folder that all nodes share"
    )


def _launch_folder(environ: Mapping[str, str]) -> str:
    return next(filter(None, (environ.get(name, "") for name in _LAUNCH_FOLDERS)), "")


def _is_below(path: str, environ: Mapping[str, str]) -> bool:
    return path.startswith(_launch_folder(environ).rstrip("/") + "/")


def _rival(need: Need, program: str, environ: Mapping[str, str]) -> Rival | None:
    """Whose program it is by its version; None where that is no rival's, or cannot be told."""
    said = aside.run([program, "--version"], environ, limit_seconds=_VERSION_SECONDS).text
    return next((rival for rival in need.rivals if re.search(rival.version, said)), None)


def _lacks(lack: Lack, program: str, environ: Mapping[str, str]) -> bool:
    """Whether it certainly was built without this: another folder's teller is of another build."""
    teller = shutil.which(lack.told_by[0], path=os.path.dirname(program))
    if teller is None:
        return False
    argv = [teller, *lack.told_by[1:]]
    said = aside.run(argv, environ, limit_seconds=_VERSION_SECONDS).text
    return re.search(lack.pattern, said) is not None


def _words_of_program(need: Need, path: str, environ: Mapping[str, str]) -> str:
    name = printable(need.program, _NAME_CHARACTERS)
    if "/" in need.program or need.program in (".", ".."):
        if os.path.isdir(need.program):
            return f"'{name}' of COMMAND is a folder on this node, not a program"
        if os.path.exists(need.program):
            how = "chmod +x, or name its interpreter"
            if is_noexec(need.program):
                how = "its file system is mounted noexec: name its interpreter, or copy it"
            return f"'{name}' of COMMAND is not executable ({how})"
        return _absent(need.program, environ)
    if not need.install:
        return f"'{name}' of COMMAND is not on this node's PATH ({path})"
    return (
        f"'{name}' is not on this node's PATH; install {need.name} in the job's environment "
        f"({need.install}), or activate that environment before rdzv is started (PATH is {path})"
    )
