"""The primary of specs/standing is lost: what its file says to do then, done as it says."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compose_servers import NAMES, Servers, commands
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]

PLACE = "/dev/shm" if Path("/dev/shm").is_dir() else "/var/tmp"
"""Each host has a /tmp of its own."""
INSERT = "INSERT INTO acked SELECT count(*) + 1 FROM acked"
COUNT = "SELECT count(*) FROM acked"


@pytest.fixture
def servers() -> Iterator[Servers]:
    """A primary that waits for one of its two standbys, with a table."""
    with (
        tempfile.TemporaryDirectory(prefix="rdzv-pg-", dir=PLACE) as name,
        Lab([*NAMES]) as lab,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        for host in lab.hosts:
            host.hosts_file.write_text(
                "127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in lab.hosts)
            )
        made = Servers(folder, {host.name: host for host in lab.hosts})
        try:
            for one in NAMES:
                made.start(one)
                made.wait_until_up(one)
            until(lambda: made.followers("db1") == ["db2", "db3"])
            made.ask("db1", "CREATE TABLE acked (number int)")
            yield made
        finally:
            made.end_all()


def test_the_way_that_the_file_shows_mends_a_lost_primary(servers: Servers) -> None:
    lose, promote, seed, start = commands()
    for _ in range(20):
        assert servers.ask("db1", INSERT) == "INSERT 0 1"
    servers.compose(lose)
    done = servers.compose(promote)
    assert done.returncode == 0, done.stderr
    until(lambda: servers.followers("db2") == ["db3"])
    assert servers.ask("db2", COUNT) == "20"
    assert servers.ask("db2", "SHOW synchronous_standby_names") == "ANY 1 (db1, db2, db3)"
    assert servers.ask("db2", INSERT) == "INSERT 0 1"
    servers.start("db1")  # by mistake, as it was
    assert servers.wait_for_end("db1") == 1
    assert f"another server has become the primary: {seed}" in servers.log("db1").read_text()
    done = servers.compose(seed)
    assert done.returncode == 0, done.stderr
    servers.compose(start)
    until(lambda: servers.followers("db2") == ["db1", "db3"])
    servers.end("db3")
    assert servers.ask("db2", INSERT) == "INSERT 0 1"  # the former primary is what has it
    until(lambda: servers.ask("db1", COUNT) == "22")
    servers.end("db2")
    done = servers.compose(promote.replace("db2", "db1"))
    assert done.returncode == 1
    assert "no other server answers, and db1 may lack commits" in done.stderr


def test_a_standby_that_lacks_commits_is_not_promoted(servers: Servers) -> None:
    lose, promote, *_ = commands()
    done = servers.compose(promote)
    assert (done.returncode, "a primary still answers" in done.stderr) == (1, True)
    servers.end("db2")
    assert servers.ask("db1", INSERT) == "INSERT 0 1"  # db3 has it
    servers.compose(lose)
    servers.start("db2")
    servers.wait_until_up("db2")
    done = servers.compose(promote)
    assert done.returncode == 1
    assert "db3 has commits that db2 lacks: promote db3 instead" in done.stderr
    done = servers.compose(promote.replace("db2", "db3"))
    assert done.returncode == 0, done.stderr
    until(lambda: servers.followers("db3") == ["db2"])
    assert servers.ask("db3", COUNT) == "1"
    assert servers.ask("db3", INSERT) == "INSERT 0 1"
