"""/etc/hosts as machines have it, under real agents: what others wrote is there at every end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.disks import run
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

LOCAL = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
# Writes, on every node, what the names of the run mean to it, and waits to be told to end.
LOOKS = """
import os, pathlib, socket, sys, time
folder = pathlib.Path(sys.argv[1])
def look(name):
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(name, 1)})
    except OSError as error:
        return [type(error).__name__]
names = ["localhost", socket.gethostname(), "node-0", "node-1"]
lines = [f"{name} {' '.join(look(name))}" for name in names]
(folder / f"seen-{socket.gethostname()}").write_text("\\n".join(lines))
while not (folder / "end").exists():
    time.sleep(0.05)
"""

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(120)]

STALE = (
    f"{LOCAL}#27.0.1.1 {{host}}\n# BEGIN rdzv run=old pid=1 start=1 boot=gone ns=1 "
    "own={host},node-1\n# was 2: 127.0.1.1 {host}\n10.9.9.9 {host} node-1\n"
    "# END rdzv run=old\n10.8.8.8 theirs\n"
)
"""What an agent that was killed has left."""

SITUATIONS: dict[str, tuple[str, str | None]] = {
    # What the file holds, and what it must hold at the end where that is something else.
    "Debian": (f"{LOCAL}127.0.1.1 {{host}}.example {{host}}\n", None),
    "CRLF": ("127.0.0.1 localhost\r\n127.0.1.1 {host}\r\n", None),
    "no-newline": ("127.0.0.1 localhost\n127.0.1.1 {host}", None),
    "old-block": (STALE, f"{LOCAL}127.0.1.1 {{host}}\n10.8.8.8 theirs\n"),
    "empty": ("", None),
    "read-only": (LOCAL, None),
}


def seen(folder: Path, host: Host) -> dict[str, str]:
    """What the names meant on a host."""
    path = folder / f"seen-{host.name}"
    until(lambda: path.exists() and path.read_text().count("\n") == 3, 60)
    return dict(line.split(" ", 1) for line in path.read_text().splitlines())


def test_files_of_all_kinds_get_the_names_and_are_put_back(tmp_path: Path) -> None:
    """One that cannot be written is left alone, and the run goes on by address there."""
    with Lab([name.lower() for name in SITUATIONS]) as lab:
        expected = []
        for host, (before, after) in zip(lab.hosts, SITUATIONS.values(), strict=True):
            host.hosts_file.write_bytes(before.replace("{host}", host.name).encode())
            expected.append((after or before).replace("{host}", host.name).encode())
        *_, empty, locked = lab.hosts
        command = [sys.executable, "-c", LOOKS, str(tmp_path)]
        run("mount", "--bind", str(locked.hosts_file), str(locked.hosts_file))
        run("mount", "-o", "remount,bind,ro", str(locked.hosts_file))
        try:
            with cluster(lab, tmp_path, "--framework", "command", command=command) as started:
                started.start_workers()
                found = {host.name: seen(tmp_path, host) for host in lab.hosts}
                (tmp_path / "end").touch()
                outcome = started.finish()
        finally:
            subprocess.run(["umount", "--lazy", str(locked.hosts_file)], check=False)
        assert outcome.code == 0, outcome.err
        assert [host.hosts_file.read_bytes() for host in lab.hosts] == expected
    assert found[locked.name]["node-0"] == "gaierror"
    assert "cannot be written: Read-only file system; continuing with IP" in started.told[5]
    for host in lab.hosts[:-1]:
        for name, named in (("node-0", lab.hosts[0]), ("node-1", lab.hosts[1]), (host.name, host)):
            assert found[host.name][name] == f"{named.address} ::ffff:{named.address}"
        assert found[host.name]["localhost"].startswith("127.0.0.1") or host is empty
