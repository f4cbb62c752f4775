"""Ports that others hold, strangers that call, and a name server that says nothing."""

from __future__ import annotations

import contextlib
import http.server
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.late import late_slot_1
from tests.support.cluster import cluster
from tests.support.launching import RDZV, environment, launching, shell
from tests.support.netlab import Host, Lab
from tests.support.nightly import but_at_night
from tests.support.record import record
from tests.support.waiting import until
from worker.hosts.resolver import NO_SUCH_NAME

PROGRAM = str(Path(__file__).parent.parent / "programs" / "check_all_reduce.py")
COMMAND = ("--framework", "command")

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]


# Ports that others hold


@contextlib.contextmanager
def web_server(port: int) -> Iterator[None]:
    """An HTTP server on every address of this machine."""
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_master_port_that_a_web_server_takes_before_the_go_is_exchanged(tmp_path: Path) -> None:
    options = ("--nnodes", "2", *late_slot_1(tmp_path), *COMMAND)
    command = shell("echo port $MASTER_PORT")
    with launching(tmp_path / "s", *options, command=command) as launched:
        launched.wait_for("joined")
        port = launched.offered_master_port()
        with web_server(port):
            started = time.monotonic()
            (tmp_path / "join").touch()
            outcome = launched.finish()
            seconds = time.monotonic() - started
        assert outcome.code == 0, outcome.err
        ports = {int(line.split()[-1]) for line in outcome.out.splitlines()}
        assert len(ports) == 1
        assert ports != {port}
        refused = [event for event in launched.events() if event["kind"] == "arm_refused"]
        assert [event["epoch"] for event in refused] == [2]
        reason = str(refused[0]["reason"])
        assert f"master port {port} is taken by another program on this node" in reason
        record("a web server takes the master port before the go", f"rdzv: {reason}", seconds)


@pytest.mark.torch
def test_a_master_port_that_a_web_server_takes_after_the_go_is_named(tmp_path: Path) -> None:
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text(
        f"#!{sys.executable}\n"
        "import http.server, os, socketserver, sys, threading\n"
        "port = int(sys.argv[sys.argv.index('--master-port') + 1])\n"
        "if os.environ['NODE_RANK'] == '0':\n"
        "    server = http.server.HTTPServer(('', port), http.server.SimpleHTTPRequestHandler)\n"
        "    os.set_inheritable(server.fileno(), True)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'torch.distributed.run', *sys.argv[1:]])\n"
    )
    torchrun.chmod(0o755)
    env = {"PATH": f"{torchrun.parent}:{environment(tmp_path)['PATH']}"}
    options = ("--nnodes", "2", "--grace", "2")
    with launching(tmp_path / "s", *options, command=[PROGRAM], env=env) as launched:
        launched.wait_for_phase("running")
        started = time.monotonic()
        outcome = launched.finish(120)
    assert outcome.code == 1
    assert "node 0" in outcome.last_line
    assert "EADDRINUSE" in outcome.last_line
    record("a web server takes the master port after the go", outcome, time.monotonic() - started)


IMPOSTOR = """
import socket, sys, threading
kind, port = sys.argv[1], int(sys.argv[2])
def serve(line):
    try:
        if kind == "banner":
            line.sendall(b"220 mail.example ESMTP ready\\r\\n")
        if kind == "closes":
            line.close()
        while line.recv(65536):
            if kind == "web":
                line.sendall(b"HTTP/1.1 400 Bad Request\\r\\nContent-Length: 0\\r\\n\\r\\n")
    except OSError:
        pass
with socket.create_server(("", port)) as server:
    print("ready", flush=True)
    lines = []
    while True:
        lines.append(server.accept()[0])
        threading.Thread(target=serve, args=lines[-1:], daemon=True).start()
"""

ANSWERS = {
    "web": "it does not speak TLS 1.3 (WRONG_VERSION_NUMBER)",
    "banner": "it does not speak TLS 1.3 (WRONG_VERSION_NUMBER)",
    "silent": "no answer (filtered, or the host is down)",
    "closes": "it closed the connection without an answer",
}


def group_token() -> str:
    made = subprocess.run([RDZV, "token", "new"], capture_output=True, text=True, check=True)
    return made.stdout.strip()


