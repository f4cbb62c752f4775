"""The registry of a torchrun's run, started on the endpoint's machine by one of its torchruns."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from launcher.torchrun import hosting
from launcher.torchrun.asked import read_asked
from launcher.torchrun.hosting import Hosting, is_here
from rendezvous.wire.errors import UsageError
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
