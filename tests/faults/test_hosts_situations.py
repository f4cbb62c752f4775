"""/etc/hosts as machines have it, under real agents: what others wrote is there at every end."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.disks import fill, run
from tests.support.netlab import Host, Lab
from tests.support.nightly import but_at_night
from tests.support.record import ROUNDS, record
from tests.support.waiting import until
from tests.worker.test_hosts_plan import TWO, row, table
from worker.hosts.file import restore_stale

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


def mapped(address: str) -> str:
    """An address as a look-up gives it, in both its forms."""
    return f"{address} ::ffff:{address}"


def stale(hostname: str) -> str:
    """What an agent that was killed has left."""
    return (
        f"{LOCAL}#27.0.1.1 {hostname}\n# BEGIN rdzv run=old pid=1 start=1 boot=gone ns=1 "
        f"own={hostname},node-1\n# was 2: 127.0.1.1 {hostname}\n10.9.9.9 {hostname} node-1\n"
        "# END rdzv run=old\n10.8.8.8 theirs\n"
    )


SITUATIONS: dict[str, tuple[str, str | None]] = {
    # What the file holds, and what it must hold at the end where that is something else.
    "Debian": (f"{LOCAL}127.0.1.1 {{host}}.example {{host}}\n", None),
    "CRLF": ("127.0.0.1 localhost\r\n127.0.1.1 {host}\r\n", None),
    "no-newline": ("127.0.0.1 localhost\n127.0.1.1 {host}", None),
    "old-block": ("<stale>", f"{LOCAL}127.0.1.1 {{host}}\n10.8.8.8 theirs\n"),
    "ten-thousand": (
        LOCAL
        + "".join(f"192.168.{i // 250}.{i % 250 + 1} their-{i}\n" for i in range(10_000))
        + "127.0.1.1 {host}\n",
        None,
    ),
    "empty": ("", None),
}


@contextmanager
def looking(lab: Lab, folder: Path, *options: str) -> Iterator[Cluster]:
    """A run whose programs look names up, then wait."""
    command = [sys.executable, "-c", LOOKS, str(folder)]
    options = ("--framework", "command", *options)
    with cluster(lab, folder, *options, command=command) as started:
        yield started


def seen(folder: Path, host: Host) -> dict[str, str]:
    """What the names meant on a host."""
    path = folder / f"seen-{host.name}"
    until(lambda: path.exists() and path.read_text().count("\n") == 3, 60)
    return dict(line.split(" ", 1) for line in path.read_text().splitlines())


def assert_named(found: dict[str, str], lab: Lab, rank: int) -> None:
    """Each name of the run means one address, on the node of this rank."""
    own = lab.hosts[rank]
    assert found["localhost"].startswith("127.0.0.1") or rank == list(SITUATIONS).index("empty")
    assert found[own.name] == mapped(own.address)
    assert found["node-0"] == mapped(lab.hosts[0].address)
    assert found["node-1"] == mapped(lab.hosts[1].address)


def test_files_of_all_kinds_get_the_names_and_are_put_back(tmp_path: Path) -> None:
    with Lab([name.lower() for name in SITUATIONS]) as lab:
        expected = []
        for host, (text, after) in zip(lab.hosts, SITUATIONS.values(), strict=True):
            before = stale(host.name) if text == "<stale>" else text.format(host=host.name)
            host.hosts_file.write_bytes(before.encode())
            expected.append((after or before).replace("{host}", host.name).encode())
        with looking(lab, tmp_path) as started:
            started.start_workers()
            for rank, host in enumerate(lab.hosts):
                assert_named(seen(tmp_path, host), lab, rank)
            (tmp_path / "end").touch()
            outcome = started.finish()
        assert outcome.code == 0, outcome.err
        assert [host.hosts_file.read_bytes() for host in lab.hosts] == expected
        record(f"/etc/hosts on {len(SITUATIONS)} nodes: {', '.join(SITUATIONS)}", outcome)


# Files that cannot be written


def read_only(host: Host, _: Path) -> None:
    run("mount", "--bind", str(host.hosts_file), str(host.hosts_file))
    run("mount", "-o", "remount,bind,ro", str(host.hosts_file))


def on_a_full_disk(host: Host, folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small))
    shutil.copy(host.hosts_file, small / "hosts")
    with (small / "hosts").open("a") as file:
        file.write("# " + "x" * (4_090 - file.tell()) + "\n")  # the page has no room left
    fill(small)
    run("mount", "--bind", str(small / "hosts"), str(host.hosts_file))


def immutable(host: Host, _: Path) -> None:
    done = subprocess.run(["chattr", "+i", str(host.hosts_file)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this file system has no immutable files: {done.stderr.strip()}")


UNWRITABLE: dict[str, tuple[Callable[[Host, Path], None], str]] = {
    "read-only": (read_only, "Read-only file system"),
    "full disk": (on_a_full_disk, "No space left on device"),
    "immutable": (immutable, "Operation not permitted"),
}


@pytest.fixture
def unwritable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, str]]:
    """Two hosts, the second with a file that cannot be written; and the system's words."""
    prepare, words = UNWRITABLE[request.param]
    with ExitStack() as stack, Lab(2, hosts_mode="debian") as lab:
        host = lab.hosts[1]
        prepare(host, tmp_path)
        for path in (host.hosts_file, tmp_path / "small"):
            stack.callback(subprocess.run, ["umount", "--lazy", str(path)], capture_output=True)
        if prepare is immutable:
            stack.callback(run, "chattr", "-i", str(host.hosts_file))
        with stack:
            yield lab, words