def symmetric(
    host: Host, rank: int, folder: Path, token: str, master: str, *options: str
) -> subprocess.Popen[str]:
    """One of two equal containers."""
    env = environment(
        folder / f"h{rank}",
        RDZV_TOKEN=token,
        RDZV_ID="r",
        NUM_NODES="2",
        NODE_RANK=str(rank),
        MASTER_ADDR=master,
    )
    argv = [RDZV, "launch", *options, *COMMAND, "--", "true"]
    return host.start(argv, env=env, stdout=subprocess.PIPE)


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """The first line of its output that holds the words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line.strip()
    raise AssertionError(f"it never said {words!r}")


@pytest.mark.netns
@pytest.mark.parametrize("kind", but_at_night(ANSWERS, "web", "silent"))
def test_a_node_that_meets_another_program_says_so_and_joins_once_the_registry_is_there(
    tmp_path: Path, kind: str
) -> None:
    token = group_token()
    with Lab(2) as lab:
        master = lab.hosts[0].address
        argv = [sys.executable, "-c", IMPOSTOR, kind, "29600"]
        impostor = lab.hosts[0].start(argv, stdout=subprocess.PIPE)
        line_with(impostor, "ready")
        worker = symmetric(lab.hosts[1], 1, tmp_path, token, master)
        started = time.monotonic()
        said = line_with(worker, "cannot join yet")
        seconds = time.monotonic() - started
        assert f"no registry at port 29600 of {master} ({master}: {ANSWERS[kind]}" in said
        first = symmetric(lab.hosts[0], 0, tmp_path, token, master)
        told, _ = first.communicate(timeout=30)
        assert first.returncode == 2
        assert "the registry cannot listen on port 29600 of this machine" in told
        impostor.kill()
        impostor.communicate()
        first = symmetric(lab.hosts[0], 0, tmp_path, token, master)
        told, _ = first.communicate(timeout=60)
        rest, _ = worker.communicate(timeout=60)
        assert (first.returncode, worker.returncode) == (0, 0), told + rest
        assert rest.count("cannot join yet") < 20  # said when it changes, not at each try
        record(f"the registry's port is held by a program that {WHAT[kind]}", said, seconds)


WHAT = {
    "web": "speaks HTTP",
    "banner": "sends a banner at once",
    "silent": "accepts and says nothing",
    "closes": "closes every connection",
}


# Strangers that call


def pester(address: tuple[str, int], until_set: threading.Event) -> int:
    """Call again and again, as scanners do: silent, rude, half a handshake; how often."""
    pieces = [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes([22, 3, 1, 2, 0, 1, 0]),
        b"\x00" * 64,
        b"\xff" * 4_096,
        random.randbytes(512),
    ]
    calls, lines = 0, []
    while not until_set.wait(0.02):
        with contextlib.suppress(OSError):
            line = socket.create_connection(address, timeout=1)
            lines.append(line)
            line.sendall(pieces[calls % len(pieces)])
            calls += 1
            if calls % 2:
                lines.pop().close()
    for line in lines:
        line.close()
    return calls


@contextlib.contextmanager
def pestered(address: tuple[str, int]) -> Iterator[list[int]]:
    """While a stranger calls; holds at the end how often."""
    calls: list[int] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: calls.append(pester(address, stop)))
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join()


def test_strangers_on_the_registrys_port_disturb_nobody(tmp_path: Path) -> None:
    options = ("--nnodes", "2", *late_slot_1(tmp_path), *COMMAND)
    with launching(tmp_path / "s", *options, command=shell("sleep 2")) as launched:
        launched.wait_for("joined")
        place = json.loads((launched.folder / "launch.json").read_text())["place"]
        with pestered((place["a"][0], place["p"])) as calls:
            (tmp_path / "join").touch()
            outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert calls[0] > 20
    record(f"a stranger calls the registry's port {calls[0]} times", outcome)


@pytest.mark.nightly
@pytest.mark.torch
def test_strangers_on_the_master_port_are_torchs_to_endure(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        f"sys.path.insert(0, {str(Path(PROGRAM).parent)!r})\n"
        "import check_all_reduce, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        f"pathlib.Path({str(port_file)!r}).write_text(os.environ['MASTER_PORT'])\n"
        f"while not pathlib.Path({str(tmp_path / 'end')!r}).exists(): time.sleep(0.1)\n"
        "print('SUM', check_all_reduce.checked_sum(), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    with launching(tmp_path / "s", "--nnodes", "2", command=[str(script)]) as launched:
        until(lambda: port_file.exists() and port_file.read_text(), 60)
        with pestered(("127.0.0.1", int(port_file.read_text()))) as calls:
            time.sleep(3)
            (tmp_path / "end").touch()
            outcome = launched.finish(60)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("SUM 3") == 2
    record(f"a stranger calls torch's master port {calls[0]} times", outcome)


# A name server that says nothing

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


def run_beside_a_silent_name_server(
    tmp_path: Path, fault: str, *options: str, command: list[str]
) -> set[str]:
    """The run ends well; which names were asked for."""
    asked = tmp_path / "asked"
    with (
        Lab(3) as lab,
        name_server(lab, asked),
        cluster(lab, tmp_path, *options, command=command) as started,
    ):
        started.start_workers()
        begun = time.monotonic()
        outcome = started.finish()
    assert outcome.code == 0, outcome.err
    record(fault, outcome, time.monotonic() - begun)
    return {line.split()[-1] for line in asked.read_text().splitlines()[1:]}


@pytest.mark.netns
def test_a_run_by_address_asks_no_name_server(tmp_path: Path) -> None:
    options = ("--hosts", "off", *COMMAND)
    fault = "a run by address, the name server is silent: no query is sent; worker's start to end"
    assert run_beside_a_silent_name_server(tmp_path, fault, *options, command=["true"]) == set()


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.torch
def test_with_the_hosts_block_torch_asks_no_name_server(tmp_path: Path) -> None:
    """The agents ask whether it answers, wait for nothing, and then ask for no node's name."""
    fault = (
        "torchrun on 2 nodes, the name server is silent: with the hosts block torch asks nothing"
    )
    asked = run_beside_a_silent_name_server(tmp_path, fault, command=[PROGRAM])
    assert asked == {NO_SUCH_NAME}


