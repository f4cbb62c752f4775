"""The page of a run by way of `ssh -L`, as a person on a laptop opens it."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.launching import launch
from tests.support.page_process import Looker, page_of
from tests.support.waiting import until

SSHD = "/usr/sbin/sshd"
LISTENS = "Server listening"

pytestmark = [pytest.mark.schedulers("ssh", "ssh-keygen", SSHD), pytest.mark.timeout(120)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def running(argv: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process, whose words go to a file."""
    with log.open("wb") as said:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def tunnel(folder: Path, to: str) -> Iterator[int]:
    """`ssh -L` to an address through an sshd of its own; the port that is forwarded."""
    for name in ("host", "user"):
        argv = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "test",
            "-f",
            str(folder / name),
        ]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    server, port = free_port(), free_port()
    config, log = folder / "sshd.conf", folder / "sshd.log"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {server}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
    )
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server} {(folder / 'host.pub').read_text()}")
    with suppress(OSError):  # only root's sshd needs it
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    ssh = ["ssh", "-F", "/dev/null", "-N", "-i", str(folder / "user"), "-p", str(server)]
    ssh += ["-o", f"UserKnownHostsFile={known}", "-o", "ExitOnForwardFailure=yes"]
    ssh += ["-o", "BatchMode=yes", "-L", f"{port}:{to}", "127.0.0.1"]
    with running([SSHD, "-D", "-e", "-f", str(config)], log):
        until(lambda: LISTENS in log.read_text())
        with running(ssh, folder / "ssh.log") as client:

            def forwards() -> bool:
                assert client.poll() is None, (folder / "ssh.log").read_text()
                with suppress(OSError):
                    socket.create_connection(("localhost", port), 5).close()
                    return True
                return False

            until(forwards)
            yield port


def test_a_link_is_opened_through_a_tunnel_under_another_port(tmp_path: Path) -> None:
    options = ("--nnodes", "1", "--framework", "command")
    state = tmp_path / "s"
    assert launch(state, *options, command=["true"]).code == 0
    with page_of(state) as page:
        to = f"localhost:{urlsplit(page.base).port}"
        with tunnel(tmp_path, to) as port:
            looker = Looker(f"http://localhost:{port}/", ticket=page.ticket)
            shown = looker.client.get("")
            assert shown.request.headers["host"] == f"localhost:{port}"
            assert (shown.status_code, "app.js" in shown.text) == (200, True)
            assert looker.state()["head"]["state"] == "ok"
            with looker.client.stream("GET", "ui-api/runs/r/logs?follow=1") as logs:
                assert json.loads(list(logs.iter_lines())[-1]) == {"over": True}
            looker.close()
