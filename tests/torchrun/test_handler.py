"""The handler that torchrun calls, by what its helper says; and the store, beside torch's own."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks  # torch takes its time to import


@pytest.fixture(scope="module", autouse=True)
def torch() -> None:
    """torch imports the plug-in, as in any torchrun, and not the other way round."""
    importlib.import_module("torch.distributed.elastic.rendezvous")


ENDED = SimpleNamespace(pid=0, wait=lambda: 7)


class Helper:
    """The other end of a handler's socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lines = link.makefile("rb")

    def hear(self) -> dict[str, Any]:
        """What the handler says next."""
        return dict(json.loads(self._lines.readline()))

    def say(self, kind: str, **words: Any) -> None:
        """Say something to it."""
        self._link.sendall(json.dumps({"kind": kind, **words}).encode() + b"\n")

    def go(self, **changes: Any) -> None:
        """A table of one node."""
        words: dict[str, Any] = {"rank": 0, "address": "127.0.0.1", "port": free_port()}
        words |= {"nodes": [[2, "default"]], "variables": {}, "removed": []}
        self.say("go", **(words | changes))

    def end(self) -> None:
        """It is gone."""
        self._lines.close()
        self._link.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listens:
        return int(listens.getsockname()[1])


Made = tuple[Any, Helper]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Made]]:
    """Makes a handler, with a helper that says what the test wants."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    from rdzv import torchrun

    made: list[Helper] = []

    def start(theirs: socket.socket) -> Any:
        made.append(Helper(theirs.dup()))
        return ENDED

    monkeypatch.setattr(torchrun, "_start_helper", start)

    def make(**conf: Any) -> Made:
        params = RendezvousParameters("rdzv", "n0:1", "job", 1, 2, **({"nproc": 2} | conf))
        handler: Any = torchrun.handler()(params)
        return handler, made[-1]

    yield make
    for helper in made:
        helper.end()


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as exc:  # noqa: BLE001 (the test looks at it)
            found.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def ended(thread: threading.Thread) -> None:
    thread.join(10)
    assert not thread.is_alive()


def started(make: Callable[..., Made], **go: Any) -> tuple[Any, Helper, Any]:
    """A handler on its first table, and what `next_rendezvous` gave."""
    handler, helper = make()
    helper.hear()
    thread, found = in_thread(handler.next_rendezvous)
    helper.hear()
    helper.go(**go)
    ended(thread)
    return handler, helper, found[0]


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_torch_finds_it_by_its_name() -> None:
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

    assert "rdzv" in rendezvous_handler_registry._registry


def test_the_first_line_says_what_torchrun_was_given(make: Callable[..., Made]) -> None:
    handler, helper = make(timeout=900, is_host=True)
    said = helper.hear()
    assert said.pop("python") == sys.executable
    assert said == {
        "kind": "begin",
        "talks": 1,
        "endpoint": "n0:1",
        "run": "job",
        "nodes": [1, 2],
        "conf": {"nproc": "2", "timeout": "900", "is_host": "1"},
        "pid": os.getpid(),
    }
    assert (handler.get_backend(), handler.get_run_id()) == ("rdzv", "job")


def test_a_table_gives_rank_size_and_the_masters_place(make: Callable[..., Made]) -> None:
    port = free_port()
    nodes = [[2, "default"], [4, "default"]]
    _, _, info = started(make, rank=1, address="10.1.2.3", port=port, nodes=nodes)
    assert (info.rank, info.world_size) == (1, 2)
    place = info.bootstrap_store_info
    assert (place.master_addr, place.master_port) == ("10.1.2.3", port)


def test_it_asks_with_the_processes_and_the_role_of_its_agent(make: Callable[..., Made]) -> None:
    """As the agent's frame has them; no argument of a handler has."""
    handler, helper = make(nproc=7)
    helper.hear()

    def rendezvous(worker_group: Any) -> None:
        handler.next_rendezvous()

    group = SimpleNamespace(spec=SimpleNamespace(local_world_size=3, role="reader"))
    thread, _ = in_thread(lambda: rendezvous(group))
    said = {"kind": "next", "processes": 3, "role": "reader", "failure": None}
    assert helper.hear() == said
    helper.go()
    ended(thread)


def test_it_tells_which_worker_failed_first_as_its_agent_has_seen(
    make: Callable[..., Made],
) -> None:
    handler, helper, _ = started(make)

    def failure(at: int, code: int) -> Any:
        return SimpleNamespace(timestamp=at, exitcode=code, local_rank=at, pid=100 + at)

    def invoke_run(run_result: Any) -> None:
        handler.next_rendezvous()

    failures = {4: failure(2, 1), 5: failure(1, -9)}
    thread, _ = in_thread(lambda: invoke_run(SimpleNamespace(failures=failures)))
    assert helper.hear()["failure"] == {"rank": 5, "local_rank": 1, "pid": 101, "code": 137}
    helper.go()
    ended(thread)

    def launch_agent(result: Any) -> None:
        handler.shutdown()

    thread, _ = in_thread(lambda: launch_agent(SimpleNamespace(failures={4: failure(2, 3)})))
    told = helper.hear()
    assert (told["kind"], told["failure"]["code"]) == ("failed", 3)
    helper.say("over", code=3, message="")
    ended(thread)