@pytest.mark.netns
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
    expected = f"NAMES {lab.hosts[1].address} 10.96.0.1 {lab.hosts[2].address}"
    for node in (0, 1):
        log = tmp_path / f"h{node}" / "r" / "logs" / f"node-{node}.log"
        assert log.read_text().splitlines() == [expected]
    record("a node's hostname, h2, is a service's name for the name server", outcome)


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.torch
def test_without_the_hosts_block_torch_waits_for_the_name_server(tmp_path: Path) -> None:
    """What the block is for: each query costs 5 s and is sent again."""
    asked = tmp_path / "asked"
    with (
        Lab(3) as lab,
        name_server(lab, asked),
        cluster(lab, tmp_path, "--hosts", "off", command=[PROGRAM]) as started,
    ):
        started.start_workers()
        until(lambda: asked.read_text().count("asked for") > 2, 60)
        started.launcher.terminate()
        started.finish()


@pytest.mark.netns
@pytest.mark.parametrize(
    ("nameserver", "words"),
    [
        ("silent", "no name server has told its address within 2 s"),
        ("none", "its name cannot be resolved ("),
    ],
)
def test_a_name_that_nobody_resolves_is_named_in_time(
    tmp_path: Path, nameserver: str, words: str
) -> None:
    with Lab(2, nameserver=nameserver) as lab:  # type: ignore[arg-type]
        started = time.monotonic()
        worker = symmetric(
            lab.hosts[1], 1, tmp_path, group_token(), "rank0.example", "--join-timeout", "3"
        )
        told, _ = worker.communicate(timeout=60)
        seconds = time.monotonic() - started
    assert worker.returncode == 80
    assert f"no registry at port 29600 of rank0.example (rank0.example: {words}" in told
    last = next(line for line in told.splitlines() if "could not join" in line)
    assert "check MASTER_ADDR" in told
    record(f"MASTER_ADDR is a name, name server {nameserver}; join time-out 3 s", last, seconds)
    # The resolver itself would go on for 10 s and more, and hold up the end of the process.
    assert seconds < 25


@pytest.mark.netns
def test_a_name_that_the_hosts_file_knows_is_good_enough(tmp_path: Path) -> None:
    token = group_token()
    with Lab(2, hosts_mode="good", nameserver="silent") as lab:
        nodes = [
            symmetric(host, rank, tmp_path, token, lab.hosts[0].name)
            for rank, host in enumerate(lab.hosts)
        ]
        told = [node.communicate(timeout=60)[0] for node in nodes]
        assert [node.returncode for node in nodes] == [0, 0], told
