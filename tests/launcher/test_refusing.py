"""A node of a symmetric start that cannot take part: who is told, by whom, and how soon all end."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.run import group_refusal
from launcher.run.group_refusal import Refuser, refuser
from launcher.symmetric.claim import Value
from rendezvous.door import own_command
from rendezvous.talk.credentials import RunKeys, new_secret
from rendezvous.talk.join_string import group_token_text
from rendezvous.wire.errors import UsageError
from tests.launcher.command import rdzv
from tests.support.tables import rows

OWN = {"127.0.0.1", "10.0.0.1", "fd00::1"}


@rows(
    "rank size master slot of_slot hosts seconds",
    """
node 0 at its address | 0 | 3 | 10.0.0.1 | 0 | yes | yes | 20
node 0 by a name | 0 | 3 | gpu-c03 | 0 | yes | yes | 20
all on one machine | 0 | 3 | 127.0.0.1 | 0 | yes | yes | 20
a second node 0 | 0 | 3 | 10.0.0.9 | 0 | | | 10
above node 0 | 2 | 3 | 10.0.0.9 | 2 | yes | | 30
above node 0 with min:max | 3 | 2:4 | 10.0.0.9 | 3 | yes | | 30
a spare | 3 | 3 | 10.0.0.9 | 3 | yes | | 30
ranks from 1 | 4 | 3 | 10.0.0.9 | 0 | | | 10
no number | | 3 | 10.0.0.9 | 0 | | | 10
a rank that is no number | -1 | 3 | 10.0.0.9 | 0 | | | 10
""",
)
def test_who_tells_the_others(
    rank: str, size: str, master: str, slot: str, of_slot: str, hosts: str, seconds: str
) -> None:
    given = {"nnodes": size, "node_rank": rank, "rdzv_id": "r", "master_addr": master}
    values = {name: Value(text, name.upper()) for name, text in given.items() if text}
    found = refuser(values, 1, OWN)
    assert found is not None
    assert (found.slot, found.of_slot, found.hosts) == (int(slot), bool(of_slot), bool(hosts))
    assert (found.run, found.addresses, found.seconds) == ("r", (master,), float(seconds))


@pytest.mark.parametrize(
    "changed",
    [{"nnodes": ""}, {"nnodes": "many"}, {"rdzv_id": "no run id"}, {"master_addr": "https://n0"}],
)
def test_without_a_run_nobody_is_told(changed: dict[str, str]) -> None:
    given = {"nnodes": "3", "node_rank": "1", "rdzv_id": "r", "master_addr": "n0"} | changed
    values = {name: Value(text, name) for name, text in given.items() if text}
    assert refuser(values, 0, OWN) is None


@pytest.mark.usefixtures("bare")
def test_a_wrong_value_is_named_by_the_variable_that_has_it() -> None:
    result = rdzv("launch", "--dry-run", "--", "train.py", env={"NUM_NODES": "many"})
    assert "NUM_NODES cannot be 'many'" in result.stderr
    result = rdzv("launch", "--dry-run", "--nnodes", "many", "--", "train.py")
    assert "--nnodes cannot be 'many'" in result.stderr
    hosts = ("--hostlist", "n1,n2", "--no-local-node")
    result = rdzv("launch", "--dry-run", *hosts, "--", "train.py", env={"NUM_NODES": "16"})
    assert "NUM_NODES 16 does not match the hosts, which are 2: n1, n2" in result.stderr


async def test_rank_0_goes_once_all_others_have_heard_of_a_run_with_all_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, untold, asked = RunKeys(new_secret(), "r", "launch0001"), [[0, 1, 4], [0, 4], [0]], []

    class Registry(contextlib.AbstractAsyncContextManager[Any]):
        async def __aexit__(self, *_: object) -> None:
            pass

        async def answer(self, *given: Any, after: int = 7, **_: Any) -> Any:
            asked.append((*given, after))
            return SimpleNamespace(version=len(asked), untold=untold.pop(0))

        async def take(self, *given: Any) -> None:
            asked.append(given)

        create, refuse, status = take, take, answer

    monkeypatch.setattr(group_refusal, "RegistryClient", lambda *_: Registry())
    node = Refuser("r", (2, 4, 1), 0, True, True, ("10.0.0.1",))
    await group_refusal._end_for(node, keys, 29_400, UsageError("no such option"))
    (_, spec), (run, slot, refusal), *looks = asked
    assert (spec.min_nodes, spec.max_nodes, spec.slots, spec.loopback) == (2, 4, 5, False)
    assert spec.token_sha256 == [keys.join_token(slot, 1).sha256() for slot in range(5)]
    assert (run, slot, refusal.reason, untold) == ("r", 0, "no such option", [])
    assert looks == [("r", 7), ("r", 3), ("r", 4)]  # each time after what it knows


# --- real processes, all on this machine ----------------------------------------------------------


class Group:
    """Starts of the same command, by rank."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        self._environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "RDZV_TOKEN": group_token_text(new_secret()),
            "RDZV_ID": "group",
            "NUM_NODES": str(nodes),
            "MASTER_ADDR": "127.0.0.1",
            "RDZV_PORT": str(port),
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, rank: int, *options: str, **environ: str) -> None:
        """Start one."""
        state = {
            "NODE_RANK": str(rank),
            "RDZV_STATE_DIR": str(self._folder / f"{len(self._started)}"),
        }
        command = own_command("launch", "--framework", "command", "--join-timeout", "100")
        self._started.append(
            subprocess.Popen(
                [*command, *options, "--", "true"],
                env=self._environ | state | environ,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def ends(self) -> list[tuple[int, str]]:
        """Exit code and standard error of each."""
        said = [process.communicate(timeout=90)[1] for process in self._started]
        return [(one.returncode, words) for one, words in zip(self._started, said, strict=True)]


@pytest.mark.real_time
@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_what_rank_0_alone_refuses_the_others_hear_at_once(tmp_path: Path) -> None:
    group, began = Group(tmp_path, 2), time.monotonic()
    group.start(0, RDZV_GRACE="soon")
    group.start(1)
    first, *others = group.ends()
    assert first[0] == 64
    for code, words in others:
        assert code in (64, 77)  # it may have joined before
        assert "slot 0 (" in words
        assert "cannot take part: RDZV_GRACE takes a number of seconds" in words
    assert time.monotonic() - began < 60.0  # and not 100 s; a few seconds where nothing else runs


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_what_a_node_above_rank_0_refuses_rank_0_hears_at_once(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    group.start(0)
    group.start(1)
    group.start(2, "--bogus")
    (code, words), _, (own, _) = group.ends()
    assert (code, own) == (64, 64)
    assert "slot 2 (" in words
    assert "cannot take part: No such option '--bogus'" in words


@pytest.mark.nightly
@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_what_all_refuse_ends_all_at_once(tmp_path: Path) -> None:
    group, began = Group(tmp_path, 2), time.monotonic()
    for rank in (0, 1):
        group.start(rank, "--bogus")
    assert [code for code, _ in group.ends()] == [64, 64]
    assert time.monotonic() - began < 45.0


@pytest.mark.nightly
@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_a_node_with_another_token_ends_and_leaves_a_trace_at_rank_0(tmp_path: Path) -> None:
    group = Group(tmp_path, 2)
    group.start(0, "--join-timeout", "40")
    group.start(1, RDZV_TOKEN=group_token_text(new_secret()))
    (first, words), (code, own) = group.ends()
    assert (first, code) == (80, 77)
    assert "it has another key: another RDZV_TOKEN than this node's" in own
    assert "asked to join run 'group' as slot 1 with a token that is not of this run" in words