def test_without_an_agent_the_number_of_processes_is_to_be_given(
    make: Callable[..., Made],
) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousError

    handler, _ = make(nproc="")
    with pytest.raises(RendezvousError, match="--rdzv-conf nproc=N"):
        handler.next_rendezvous()


def test_rank_0_serves_a_fresh_store_for_each_table(make: Callable[..., Made]) -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = free_port()
    handler, helper, _ = started(make, port=port)
    assert handler.use_agent_store
    first = TCPStore("127.0.0.1", port, is_master=False)
    first.set("key", "of the first")
    thread, _ = in_thread(handler.next_rendezvous)
    helper.hear()
    with socket.create_server(("127.0.0.1", port)):  # it is free before the next one is agreed on
        pass
    helper.go(port=port)
    ended(thread)
    second = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=5))
    assert not second.check(["key"])


def test_another_node_serves_no_store(make: Callable[..., Made]) -> None:
    port = free_port()
    started(make, rank=1, port=port, nodes=[[1, "default"]] * 2)
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_store_that_is_not_shared_is_left_to_the_workers(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    port = free_port()
    handler, _, _ = started(make, port=port)
    assert not handler.use_agent_store
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_that_is_taken_is_told(make: Callable[..., Made]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, _, found = started(make, port=port)
    assert f"master port {port} cannot be opened" in str(found)


def test_a_stop_has_torchrun_come_back_once(make: Callable[..., Made]) -> None:
    handler, helper, _ = started(make)
    assert handler.num_nodes_waiting() == 0
    helper.say("stop")
    until(lambda: handler.num_nodes_waiting() == 1)
    thread, _ = in_thread(handler.next_rendezvous)
    assert helper.hear()["kind"] == "next"
    helper.say("stop")  # of the workers before: its way crossed that of the question
    helper.go()
    ended(thread)
    assert handler.num_nodes_waiting() == 0


def test_variables_of_a_table_are_set_and_taken_back(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "mine")
    monkeypatch.setenv("REMOVED", "secret")
    handler, helper, _ = started(make, variables={"KEPT": "1", "NEW": "2"}, removed=["REMOVED"])
    assert (os.environ["KEPT"], os.environ["NEW"]) == ("1", "2")
    assert "REMOVED" not in os.environ
    thread, _ = in_thread(handler.next_rendezvous)
    helper.hear()
    helper.go(variables={"OTHER": "3"}, removed=[])
    ended(thread)
    assert os.environ["KEPT"] == "mine"
    assert os.environ["REMOVED"] == "secret"
    assert "NEW" not in os.environ
    helper.say("over", code=0, message="")
    handler.shutdown()
    assert "OTHER" not in os.environ


@pytest.mark.parametrize(
    ("code", "error"), [(1, "RendezvousClosedError"), (0, "RendezvousGracefulExitError")]
)
def test_a_run_that_is_over_raises_in_a_program(
    make: Callable[..., Made], code: int, error: str
) -> None:
    handler, helper = make()
    thread, found = in_thread(handler.next_rendezvous)
    helper.say("over", code=code, message="run 'job' failed: node 2")
    ended(thread)
    assert type(found[0]).__name__ == error
    assert str(found[0]) == "run 'job' failed: node 2"
    assert handler.is_closed()
    assert handler.num_nodes_waiting() == 1


@pytest.mark.parametrize("code", [0, 81])
def test_a_run_that_is_over_ends_a_torchrun_with_its_code(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "/venv/bin/torchrun", raising=False)
    handler, helper = make()
    thread, found = in_thread(handler.next_rendezvous)
    helper.say("over", code=code, message="over")
    ended(thread)
    assert isinstance(found[0], SystemExit)
    assert found[0].code == code


def test_a_helper_that_dies_ends_the_wait(make: Callable[..., Made]) -> None:
    handler, helper, _ = started(make)
    helper.end()
    until(lambda: handler.num_nodes_waiting() == 1)  # and it has not raised
    with pytest.raises(Exception, match="helper process ended with exit code 7") as raised:
        handler.next_rendezvous()
    assert type(raised.value).__name__ == "RendezvousConnectionError"


@pytest.mark.parametrize(("went", "kind"), [(True, "failed"), (False, "leaves")])
def test_an_end_is_told_and_its_news_awaited(
    make: Callable[..., Made], went: bool, kind: str
) -> None:
    if went:
        handler, helper, _ = started(make)
    else:
        handler, helper = make()
        helper.hear()
    thread, _ = in_thread(handler.shutdown)
    assert helper.hear()["kind"] == kind
    assert thread.is_alive()
    helper.say("over", code=1, message="")
    ended(thread)


def test_the_barrier_at_the_end_waits_for_the_runs_result(make: Callable[..., Made]) -> None:
    """By torch's own code, as its agent calls it."""
    from torch.distributed.elastic.utils import store as torchs

    handler, helper, info = started(make)

    def barrier() -> None:
        prefix = "torchelastic/agent/terminal_state"
        torchs.barrier(info.store, 1, prefix, barrier_timeout=30)

    thread, found = in_thread(barrier)
    assert helper.hear() == {"kind": "ended"}
    assert thread.is_alive()
    helper.say("over", code=0, message="")
    ended(thread)
    assert found == [None]
    assert info.store.timeout == timedelta(seconds=300)
    handler.shutdown()  # says nothing more


def test_the_barrier_gives_up_as_torch_expects(make: Callable[..., Made]) -> None:
    from torch.distributed import DistStoreError
    from torch.distributed.elastic.utils import store as torchs

    _, _, info = started(make)
    with pytest.raises(DistStoreError, match="other nodes still run"):
        torchs.barrier(info.store, 2, "torchelastic/agent/terminal_state", barrier_timeout=0.1)


@pytest.mark.parametrize(
    "nodes",
    [
        [(1, "default")],
        [(8, "default")] * 4,
        [(8, "master"), (1, "trainer"), (2, "trainer"), (5, "ps"), (3, "trainer"), (2, "ps")],
    ],
)
def test_ranks_are_those_that_torchs_agents_agree_on(nodes: list[tuple[int, str]]) -> None:
    """The agents' own algorithm over a real store, and over the table."""
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    from rdzv.torchrun_agent import TableStore

    def ranks(store: Any, node: int) -> list[tuple[int, int, int, int]]:
        count, role = nodes[node]
        spec = SimpleNamespace(role=role, local_world_size=count)
        assign: Any = LocalElasticAgent._assign_worker_ranks
        assign = getattr(assign, "__wrapped__", assign)
        workers = assign(None, store, node, len(nodes), spec)
        return [(w.global_rank, w.role_rank, w.world_size, w.role_world_size) for w in workers]

    common: Any = importlib.import_module("torch.distributed").HashStore()
    for node in reversed(range(1, len(nodes))):  # rank 0 reads what the others have written
        count, role = nodes[node]
        info = {"role": role, "rank": node, "local_world_size": count}
        common.set(f"torchelastic/role_info/{node}", json.dumps(info))
    expected = [ranks(common, node) for node in range(len(nodes))]
    tables = [TableStore(nodes, lambda _: None) for _ in nodes]
    assert [ranks(store, node) for node, store in enumerate(tables)] == expected


def test_a_fence_that_is_not_renewed_ends_the_workers(make: Callable[..., Made]) -> None:
    """Its helper stands still: another node may have taken this one's place."""
    _, helper, _ = started(make)
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    helper.say("may_run", until=time.monotonic() + 60)
    helper.say("may_run", until=time.monotonic() + 0.3)
    assert worker.wait(10) == -signal.SIGKILL


def test_a_fence_that_is_renewed_ends_nothing(make: Callable[..., Made]) -> None:
    handler, helper, _ = started(make)
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        helper.say("may_run", until=time.monotonic() + 0.5)
        helper.say("may_run", until=time.monotonic() + 60)
        until(lambda: handler._until > time.monotonic() + 30)
        time.sleep(0.7)
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()


def test_secrets_are_taken_out_and_kept_for_the_next_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rdzv import torchrun

    given: list[dict[str, str]] = []

    def popen(words: list[str], **how: Any) -> Any:
        given.append(how["env"])
        return ENDED

    monkeypatch.setattr(torchrun, "_withheld", {})
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setenv("RDZV_PYTHON", "/opt/rdzv/bin/python")
    monkeypatch.setenv("RDZV_TOKEN_FILE", "/run/token")
    monkeypatch.setenv("PYTHONPATH", f"{torchrun._FOLDER}:/mine")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        torchrun._start_helper(theirs)
        assert "RDZV_TOKEN_FILE" not in os.environ
        assert os.environ["PYTHONPATH"] == "/mine"
        torchrun._start_helper(theirs)
    assert [env["RDZV_TOKEN_FILE"] for env in given] == ["/run/token"] * 2


def test_without_an_rdzv_it_says_what_to_set(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rdzv import torchrun

    monkeypatch.delenv("RDZV_PYTHON", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(torchrun, "find_spec", lambda name: None)
    with pytest.raises(Exception, match="set RDZV_PYTHON"):
        torchrun._helper_words()
