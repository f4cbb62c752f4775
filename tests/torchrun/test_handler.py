"""The handler that torchrun calls, by what its helper says.

Here torch is what the handler needs of it alone, since torch itself takes its time to import; what
torch's own code makes of a handler is in `test_beside_torch`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest

from tests.torchrun.handling import (
    ENDED,
    Made,
    TCPStore,
    ended,
    free_port,
    in_thread,
    making,
    started,
    until,
    without_torch,
)

IPV4 = socket.AF_INET
NOBODY = 1 << 23
"""No process has this number, or one above it."""


@pytest.fixture(scope="module", autouse=True)
def torch() -> Iterator[None]:
    """What stands for torch."""
    yield from without_torch()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Made]]:
    """Makes a handler, with a helper that says what the test wants."""
    yield from making(monkeypatch)


def test_the_first_line_says_what_torchrun_was_given(make: Callable[..., Made]) -> None:
    handler, helper = make(timeout=900, is_host=True)
    said = helper.hear()
    assert said.pop("python") == sys.executable
    assert said == {
        "kind": "begin",
        "protocol": 1,
        "version": version("rdzv"),
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
    _, _, info = started(make, node=1, address="10.1.2.3", port=port, nodes=nodes)
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
    from torch.distributed.elastic.rendezvous.api import RendezvousError

    handler, _ = make(nproc="")
    with pytest.raises(RendezvousError, match="--rdzv-conf nproc=N"):
        handler.next_rendezvous()


def test_a_torchrun_that_ends_while_it_waits_for_the_next_table_leaves(
    make: Callable[..., Made],
) -> None:
    handler, helper, _ = started(make)
    thread, _ = in_thread(handler.next_rendezvous)
    assert helper.hear()["kind"] == "next"
    other, _ = in_thread(handler.shutdown)
    assert helper.hear() == {"kind": "leaves"}  # nothing of this table has failed
    helper.say("over", code=0, message="")
    ended(thread)
    ended(other)


def test_what_comes_in_pieces_is_taken_in_line_by_line(make: Callable[..., Made]) -> None:
    handler, helper = make()
    whole = b"".join(
        json.dumps(said).encode() + b"\n"
        for said in ({"kind": "stop"}, {"kind": "unknown"}, {"kind": "may_run", "until": 1e8})
    )
    helper.send(whole[:9])
    helper.send(whole[9:30])
    until(lambda: handler.num_nodes_waiting() == 1)
    assert not handler.is_closed()
    helper.send(whole[30:])
    until(lambda: handler._until == 1e8)


@pytest.mark.parametrize("again", [False, True])
def test_a_fence_that_is_not_renewed_ends_the_workers_once_and_no_other_child(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Its helper stands still: another node may have taken this one's place."""
    killed: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        if pid == NOBODY + 11:  # it ended just now
            raise ProcessLookupError

    children = [NOBODY + 7]
    monkeypatch.setattr("rdzv.torchrun._children", lambda: [*children])
    handler, helper, _ = started(make)
    children += [NOBODY + 11, NOBODY + 12]
    monkeypatch.setattr(os, "kill", kill)
    helper.say("may_run", until=time.monotonic() + 0.05)
    if again:
        helper.say("may_run", until=time.monotonic() + 60)
        until(lambda: handler._until > time.monotonic() + 30)
        time.sleep(0.06)
        assert killed == []
    else:
        until(lambda: len(killed) == 2)
        assert killed == [(NOBODY + 11, signal.SIGKILL), (NOBODY + 12, signal.SIGKILL)]
        assert handler._until == float("inf")
        assert handler.num_nodes_waiting() == 0
        helper.say("stop")  # it is heard nevertheless
        until(lambda: handler.num_nodes_waiting() == 1)
        assert len(killed) == 2


def test_children_are_those_of_each_thread() -> None:
    from rdzv import torchrun

    before = set(torchrun._children())
    own = subprocess.Popen(["sleep", "99"])
    thread, found = in_thread(lambda: subprocess.Popen(["sleep", "99"]))
    ended(thread)
    try:
        assert set(torchrun._children()) - before == {own.pid, found[0].pid}
    finally:
        for one in (own, found[0]):
            one.kill()
            one.wait()
    assert set(torchrun._children()) == before


