"""A machine that has nothing of ours: a fresh root file system, with this machine's network.

Its package index is this machine's, with the same configuration, certificates and local folders.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.docker.fetched import fetching, root_file_system
from tests.newcomer.readme import ROOT
from tests.support.venvs import pip_config_list, settings_in

CHECKOUT = "rdzv"
_LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "mutants", "__pycache__")
_NAMESPACES = ("unshare", "--pid", "--fork", "--kill-child")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INDEX = re.compile(r"PIP_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|\w+_proxy", re.IGNORECASE)


def make_machine(folder: Path) -> None:
    """A Debian with Python and make in the folder, and a checkout in it."""
    with fetching() as kept:
        packed = root_file_system(kept, "newcomer", "ca-certificates,make,python3,python3-venv")
    folder.mkdir()
    subprocess.run(["tar", "-xf", packed, "-C", folder, "--exclude=./dev/*"], check=True)
    shutil.copy("/etc/resolv.conf", folder / "etc")
    configuration = _pip_configuration()
    (folder / "etc/pip.conf").write_text(configuration)
    for path in filter(Path.is_file, _paths(configuration)):  # constraints, certificates
        copy = folder / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copytree(ROOT, folder / "root" / CHECKOUT, ignore=_LEFT_OUT)


def _pip_configuration() -> str:
    """What this machine's files configure of pip, as one file; its environment is passed on."""
    found = settings_in(pip_config_list(), "global")
    indented = {key: value.replace("\n", "\n ") for key, value in found.items()}
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in indented.items())


def local_folders(configuration: str) -> set[Path]:
    """The folders that pip looks in; an index is called `simple`, and its files lie next to it."""
    paths = _paths(configuration)
    found = {path.parent if path.name == "simple" else path for path in paths}
    return {path for path in found if path.is_dir()}


def _paths(configuration: str) -> list[Path]:
    return [Path(path) for path in re.findall(r"(?:(?<=file://)|(?<=\s))(/\S+)", configuration)]


def run_inside(folder: Path, script: str, limit: float) -> str:
    """What the script prints there, in the checkout; all that it started ends with it."""
    words = [f"mount --rbind /dev '{folder}/dev'"]
    for path in local_folders((folder / "etc/pip.conf").read_text()):
        words.append(f"mkdir -p '{folder}{path}' && mount --bind -o ro '{path}' '{folder}{path}'")
    (folder / "root/hour.sh").write_text(script)
    start = f"cd ~/{CHECKOUT} && exec bash ~/hour.sh"
    words.append(f"exec chroot '{folder}' bash -c '{start}'")
    environ = {name: value for name, value in os.environ.items() if _INDEX.fullmatch(name)}
    done = subprocess.run(
        [*_NAMESPACES, f"--mount-proc={folder}/proc", "sh", "-euc", "\n".join(words)],
        stdin=subprocess.DEVNULL,
        env=environ | {"HOME": "/root", "PATH": _PATH, "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
        check=False,
    )
    return done.stdout
