"""Name servers: one that says nothing costs a run nothing, and what one knows is left to it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.netlab import Lab
from tests.support.waiting import until
from worker.hosts.resolver import NO_SUCH_NAME

COMMAND = ("--framework", "command")

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(150)]

NAME_SERVER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("", 53))
    print("ready", flush=True)
    while True:
        query, caller = server.recvfrom(4096)
        name, _, rest = query[12:].partition(b"\\0")
        question = name + b"\\0" + rest[:4]
        if sys.argv[1:]:
            label, address = sys.argv[1:]
            is_known = name[1:].decode() == label and rest[:2] == b"\\0\\1"
            record = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + socket.inet_aton(address)
            head = b"\\x81\\x80\\0\\1\\0" + bytes([is_known]) + b"\\0\\0\\0\\0"
            server.sendto(query[:2] + head + question + record * is_known, caller)
        print(caller[0], "asked for", name[1:].decode(), flush=True)
"""


@contextlib.contextmanager
def name_server(lab: Lab, asked: Path, *known: str) -> Iterator[None]:
    """The lab's last host takes in the others' queries, and answers none.

    With `known`, a name and an address, it answers all: the others' names do not exist.
    """
    *others, server = lab.hosts
    del lab.hosts[-1]  # no node of a run
    for host in others:
        (host.hosts_file.parent / "resolv.conf").write_text(f"nameserver {server.address}\n")
    with asked.open("w") as file:
        process = server.start([sys.executable, "-c", NAME_SERVER, *known], stdout=file)
        until(lambda: asked.read_text() == "ready\n")
        try:
            yield
        finally:
            lab.hosts.append(server)
            process.kill()
            process.wait()


def test_a_run_by_address_asks_no_name_server(tmp_path: Path) -> None:
    asked, options = tmp_path / "asked", ("--hosts", "off", *COMMAND)
    with (
        Lab(3) as lab,
        name_server(lab, asked),
        cluster(lab, tmp_path, *options, command=["true"]) as started,
    ):
        started.start_workers()
        outcome = started.finish()
    assert outcome.code == 0, outcome.err
    assert asked.read_text() == "ready\n"


def test_a_hostname_that_is_a_services_name_too_still_leads_to_the_service(tmp_path: Path) -> None:
    asked, names = tmp_path / "asked", ("h1", "h2", "node-2")
    looks = f"import socket; print('NAMES', *map(socket.gethostbyname, {names}))"
    command = [sys.executable, "-c", looks]
    with (
        Lab(4) as lab,
        name_server(lab, asked, "h2", "10.96.0.1"),
        cluster(lab, tmp_path, *COMMAND, command=command) as started,
    ):
        started.start_workers(1)
        for host in lab.hosts[:2]:  # it waits for nobody, and is then not yet known to answer
            line = f"{host.address} asked for {NO_SUCH_NAME}"
            until(lambda line=line: line in asked.read_text())  # type: ignore[misc]
        started.start_workers(2)
        outcome = started.finish()
    assert outcome.code == 0, outcome.err
    expected = f"NAMES {lab.hosts[1].address} 10.96.0.1 {lab.hosts[2].address}\n"
    for node in (0, 1):
        log = tmp_path / f"h{node}" / "r" / "logs" / f"node-{node}.log"
        assert log.read_text() == expected