@pytest.mark.parametrize("unwritable", UNWRITABLE, indirect=True)
def test_where_the_file_cannot_be_written_the_run_goes_on_by_address_and_says_so(
    tmp_path: Path, unwritable: tuple[Lab, str], request: pytest.FixtureRequest
) -> None:
    lab, words = unwritable
    before = lab.hosts[1].hosts_file.read_bytes()
    (tmp_path / "end").touch()
    with looking(lab, tmp_path) as started:
        started.start_workers()
        outcome = started.finish()
    assert outcome.code == 0, outcome.err
    sentence = (
        f"/etc/hosts cannot be written: {words}; going on by IP address, names may not resolve"
    )
    assert sentence in started.told[1]
    assert seen(tmp_path, lab.hosts[1])["node-0"] == "gaierror"
    assert lab.hosts[1].hosts_file.read_bytes() == before
    record(f"/etc/hosts: {request.node.callspec.id}", f"rdzv: {sentence}")


@pytest.mark.parametrize("unwritable", ["read-only"], indirect=True)
def test_where_the_names_are_required_a_file_that_cannot_be_written_ends_the_run(
    tmp_path: Path, unwritable: tuple[Lab, str]
) -> None:
    lab, words = unwritable
    with looking(lab, tmp_path, "--hosts", "require") as started:
        started.start_workers()
        outcome = started.finish()
    assert outcome.code == 82
    assert f"/etc/hosts cannot be written: {words} (--hosts require)" in outcome.last_line
    record("/etc/hosts read-only, --hosts require", outcome)


# Others who write it


