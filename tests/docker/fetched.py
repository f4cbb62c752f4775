"""What is fetched once and kept in build/docker: `python -m tests.docker.fetched` does it ahead."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docker.compose import ROOT


@contextmanager
def fetching() -> Iterator[Path]:
    """The folder in which it is kept: RDZV_TEST_CACHE, or build/docker; for one user at a time."""
    folder = Path(os.environ.get("RDZV_TEST_CACHE") or ROOT / "build" / "docker")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def debian(kept: Path) -> Path:
    """The tar of this machine's Debian with Python and what looks at RDMA."""
    rdma = "ibverbs-providers,ibverbs-utils,libibverbs1"
    return root_file_system(kept, "debian", f"ca-certificates,{rdma},python3,python3-venv")


def smallest(kept: Path) -> Path:
    """The tar of this machine's Debian as small as it gets, without Python."""
    return root_file_system(kept, "smallest", "ca-certificates")


def postgresql(kept: Path) -> Path:
    """The tar of this machine's Debian with its PostgreSQL."""
    return root_file_system(kept, "postgresql", "postgresql")


def root_file_system(kept: Path, name: str, packages: str) -> Path:
    """The tar of this machine's Debian with these packages, which trusts the same certificates."""
    release = Path("/etc/os-release").read_text()
    line = next(line for line in release.splitlines() if "CODENAME" in line)
    suite = line.partition("=")[2]
    packed, new = kept / f"{name}-{suite}.tar", kept / "new.tar"
    if not packed.exists():
        options = ["--variant=minbase", f"--include={packages}", "--quiet"]
        trusted = "/etc/ssl/certs/ca-certificates.crt"
        options.append(f"--customize-hook=copy-in {trusted} /etc/ssl/certs")
        argv = ["mmdebstrap", *options, suite, str(new)]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        new.rename(packed)
    return packed


def plugin_of_version_2(kept: Path) -> Path:
    """docker compose 2."""
    return plugin(kept, "compose")


def plugin(kept: Path, name: str) -> Path:
    """A plugin of docker's command as Debian 13 has it; it runs on Debian 12 as well.

    apt itself fetches and verifies it, with lists of its own.
    """
    unpacked, package = kept / f"{name}-2", f"docker-{name}"
    found = unpacked / "usr/libexec/docker/cli-plugins" / package
    if found.exists():
        return found
    folder = kept / "apt"
    lists, source = folder / "lists", folder / "trixie.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source.write_text(f"deb [signed-by={keys}] http://deb.debian.org/debian trixie main\n")
    own = [f"-oDir::Etc::SourceList={source}", "-oDir::Etc::SourceParts=/dev/null"]
    own += [f"-oDir::State::Lists={lists}", "-oDir::Cache::pkgcache=", "-oDir::Cache::srcpkgcache="]
    own += ["-oAPT::Sandbox::User=root", "-oAcquire::Languages=none", "-qq"]
    for words in (["update"], ["download", package]):
        subprocess.run(["apt-get", *own, *words], cwd=folder, check=True, capture_output=True)
    (packed,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg-deb", "-x", packed, unpacked], check=True)
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Fetch what is not there yet of all that each push needs."""
    with fetching() as kept:
        print(debian(kept))
        print(smallest(kept))
        print(plugin_of_version_2(kept))
        print(plugin(kept, "buildx"))


if __name__ == "__main__":
    main()
