"""`rdzv report`: one archive about a run and this machine, to be sent to somebody else.

Whatever may be a secret is taken out of it. Names of hosts, addresses and paths stay, and what a
program that failed has printed last.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from launcher.show.installation import ROOT, commit
from launcher.state.find_run import unknown_run
from launcher.state.last_words import LAST_WORDS
from launcher.state.state_dir import RUN_FILE, StateDir
from rendezvous.frozen import frozen
from rendezvous.talk.secret_words import HIDDEN, is_secret, lines_without_secrets
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import UsageError
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.words import printable

_LINES = 200
_FILE_BYTES = 64 << 10
_JSON_BYTES = 1 << 20
_MOST_FILES = 64
"""Of each kind; the newest."""
_SHORTEST_VALUE = 6
"""What is shorter is no secret that could be looked for: it would be found everywhere."""
_SHOWN = ("RDZV_", "NCCL_", "TORCH_")
_HOLDS_MORE = ("RDZV_ENV", "RDZV_SET")
"""NAME=VALUE of a person's own."""
_SECRET_OF_RUN = re.compile(r"^(\w+) = \{secret = true\}$", re.MULTILINE)
"""In the run file that a launch has kept."""
_RECORDS = ("launch.json", "result.json", "report.json", "status.json", "former-launches.jsonl")
_PACKAGES = (
    *("torch", "anyio", "click", "cryptography", "fastapi", "h11", "httpcore", "httpx", "pydantic"),
    *("pyyaml", "rich", "starlette", "uvicorn", "uvloop", "accelerate", "deepspeed", "lightning"),
)


@frozen
class Report:
    """What is in the archive: by its name each text, without secrets."""

    name: str
    texts: dict[str, str]

    def write(self, path: Path) -> None:
        """Write the archive, readable for its owner alone; raises UsageError."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in self.texts.items():
                data = text.encode("utf-8", "replace")
                member = tarfile.TarInfo(f"{self.name}/{name}")
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o600)  # it may have been there
                file.write(packed.getvalue())
        except OSError as exc:
            raise UsageError(
                f"{path} cannot be written: {exc.strerror}", hint="choose another --output FILE"
            ) from exc

    def words(self, path: Path) -> Iterator[str]:
        """Say what is in the archive, and what its sender has to know."""
        yield f"rdzv: wrote {path} ({os.path.getsize(path):,} bytes):"
        width = max(map(len, self.texts))
        for name, text in self.texts.items():
            yield f"  {name:{width}}  {len(text.splitlines()):,} lines"
        yield (
            "rdzv: read it before you send it (tar -xzOf FILE | less): what is named or looks like "
            "a secret is hidden; host names, addresses, paths and the last lines of a program that "
            "failed are not"
        )


def report_of(
    root: Path, run: str | None, environ: Mapping[str, str], doctor: Callable[[], object]
) -> Report:
    """Collect what helps to find a fault.

    Args:
        root: The folder of all runs.
        run: Whose files; None: of this machine alone.
        environ: This command's.
        doctor: Prints what `rdzv doctor` does.

    Raises:
        UsageError: There is no such run here.
    """
    named = [value for name, value in environ.items() if is_secret(name)]
    values = [value for value in named if not os.path.exists(value)]  # as those of PWD and sockets
    texts = {
        "versions.txt": "\n".join(_versions(environ)),
        "environment.txt": "\n".join(_environment(environ)),
        "doctor.txt": _printed_by(doctor),
    }
    if run is not None:
        state = StateDir(root, run)
        if not os.path.isdir(state.path):
            raise unknown_run(root, run)
        values.append(_newest(state.path / "secret"))
        names = _SECRET_OF_RUN.findall(_newest(state.path / RUN_FILE))
        values += [environ.get(name, "") for name in names]
        texts |= _of_run(state, values)
    known = sorted({v.strip() for v in values if len(v.strip()) >= _SHORTEST_VALUE}, key=len)
    name = f"rdzv-report-{run}" if run else "rdzv-report"
    return Report(name, {key: _hidden(text, known[::-1]) for key, text in texts.items()})


def _hidden(text: str, known: Iterable[str]) -> str:
    for value in known:
        text = text.replace(value, HIDDEN)
    return "\n".join(lines_without_secrets(line) for line in text.splitlines()) + "\n"


def _versions(environ: Mapping[str, str]) -> Iterator[str]:
    yield f"rdzv {rdzv_version()}, commit {commit() or 'unknown'}, protocol {PROTOCOL}, in {ROOT}"
    yield f"Python {platform.python_version()} ({sys.executable})"
    with contextlib.suppress(OSError):
        yield platform.freedesktop_os_release().get("PRETTY_NAME", "")
    yield f"{platform.system()} {platform.release()} {platform.machine()}"
    yield f"host {platform.node()}"
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):  # nothing is imported for it
            yield f"{name} {version(name)}"
    for name in ("torchrun", "python3"):
        where = shutil.which(name, path=environ.get("PATH"))
        yield f"{name} on PATH: {where or 'none'}"


def _environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Name every variable; values only of those that steer rdzv, NCCL and torch."""
    for name, value in sorted(environ.items()):
        shown = name.startswith(_SHOWN) and name not in _HOLDS_MORE and not is_secret(name)
        yield printable(f"{name}={value}" if shown else name, 1_000)


def _printed_by(show: Callable[[], object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        show()
    return printed.getvalue()


def _of_run(state: StateDir, secrets: list[str]) -> dict[str, str]:
    texts = {}
    for name in _RECORDS:
        if text := _record(state.path / name, secrets):
            texts[name] = text
    for folder, pattern in (
        ("logs", "registry.log"),
        ("logs", "agent-*.log"),
        (LAST_WORDS, "epoch-*/*.txt"),
    ):
        paths = sorted((state.path / folder).glob(pattern), key=_written_at)[-_MOST_FILES:]
        for path in sorted(paths):
            texts[str(path.relative_to(state.path))] = _newest(path)
    return texts


def _written_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _record(path: Path, secrets: list[str]) -> str:
    """A JSON file, or one of a document a line, as people read it; "" where it is missing.

    Args:
        secrets: Gets what is hidden in it: it may stand elsewhere, too.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    if len(data) > _JSON_BYTES:
        return f"left out: it has {len(data):,} bytes"
    lines = data.splitlines() if path.suffix == ".jsonl" else [data]
    try:
        found = [json.loads(line) for line in lines]
    except ValueError:
        return "left out: it is not JSON"
    return "\n".join(json.dumps(_without_secrets(one, secrets), indent=1) for one in found)


def _without_secrets(value: Any, secrets: list[str], name: str = "") -> Any:
    """The same without what has the name of a secret; a flag is the name of the word after it."""
    if isinstance(value, dict):
        return {key: _without_secrets(one, secrets, key) for key, one in value.items()}
    if isinstance(value, list):
        names = ["", *(one if str(one).startswith("-") else "" for one in value)]
        named = zip(value, names, strict=False)
        return [_without_secrets(one, secrets, before) for one, before in named]
    if not (isinstance(value, str) and value and is_secret(name)):
        return value
    secrets.append(value)
    return HIDDEN


def _newest(path: Path) -> str:
    """The newest lines of a file, whole ones only; "" where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _FILE_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    if size > _FILE_BYTES:
        lines = lines[1:]
    return "\n".join(lines[-_LINES:])