def test_a_link_is_written_through_and_stays_a_link(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    others = shutil.ignore_patterns("netns")  # other tests make and remove their hosts in it
    shutil.copytree("/etc", etc, symlinks=True, ignore=others)
    with Lab(2) as lab:
        real = etc / "hosts.real"
        real.write_text(f"{LOCAL}127.0.1.1 {lab.hosts[1].name}\n")
        (etc / "hosts").unlink()
        (etc / "hosts").symlink_to("hosts.real")
        with looking(lab, tmp_path) as started:
            script = started.script(1)
            start = f'umount /etc/hosts; mount --bind {etc} /etc && exec sh "{script}"'
            started.workers[1] = started.start(1, ["unshare", "--mount", "sh", "-c", start])
            assert_named(seen(tmp_path, lab.hosts[1]), lab, 1)
            assert "# BEGIN rdzv run=r " in real.read_text()
            (tmp_path / "end").touch()
            outcome = started.finish()
        assert outcome.code == 0, outcome.err
        assert os.readlink(etc / "hosts") == "hosts.real"
        assert real.read_text() == f"{LOCAL}127.0.1.1 {lab.hosts[1].name}\n"


def test_two_runs_on_the_same_hosts_and_a_line_that_somebody_adds(tmp_path: Path) -> None:
    with Lab(2, hosts_mode="debian") as lab:
        before = [host.hosts_file.read_text() for host in lab.hosts]
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            folder.mkdir()
        with (
            looking(lab, folders[0]) as first,
            looking(lab, folders[1], "--rdzv-id", "other", "--port", "29700") as second,
        ):
            first.start_workers()
            second_script = second.state(0) / "other" / "submissions" / "slot-1.sh"
            until(second_script.exists)
            second.workers[1] = second.start(1, ["sh", str(second_script)])
            for folder in folders:
                for rank, host in enumerate(lab.hosts):
                    assert_named(seen(folder, host), lab, rank)
            for host in lab.hosts:
                host.run(["sh", "-c", "echo 10.7.7.7 store >> /etc/hosts"])
            for folder, started in zip(folders, (first, second), strict=True):
                (folder / "end").touch()
                assert started.finish().code == 0
        after = [host.hosts_file.read_text() for host in lab.hosts]
        assert after == [f"{text}10.7.7.7 store\n" for text in before]


def test_nodes_with_one_hostname_have_their_aliases_and_it_is_said(tmp_path: Path) -> None:
    with Lab(2, ipv6_only=True) as lab:
        twin = Host(lab.hosts[0].name, lab.hosts[1].address, lab.hosts[1].namespace)
        lab.hosts[1] = twin
        with looking(lab, tmp_path) as started:
            started.start_workers()
            found = seen(tmp_path, twin)
            (tmp_path / "end").touch()
            outcome = started.finish()
        assert outcome.code == 0, outcome.err
        assert (found["node-0"], found["node-1"]) == (lab.hosts[0].address, twin.address)
        words = f"names left out of the hosts file: {twin.name} is also another node's hostname"
        assert words in started.told[1]
        record("two nodes with the same hostname (IPv6 only)", f"rdzv: {words}")


# Whoever is killed

WRITES = """
import os, sys, time
from pathlib import Path
from rendezvous.wire.table import EndpointTable
from worker.hosts.file import HostsBlock
os.fsync = lambda fd: None  # more of the time goes into the writes
block = HostsBlock(Path(sys.argv[1]), sys.argv[2])
table = EndpointTable.model_validate_json(sys.argv[3])
print("ready", flush=True)
while True:
    block.install(table, 0)
    time.sleep(0.005)  # there about as long as not
    block.remove()
"""


@pytest.mark.parametrize("theirs", but_at_night([3, 200, 2_000], 200))
def test_agents_killed_while_they_write_lose_no_line(tmp_path: Path, theirs: int) -> None:
    hosts = tmp_path / "hosts"
    lines = [f"192.168.{i // 250}.{i % 250 + 1} their-{i}" for i in range(theirs)]
    text = "\n".join(["127.0.0.1 localhost n0", "127.0.1.1 n0", *lines, "::1 n0 node-0"])
    rows = [row(i, f"n{i}", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(100)]
    sizes: set[int] = set()
    rounds = 0
    while rounds < 15 * ROUNDS or len(sizes) < 2:  # killed before and after
        rounds += 1
        assert rounds < 300
        hosts.write_text(text)
        arguments = [str(hosts), "r1", table(*rows).model_dump_json()]
        with subprocess.Popen(
            [sys.executable, "-c", WRITES, *arguments], stdout=subprocess.PIPE
        ) as agent:
            assert agent.stdout is not None
            agent.stdout.readline()
            time.sleep(random.uniform(0.0, 0.05 + theirs / 5_000))
            agent.kill()
        sizes.add(hosts.stat().st_size)
        restore_stale(hosts)
        assert hosts.read_text() == text


def test_two_agents_and_an_editor_that_adds_lines_lose_none(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    text = "127.0.0.1 localhost n0\n127.0.1.1 n0\n"
    hosts.write_text(text)
    agents = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, str(hosts), run_id, TWO.model_dump_json()],
            stdout=subprocess.PIPE,
        )
        for run_id in ("r1", "r2")
    ]
    added = [f"10.7.{i // 250}.{i % 250 + 1} store-{i}\n" for i in range(200 * ROUNDS)]
    try:
        for agent in agents:
            assert agent.stdout is not None
            agent.stdout.readline()
        for line in added:
            with hosts.open("a") as file:
                file.write(line)
            time.sleep(0.005)
    finally:
        for agent in agents:
            agent.kill()
            agent.communicate()
    restore_stale(hosts)
    kept = hosts.read_text().splitlines(keepends=True)
    assert set(kept) == {*text.splitlines(keepends=True), *added}
    assert len(kept) == 2 + len(added)
