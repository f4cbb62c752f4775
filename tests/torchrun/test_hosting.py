"""The registry of a torchrun's run, started on the endpoint's machine by one of its torchruns."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.torchrun import hosting
from launcher.torchrun.asked import read_asked
from launcher.torchrun.hosting import Hosting, is_here
from rendezvous.wire.errors import UsageError
from tests.support.virtual_time import run_virtually
from tests.torchrun.test_asked import TOKEN, begin


def hosting_on(port: int, monkeypatch: pytest.MonkeyPatch, program: str) -> Hosting:
    """One whose host's process is this program."""
    monkeypatch.setattr(hosting, "own_command", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(hosting, "_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(hosting, "_LOOK_SECONDS", 0.02)
    said = begin(f"127.0.0.1:{port}")
    return Hosting(read_asked(said), said, TOKEN)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def test_why_it_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; print('rdzv: no room\\n      make some', file=sys.stderr); sys.exit(64)"
    made = hosting_on(free_port(), monkeypatch, program)
    with pytest.raises(UsageError, match="cannot be started here: rdzv: no room make some"):
        await made.go()


async def test_its_process_is_told_of_the_run_by_its_standard_input_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And has a session of its own, as it outlives this torchrun."""
    monkeypatch.setenv("RDZV_TOKEN", TOKEN)
    program = (
        "import json, os, sys; said = json.load(sys.stdin); print(said['begin']['run'], "
        "said['token'], os.environ.get('RDZV_TOKEN'), os.getsid(0) == os.getpid()); sys.exit(64)"
    )
    made = hosting_on(free_port(), monkeypatch, program)
    with pytest.raises(UsageError, match=f"job {TOKEN} None True"):
        await made.go()
    assert made._said is not None
    assert made._said.closed


async def test_an_endpoint_that_a_name_of_this_machine_leads_to_is_hosted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nobody(*_: object) -> None:
        raise ConnectionRefusedError

    made = hosting_on(free_port(), monkeypatch, "import sys; sys.exit('it was tried')")
    said = begin("n7:29711")
    made = Hosting(read_asked(said), said, TOKEN)
    monkeypatch.setattr(hosting, "is_here", lambda host: host == "n7")
    monkeypatch.setattr(hosting, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(asyncio, "open_connection", nobody)
    with pytest.raises(UsageError, match="it was tried"):
        await made.go()


async def test_a_process_that_cannot_be_is_an_error_of_this_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = hosting_on(free_port(), monkeypatch, "")
    monkeypatch.setattr(hosting, "own_command", lambda *_: ["/no/such/program"])
    with pytest.raises(UsageError, match="cannot be started: No such file or directory"):
        await made.go()


async def test_who_else_may_have_started_it_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosting, "_PATIENCE_SECONDS", 0.2)
    made = hosting_on(free_port(), monkeypatch, "import sys; sys.exit('it is taken')")
    with pytest.raises(UsageError, match="cannot be started here: it is taken"):
        await made.go()


@pytest.mark.parametrize(
    ("endpoint", "conf"), [("192.0.2.7:29600", {}), ("127.0.0.1:29600", {"is_host": "0"})]
)
async def test_a_registry_elsewhere_is_left_to_the_node_there(
    endpoint: str, conf: dict[str, str]
) -> None:
    said = begin(endpoint, conf)
    made = Hosting(read_asked(said), said, TOKEN)
    await made.go()
    assert made._host is None


@pytest.mark.parametrize(
    ("left", "over", "lasts"), [(3, False, 0.4), (1_000, False, 10.0), (3, True, 0.0)]
)
def test_who_hosts_stays_until_the_others_know_the_end_or_for_ten_seconds(
    left: int, over: bool, lasts: float
) -> None:
    """In a container its registry ends with it."""
    said = begin("127.0.0.1:29600")
    made = Hosting(read_asked(said), said, TOKEN)
    made._host = cast(Any, SimpleNamespace(poll=lambda: 0 if over else None))
    answers = itertools.count(1)

    async def everyone_left() -> bool:
        return next(answers) == left

    async def work() -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        await made.close(everyone_left)
        return clock() - began

    assert run_virtually(work()) == pytest.approx(lasts, abs=0.3)


async def test_another_torchrun_of_the_machine_may_have_started_it_just_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its launch holds the run's folder, and does not listen yet."""
    port = free_port()
    made = hosting_on(port, monkeypatch, "import sys; sys.exit(1)")
    going = asyncio.create_task(made.go())
    await asyncio.sleep(0.5)
    assert not going.done()
    with socket.create_server(("127.0.0.1", port)):
        await asyncio.sleep(0.3)
        assert not going.done()
        going.cancel()
    assert made._host is not None
    made._host.wait(30)


async def test_who_finds_it_there_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listens:
        port = listens.getsockname()[1]
        made = hosting_on(port, monkeypatch, "import sys; sys.exit(64)")
        going = asyncio.create_task(made.go())
        await asyncio.sleep(0.2)
        assert not going.done()
        assert made._host is None
        going.cancel()


def test_an_endpoint_is_here_by_its_address_or_its_name() -> None:
    assert is_here("localhost")
    assert is_here("127.0.0.1")
    assert is_here(socket.gethostname())
    assert is_here("127.0.1.1")  # the machine's own name, on Debian
    assert not is_here("192.0.2.77")
    assert not is_here("no-such-host.invalid")