def test_who_ended_says_no_more_and_who_is_not_heard_does_not_wait_for_ever(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdzv.torchrun._END_SECONDS", 0.02)
    handler, helper, info = started(make, port=(port := free_port()), variables={"NEW": "x"})
    waits = timedelta(seconds=0.01)
    with pytest.raises(Exception, match="other nodes still run after 0 s") as caught:
        info.store.wait(["a", "torchelastic/agent/terminal_state/last"], waits)
    assert type(caught.value).__name__ == "DistStoreError"
    assert helper.hear() == {"kind": "ended"}
    assert handler.shutdown() is True
    assert "NEW" not in os.environ
    with socket.create_server(("127.0.0.1", port)):
        pass
    handler.set_closed()
    assert helper.hear() == {"kind": "failed", "failure": None}  # of the end nothing more was said
    helper.end()
    until(handler.is_closed)
    handler.set_closed()  # nobody hears it


def test_the_store_answers_from_the_table_and_keeps_what_nobody_else_asks_for() -> None:
    from rdzv.torchrun_agent import TableStore

    waited: list[float] = []
    nodes = [(8, "master"), (1, "trainer"), (2, "trainer"), (5, "ps"), (3, "trainer"), (4, "ps")]
    store = TableStore(nodes, waited.append)
    ranks = [json.loads(store.get(f"torchelastic/assigned_ranks/{node}")) for node in range(6)]
    assert ranks == [
        [0, 23, 0, 8],
        [8, 23, 0, 6],
        [9, 23, 1, 6],
        [11, 23, 0, 9],
        [16, 23, 3, 6],
        [19, 23, 5, 9],
    ]
    roles = store.multi_get(["torchelastic/role_info/3", "torchelastic/role_info/1"])
    assert [json.loads(one) for one in roles] == [
        {"role": "ps", "rank": 3, "local_world_size": 5},
        {"role": "trainer", "rank": 1, "local_world_size": 1},
    ]
    store.set("a", b"x")
    store.multi_set(["b", "c"], ["y", 3])
    assert store.multi_get(["a", "b", "c"]) == [b"x", b"y", b"3"]
    assert [store.add("n", 2), store.add("n", 5), store.add("c", 4)] == [2, 7, 7]
    assert store.get("n") == b"7"
    assert store.add("torchelastic/agent/terminal_state/num_members", 1) == 0
    known = ["torchelastic/role_info/0", "torchelastic/assigned_ranks/1", "a", "n"]
    assert (store.check(known), store.check([*known, "d"])) == (True, False)
    store.wait(known)
    for call in (store.get, lambda key: store.wait([key])):
        with pytest.raises(Exception, match="rdzv's store has no d") as caught:
            call("d")
        assert type(caught.value).__name__ == "DistStoreError"
    assert store.timeout == timedelta(seconds=300)
    barrier = "torchelastic/agent/terminal_state/last"
    store.wait([barrier])
    store.set_timeout(timedelta(minutes=2))
    store.wait([barrier])
    store.wait([barrier], timedelta(seconds=7))
    assert (store.timeout, waited) == (timedelta(seconds=120), [300.0, 120.0, 7.0])


def test_whose_failure_was_first_is_in_the_frame_of_whoever_has_failures() -> None:
    from rdzv import torchrun_agent as agent

    def one(at: float, code: int, local_rank: int) -> Any:
        return SimpleNamespace(timestamp=at, exitcode=code, local_rank=local_rank, pid=7 + at)

    def above(run_result: Any, result: Any, worker_group: Any = None) -> Any:
        return below("no failures")

    def below(result: Any) -> Any:
        return agent.of_agent(sys._getframe(), {"nproc": "6"})

    none = SimpleNamespace(failures={})
    late = SimpleNamespace(failures={2: one(5, 3, 0), 9: one(4, -11, 1), 4: one(6, 1, 2)})
    early = SimpleNamespace(failures={3: one(1, 0, 5)})
    first = {"rank": 9, "local_rank": 1, "pid": 11, "code": 139}
    assert above(late, early) == (6, "default", first)
    assert above(none, early)[2] == {"rank": 3, "local_rank": 5, "pid": 8, "code": 0}
    assert above(none, none) == (6, "default", None)
    group = SimpleNamespace(spec=SimpleNamespace(local_world_size=4, role=3))
    assert above(None, late, group) == (4, "3", first)


def test_another_node_serves_no_store(make: Callable[..., Made]) -> None:
    port = free_port()
    started(make, node=1, port=port, nodes=[[1, "default"]] * 2)
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
    handler, helper = make()
    thread, found = in_thread(handler.next_rendezvous)
    assert [helper.hear()["kind"], helper.hear()["kind"]] == ["begin", "next"]
    helper.end()
    ended(thread)
    assert "ended with exit code 7" in str(found[0])


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


@pytest.mark.parametrize("address", ["::1", "127.0.0.1"])
def test_a_store_listens_at_the_tables_address_alone(address: str) -> None:
    from rdzv import torchrun

    torchrun._serve(address, port := free_port())
    family = socket.AF_INET6 if ":" in address else IPV4
    assert TCPStore.made[-1][-1] == (family, address, port)


def test_a_torchrun_is_one_by_its_script_or_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdzv import torchrun

    main = sys.modules["__main__"]
    for file, module, is_one in (
        ("/venv/bin/torchrun", None, True),
        ("/x/torch/distributed/run.py", "torch.distributed.run", True),
        ("/x/torchrun/train.py", None, False),
        ("/x/train.py", "my.distributed.run", False),
    ):
        spec = None if module is None else SimpleNamespace(name=module)
        monkeypatch.setattr(main, "__file__", file, raising=False)
        monkeypatch.setattr(main, "__spec__", spec)
        assert torchrun._is_torchrun() is is_one
    monkeypatch.setitem(sys.modules, "__main__", None)
    assert not torchrun._is_torchrun()


def test_secrets_are_taken_out_and_kept_for_the_next_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rdzv import torchrun

    given: list[dict[str, str]] = []
    started: list[Any] = []

    def popen(words: list[str], **how: Any) -> Any:
        given.append(how.pop("env"))
        started.append((words, how))
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
        number = theirs.fileno()

        def refuse(words: list[str], **how: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        monkeypatch.setenv("PYTHONPATH", torchrun._FOLDER)
        why = "^'/opt/rdzv/bin/python' cannot be started: Permission denied; set RDZV_PYTHON to the"
        with pytest.raises(Exception, match=why):
            torchrun._start_helper(theirs)
        assert "PYTHONPATH" not in os.environ
    assert [env["RDZV_TOKEN_FILE"] for env in given] == ["/run/token"] * 2
    assert all(os.environ.items() <= {**env, **os.environ}.items() for env in given)
    words = ["/opt/rdzv/bin/python", "-I", "-m", "rdzv", "_torchrun"]
    how = {"stdin": number, "stdout": 2, "start_new_session": True}
    assert started == [(words, how)] * 2


def test_without_an_rdzv_it_says_what_to_set(
    make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rdzv import torchrun

    monkeypatch.delenv("RDZV_PYTHON", raising=False)
    found: dict[str, Any] = {"which": "/usr/bin/rdzv", "pydantic": object()}
    monkeypatch.setattr("rdzv.torchrun.shutil.which", lambda name: found.get("which"))
    monkeypatch.setattr(torchrun, "find_spec", found.get)
    monkeypatch.setattr(torchrun, "_MAIN", __file__)
    assert torchrun._helper_words() == ["/usr/bin/rdzv", "_torchrun"]
    del found["which"]
    assert torchrun._helper_words() == [sys.executable, "-I", __file__, "_torchrun"]
    del found["pydantic"]
    with pytest.raises(Exception, match="set RDZV_PYTHON"):
        torchrun._helper_words()
    found["pydantic"] = object()
    monkeypatch.setattr(torchrun, "_MAIN", "/nowhere")
    with pytest.raises(Exception, match="set RDZV_PYTHON"):
        torchrun._helper_words()
