"""The registry as the process that a launcher starts, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rendezvous.compat import timeout
from rendezvous.server.journal import Record, SqliteJournal, read_journal
from rendezvous.server.room import RESERVE
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import SERVER_NAME, parse_credential
from rendezvous.talk.http_network import HttpLine
from rendezvous.wire.errors import StorageFull, TooLarge, Unavailable
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import Phase
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe
from tests.support.nightly import but_at_night
from tests.support.registry import LIMIT_SECONDS, START_SECONDS, Launch, Node, Registry, running
from tests.support.waiting import soon

pytestmark = pytest.mark.real_time


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry of the test's own, which it may kill."""
    with running(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that is left alone; each test has a run of its own in it."""
    with running(tmp_path_factory.mktemp("registry")) as made:
        yield made


@contextlib.asynccontextmanager
async def gathered(registry: Registry, launch: Launch, nodes: int, **changes: Any) -> Any:
    """The nodes of a new run, all joined."""
    await registry.create(launch, nodes, **changes)
    async with contextlib.AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(Node(registry.place, launch, slot))
            for slot in range(nodes)
        ]
        await asyncio.gather(*(node.join() for node in made))
        yield made


def raw(registry: Registry, **changes: Any) -> httpx.AsyncClient:
    """Plain HTTP to the registry."""
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{registry.port}",
        headers={"host": SERVER_NAME},
        trust_env=False,
        timeout=10,
        **changes,
    )


# A run


async def test_nodes_come_to_the_go_on_one_table_and_know_the_result(shared: Registry) -> None:
    launch = Launch("whole")
    async with gathered(shared, launch, 3) as nodes:
        views = await asyncio.gather(*(node.run() for node in nodes))
        assert len({view.digest for view in views}) == 1
        ends = await asyncio.gather(*(node.finish() for node in nodes))
        assert [end.result.exit_code for end in ends] == [0, 0, 0]
    kinds = [line.kind for line in await shared.events(launch, "left")]
    assert kinds[:10] == ["created"] + ["joined"] * 3 + ["probed"] * 3 + ["acked"] * 3
    assert (await shared.wait_for_phase(launch, Phase.FINISHED)).result is not None


async def test_the_first_failure_ends_the_run_and_everyone_is_told(shared: Registry) -> None:
    launch = Launch("failing")
    async with gathered(shared, launch, 3, verdict_seconds=0.2) as nodes:
        await asyncio.gather(*(node.run() for node in nodes))
        await nodes[2].report(ExitReport(epoch=1, exit_code=7, tail=["boom"]))
        views = await asyncio.gather(*(node.follow(lambda view: view.stop) for node in nodes))
        assert all(view.stop for view in views)
        for node in nodes[:2]:
            await node.report(ExitReport(epoch=1, exit_code=143, stopped=True))
        view = await nodes[0].follow(lambda view: view.result is not None)
        assert (view.result.exit_code, view.result.slot, view.result.tail) == (7, 2, ["boom"])


async def test_what_a_node_of_the_table_gets_is_what_every_node_gets(shared: Registry) -> None:
    launch = Launch("bytes")
    async with gathered(shared, launch, 3) as nodes:
        await asyncio.gather(*(node.run() for node in nodes))
        bodies = [
            await node.client.request("GET", f"/v1/runs/bytes/nodes/{node.slot}/watch")
            for node in nodes
        ]
    assert len(set(bodies)) == 1


async def test_many_nodes_get_a_compressed_table_at_once(shared: Registry) -> None:
    launch, count = Launch("many"), 100
    await shared.create(launch, count, lease_seconds=3600)  # nobody of them polls meanwhile
    async with raw(shared) as client:

        async def call(method: str, path: str, shown: str, body: Any = None) -> httpx.Response:
            headers = {"authorization": f"Bearer {shown}", "accept-encoding": "gzip"}
            answer = await client.request(
                method, f"/v1/runs/many{path}", json=body, headers=headers
            )
            assert answer.status_code == 200
            return answer

        joins = [
            await call(
                "POST",
                "/nodes",
                launch.token(slot).text(),
                launch.join(slot).model_dump(mode="json"),
            )
            for slot in range(count)
        ]
        shown = [join.json()["credential"] for join in joins]
        for slot in range(count):
            probe = make_probe(1, slot, range(count)).model_dump(mode="json")
            await call("POST", f"/nodes/{slot}/reports", shown[slot], probe)
        watches = await asyncio.gather(
            *(call("GET", f"/nodes/{slot}/watch", shown[slot]) for slot in range(count))
        )
    assert {watch.headers["content-encoding"] for watch in watches} == {"gzip"}
    assert len({watch.content for watch in watches}) == 1
    view = NodeView.model_validate_json(watches[0].content)
    assert view.table is not None
    assert (view.table.digest(), len(view.table.rows)) == (view.digest, count)


# Refusals on the wire


async def test_errors_have_one_shape_and_the_connection_can_be_used_again(
    shared: Registry,
) -> None:
    limits = httpx.Limits(max_connections=1)
    async with raw(shared, limits=limits) as client:
        for method, path, status in [
            ("GET", "/v1/runs/x", 401),
            ("TRACE", "/v1/runs", 405),
            ("OPTIONS", "/healthz", 405),
            ("GET", "/favicon.ico", 404),
            ("POST", "/v1/runs/x/nodes", 401),
            ("PUT", "/v1/runs/x", 401),
        ]:
            answer = await client.request(method, path)
            assert answer.status_code == status
            assert sorted(answer.json()) == ["code", "hint", "message", "retryable"]
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
        head = await client.request("HEAD", "/healthz")
        assert (head.status_code, head.content) == (405, b"")
        health = await client.get("/healthz")
        assert (health.status_code, health.text) == (200, "ok\n")


async def test_only_the_operator_may_send_a_large_body(shared: Registry) -> None:
    launch = Launch("large")
    status = await shared.create(launch, 5_000)
    assert len(status.slots) == 5_000
    async with shared.client(launch.keys.admin) as client:
        with pytest.raises(TooLarge):
            await client.request("PUT", "/v1/runs/large", launch.spec(5_000))


async def test_the_log_names_run_and_node_and_no_secret(registry: Registry) -> None:
    launch = Launch("logged")
    async with gathered(registry, launch, 2) as nodes:
        await asyncio.gather(*(node.run() for node in nodes))
        secrets = [launch.token(0).text(), nodes[0].client.credential, registry.operator.text()]
        with contextlib.suppress(Exception):
            await nodes[0].client.request("POST", f"/v1/runs/{launch.token(1).text()}/nodes")
    await asyncio.to_thread(registry.end)
    assert re.search(
        r"run logged epoch [01]: slot 0 \(host0\) joined from 127\.0\.1\.1", registry.log
    )
    # What every node does is not logged of each: of the acknowledgements, the last one.
    assert re.search(
        r"run logged epoch 1: node [01] \(host[01], slot [01]\) is ready on table \w+; all are: go",
        registry.log,
    )
    assert registry.log.count("is ready on table") == 1
    for secret in secrets:
        assert secret.rpartition(".")[2] not in registry.log
    assert "Traceback" not in registry.log


# The end of the process, and its return


async def test_sigterm_ends_every_waiting_request_and_the_process(registry: Registry) -> None:
    launch = Launch("parked")
    async with (
        gathered(registry, launch, 2, lease_seconds=3600) as nodes,
        registry.client(launch.keys.read) as reader,
    ):
        await nodes[0].watch()
        version = (await reader.status("parked")).version
        lines: list[str] = []

        async def stream() -> None:
            async for line in reader.events("parked"):
                lines.append(line.kind)

        streaming = asyncio.create_task(stream())
        await soon(lambda: len(lines) == 3)
        sent = asyncio.Queue[str]()
        for client in (nodes[0].client, reader):
            _tell_what_is_sent(client, sent)
        path = f"/v1/runs/parked/nodes/0/watch?after={nodes[0].view.seq}"
        polls = [
            asyncio.create_task(nodes[0].client.request("GET", path)),
            asyncio.create_task(reader.status("parked", after=version, wait=20)),
        ]
        for _ in polls:
            await asyncio.wait_for(sent.get(), LIMIT_SECONDS)
        for _ in range(2):  # what was sent before it has been read by then
            await registry.status(launch)
        assert not any(poll.done() for poll in polls)
        assert await asyncio.to_thread(registry.end) == -signal.SIGTERM
        assert "timeout graceful shutdown" not in registry.log
        for outcome in await asyncio.gather(*polls, return_exceptions=True):
            assert isinstance(outcome, Unavailable)
            assert outcome.message == "the registry is closing"
        await streaming
    assert [record.number for record in read_journal(registry.journal)] == [1, 2, 3]
    assert "Traceback" not in registry.log


def _tell_what_is_sent(client: RegistryClient, sent: asyncio.Queue[str]) -> None:
    """Put in the path of each request that this client has written to its connection."""
    line = client._line
    assert isinstance(line, HttpLine)
    transport = line._http._transport
    real = transport.handle_async_request

    async def traced(request: httpx.Request) -> httpx.Response:
        async def trace(event: str, _: object) -> None:
            if event == "http11.send_request_body.complete":
                sent.put_nowait(request.url.path)

        request.extensions["trace"] = trace
        return await real(request)

    transport.handle_async_request = traced  # type: ignore[method-assign]


async def test_sigint_ends_the_process_without_a_traceback(registry: Registry) -> None:
    await registry.create(Launch("interrupted"))
    assert await asyncio.to_thread(registry.end, signal.SIGINT) == 128 + signal.SIGINT
    assert "Traceback" not in registry.log


async def test_a_registry_that_was_killed_carries_on_and_no_table_changes(
    registry: Registry,
) -> None:
    launch = Launch("killed")
    async with gathered(registry, launch, 3) as nodes:
        before = await asyncio.gather(*(node.run() for node in nodes))
        credentials = [node.client.credential for node in nodes]
        watching = [
            asyncio.create_task(node.follow(lambda view: view.result is not None)) for node in nodes
        ]
        await asyncio.to_thread(registry.end, signal.SIGKILL)
        registry.start()
        lines = await registry.events(launch, "restarted")
        assert lines[-1].reason.startswith("the registry came back on its journal")
        for node in nodes:
            await node.report(ExitReport(epoch=1, exit_code=0))
        after = await asyncio.gather(*watching)
        assert [view.result.status for view in after] == ["ok"] * 3
        assert [node.client.credential for node in nodes] == credentials
        told = {view.digest for node in nodes for view in node.views if view.digest}
        assert told == {before[0].digest}
        for node in nodes:
            await node.report(LeaveReport())
    kinds = [line.kind for line in await registry.events(launch, "left")]
    assert kinds.count("joined") == 3
    assert "lost" not in kinds


async def test_a_registry_killed_at_any_moment_of_the_forming_forms_the_run(
    registry: Registry,
) -> None:
    launch = Launch("forming")
    await registry.create(launch, 4)
    async with contextlib.AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(Node(registry.place, launch, slot)) for slot in range(4)
        ]
        forming = [asyncio.create_task(_join_and_run(node)) for node in nodes]
        for kind in ("joined", "probed"):
            await registry.events(launch, kind)
            await asyncio.to_thread(registry.end, signal.SIGKILL)
            registry.start()
        views = await asyncio.gather(*forming)
    assert len({view.digest for view in views}) == 1
    status = await registry.status(launch)
    assert [slot.incarnation for slot in status.slots] == [1, 1, 1, 1]


async def _join_and_run(node: Node) -> NodeView:
    while node.reply is None:
        with contextlib.suppress(Unavailable):
            await node.join()
    return await node.run()


# Leases by what the kernel says


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_a_node_whose_connections_are_closed_is_lost_a_second_later(
    tmp_path: Path, tls: bool
) -> None:
    launch = Launch("closed")
    with running(tmp_path, tls=tls) as registry:
        async with gathered(registry, launch, 3, lease_seconds=30) as nodes:
            await asyncio.gather(*(node.run() for node in nodes))
            alive = asyncio.create_task(nodes[0].follow(lambda view: view.stop))
            stays = asyncio.create_task(_reconnect_and_watch(nodes[1]))
            clock = (await registry.status(launch)).elapsed_seconds
            await nodes[2].client.close()
            lost = (await registry.events(launch, "lost"))[-1]
            assert lost.slot == 2
            assert "the connection was closed and no new one came" in lost.reason
            assert 0.9 <= lost.at_seconds - clock < 10
            assert (await alive).reason.startswith("node 2 (host2, slot 2)")
            await stays
        kinds = [(line.kind, line.slot) for line in await registry.events(launch, "lost")]
        assert kinds.count(("lost", 2)) == 1
        assert ("lost", 1) not in kinds


async def _reconnect_and_watch(node: Node) -> None:
    """Give up all connections now and then, and come back at once."""
    while not node.view.stop:
        credential = node.client.credential
        await node.client.close()
        node.client.credential = credential
        with contextlib.suppress(TimeoutError):
            async with timeout(0.4):
                await node.follow(lambda view: view.stop)


async def test_a_registry_that_was_stopped_for_longer_than_a_lease_kills_nobody(
    registry: Registry,
) -> None:
    launch = Launch("stopped")
    async with gathered(registry, launch, 3, lease_seconds=2) as nodes:
        await asyncio.gather(*(node.run() for node in nodes))
        following = [
            asyncio.create_task(node.follow(lambda view: view.result is not None)) for node in nodes
        ]
        process = psutil.Process(registry.pid)
        process.suspend()
        await asyncio.sleep(2.6)
        process.resume()
        for node in nodes:
            await node.report(ExitReport(epoch=1, exit_code=0))
        ends = await asyncio.gather(*following)
        assert [end.result.status for end in ends] == ["ok"] * 3
    assert "lost" not in [line.kind for line in await registry.events(launch, "exited")]


async def test_behind_an_ingress_a_closed_connection_says_nothing(tmp_path: Path) -> None:
    launch = Launch("ingress")
    with running(tmp_path, trust_close=False) as registry:
        async with gathered(registry, launch, 2, lease_seconds=2) as nodes:
            await asyncio.gather(*(node.run() for node in nodes))
            await nodes[1].client.close()
            silent = asyncio.create_task(nodes[0].follow(lambda view: view.stop))
            lost = (await registry.events(launch, "lost"))[-1]
            assert lost.slot == 1
            assert re.search(r"it was silent for \d+ s", lost.reason)
            await silent


# What the process needs of its machine


async def test_a_full_disk_refuses_changes_and_serves_what_is_there(registry: Registry) -> None:
    launch = Launch("full")
    async with gathered(registry, launch, 2) as nodes:
        views = await asyncio.gather(*(node.run() for node in nodes))
        unlimited = resource.prlimit(registry.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(registry.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
        report = ExitReport(epoch=1, exit_code=0, tail=["x" * 400] * 40)
        with pytest.raises(StorageFull, match="could not be written"):
            await nodes[0].report(report)
        watch = await nodes[0].client.watch("full", 0, 0, 2)
        assert (watch.phase, watch.digest) == (Phase.RUNNING, views[0].digest)
        assert (await registry.status(launch)).phase is Phase.RUNNING
        resource.prlimit(registry.pid, resource.RLIMIT_FSIZE, unlimited)
        ends = await asyncio.gather(*(node.finish() for node in nodes))
        assert [end.result.status for end in ends] == ["ok", "ok"]
    assert registry.process is not None
    assert registry.process.poll() is None


async def test_a_connection_without_a_credential_is_paced_and_one_with_it_is_not(
    shared: Registry,
) -> None:
    ask = f"GET {{}} HTTP/1.1\r\nHost: {SERVER_NAME}\r\nAuthorization: Bearer {{}}\r\n\r\n"
    operator = shared.operator.text()
    stranger = ask.format("/healthz", "") * 4
    known = ask.format("/v1/runs", operator) + ask.format("/healthz", operator) * 40
    took = []
    for requests in (stranger, known):
        reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
        started = time.monotonic()
        writer.write(requests.encode())
        for _ in range(requests.count("GET")):
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head)
            assert head.startswith(b"HTTP/1.1 200")
            assert found is not None
            await reader.readexactly(int(found.group(1)))
        took.append(time.monotonic() - started)
        writer.close()
    assert took[0] >= 1.9  # two at once, the others a second apart
    assert took[1] < 30


@contextlib.contextmanager
def crowd(registry: Registry, size: int) -> Iterator[None]:
    """Connections that have asked once, and stay."""
    with contextlib.ExitStack() as stack:
        for _ in range(size):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", registry.port)))
            sock.sendall(f"GET /healthz HTTP/1.1\r\nHost: {SERVER_NAME}\r\n\r\n".encode())
            assert sock.recv(1_000).startswith(b"HTTP/1.1 200")
        yield


@pytest.mark.parametrize("tls", but_at_night([False, True], True))
async def test_a_registry_without_free_descriptors_says_so_to_those_who_come(
    tmp_path: Path, tls: bool
) -> None:
    with running(tmp_path, tls=tls) as registry:
        launch = Launch("crowded")
        await registry.create(launch, join_timeout_seconds=4)
        open_now = psutil.Process(registry.pid).num_fds()
        files = open_now + 10 + RESERVE
        resource.prlimit(registry.pid, resource.RLIMIT_NOFILE, (files, files))
        room = 12 if tls else 0
        with contextlib.nullcontext() if tls else crowd(registry, 11):
            held = [registry.client() for _ in range(room)]
            for client in held:
                await client.runs()
            async with Node(registry.place, launch, 0) as node:
                with pytest.raises(Unavailable, match=f"no file descriptors .* {files} files"):
                    await node.join()
                status = await registry.status(launch)  # on a connection of its own
                assert f"it may open {files} files" in status.trouble
                assert status.reason == status.trouble
                while status.result is None:
                    with contextlib.suppress(Unavailable):
                        await node.join()
                    status = await registry.status(launch)
            for client in held:
                await client.close()
        assert status.result.code == "join_timeout"
        assert f"it may open {files} files" in status.result.message
        assert "never called" not in status.result.message
        assert registry.log.count("no file descriptors left") == 2  # the trouble, the end
        await registry.create(later := Launch("later"), 1)
        async with Node(registry.place, later, 0) as node:
            assert (await node.join()).incarnation == 1


def test_the_process_may_open_as_many_files_as_the_machine_allows(shared: Registry) -> None:
    soft, hard = resource.prlimit(shared.pid, resource.RLIMIT_NOFILE)
    assert soft == hard


def test_a_registry_that_cannot_start_says_why(registry: Registry) -> None:
    registry.end()
    for beside in ("-wal", "-shm"):
        registry.journal.with_name(f"journal.sqlite{beside}").unlink(missing_ok=True)
    registry.journal.write_bytes(b"my notes\n" * 500)
    registry.start()
    assert registry.process is not None
    assert registry.process.wait(START_SECONDS) == 2
    assert registry.log.splitlines()[-1].endswith(
        f"the journal {registry.journal} cannot be opened: file is not a database"
    )
    assert "Traceback" not in registry.log


async def test_a_journal_that_was_written_over_beside_its_log_is_told(registry: Registry) -> None:
    await registry.create(Launch("damaged"))
    registry.end(signal.SIGKILL)
    registry.journal.write_bytes(b"my notes\n" * 500)
    registry.start()
    assert registry.process is not None
    assert registry.process.wait(START_SECONDS) == 2
    assert f"the journal {registry.journal} cannot be " in registry.log.splitlines()[-1]
    assert "Traceback" not in registry.log


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"kind": "levitated"}', "is not one that this rdzv knows"),
        (b'{"kind": "left", "slot": 7, "incarnation": 1}', "does not follow from those before it"),
    ],
)
async def test_a_journal_that_cannot_be_applied_is_told_by_its_event(
    registry: Registry, body: bytes, words: str
) -> None:
    await registry.create(Launch("odd"))
    registry.end()
    journal = SqliteJournal(registry.journal)
    await journal.append([Record("odd", 2, 1.0, body)])
    await journal.close()
    registry.start()
    assert registry.process is not None
    assert registry.process.wait(START_SECONDS) == 2
    assert f"event 2 of run 'odd' {words}" in registry.log
    assert "Traceback" not in registry.log


def test_a_registry_whose_launcher_is_gone_does_not_start(registry: Registry) -> None:
    registry.end()
    registry.start("--parent", "1")
    assert registry.process is not None
    assert registry.process.wait(START_SECONDS) == 1
    assert "the launcher ended before its registry was up" in registry.log


async def test_the_registry_goes_with_its_launcher(registry: Registry) -> None:
    registry.end()
    program = (
        "import os, subprocess, sys, time\n"
        "from rendezvous.isolated import isolated\n"
        "config, fd = sys.argv[1:]\n"
        "command = isolated('rendezvous.server', config, '--fd', fd)\n"
        "child = subprocess.Popen([*command, '--parent', str(os.getpid())], pass_fds=[int(fd)])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    fd = registry.sock.fileno()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(registry.folder / "config.json"), str(fd)],
        pass_fds=[fd],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as launcher:
        assert launcher.stdout is not None
        child = psutil.Process(int(launcher.stdout.readline()))
        async with registry.client() as client:
            assert await client.runs() == []
        launcher.kill()
        await soon(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_config_that_is_wrong_is_refused_and_not_shown(registry: Registry) -> None:
    registry.end()
    path = registry.folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"key": [config["key"]], "colour": "red"}))
    registry.start()
    assert registry.process is not None
    assert registry.process.wait(START_SECONDS) != 0
    assert "colour" in registry.log
    assert config["key"] not in registry.log


async def test_a_registry_without_a_journal_keeps_its_runs_in_memory(tmp_path: Path) -> None:
    with running(tmp_path, journal=False) as registry:
        await registry.create(Launch("brief"))
        registry.end(signal.SIGKILL)
        registry.start()
        async with registry.client() as client:
            assert await client.runs() == []
        assert not registry.journal.exists()


async def test_the_names_of_a_registry_are_those_it_was_told(tmp_path: Path) -> None:
    with running(tmp_path, hosts=["registry.example.org"]) as registry:
        for host, status in [
            ("registry.example.org", 401),
            (f"{SERVER_NAME}:{registry.port}", 401),
            ("127.0.0.1", 400),
            ("evil.example.com", 400),
        ]:
            async with raw(registry) as client:
                answer = await client.get("/v1/runs", headers={"host": host})
                assert answer.status_code == status


async def test_a_registry_can_listen_on_ipv6(tmp_path: Path) -> None:
    try:
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no ::1")
    probe.close()
    with running(tmp_path, address="::1", tls=True) as registry:
        async with registry.client() as client:
            assert await client.runs() == []
            assert client.base == f"https://[::1]:{registry.port}"


def test_a_node_credential_is_one() -> None:
    """The log test looks for the secret part of credentials: there is one."""
    assert parse_credential(Launch("x").token(0).text()) is not None
