"""The parts of a registry's process, in this one: what it says and does at its begin and end."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.registry import process
from rendezvous.registry.process import ServerConfig
from rendezvous.talk.certificate import make_certificate
from rendezvous.wire.errors import StorageFull, Unavailable
from tests.support.virtual_time import run_virtually


def test_it_is_announced_once_it_is_started_and_can_be_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, asked = SimpleNamespace(started=False), list[float]()

    def check_ready() -> None:
        asked.append(asyncio.get_running_loop().time())
        if asked[-1] < 4.0:
            raise Unavailable("the journal is away")

    async def work() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, setattr, server, "started", True)
        place: Any = SimpleNamespace(check_ready=check_ready)
        await process._announce("it is at 10.0.0.7:29600", server, place)  # type: ignore[arg-type]
        return loop.time()

    assert run_virtually(work()) == pytest.approx(4.0, abs=0.05)
    assert min(asked) == pytest.approx(2.0, abs=0.05)
    assert capsys.readouterr().err == "it is at 10.0.0.7:29600\n"


@pytest.mark.parametrize("fails", [False, True])
def test_without_its_launcher_it_tells_its_nodes_and_ends_as_if_told_to(
    fails: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    happened: list[object] = []

    async def ended(sequencer: object, seconds: float) -> None:
        happened.append((sequencer, seconds))
        await asyncio.sleep(1.0)
        if fails:
            raise StorageFull("no space left")

    monkeypatch.setattr(process, "launcher_ended", ended)
    monkeypatch.setattr(os, "kill", lambda *what: happened.append(what))

    async def work() -> None:
        bereft, service = asyncio.Event(), SimpleNamespace(sequencer="its sequencer")
        task = asyncio.create_task(
            process._end_after_launcher(service, bereft)  # type: ignore[arg-type]
        )
        await asyncio.sleep(60.0)
        assert happened == []
        bereft.set()
        await task
        assert asyncio.get_running_loop().time() == 61.0

    run_virtually(work())
    assert happened == [("its sequencer", 7.0), (os.getpid(), signal.SIGTERM)]
    assert ("no space left" in caplog.text) == fails


def test_tls_is_of_its_newest_version_and_has_no_tickets(tmp_path: Path) -> None:
    plain = ServerConfig(key="00", admin_sha256="00")
    assert process._tls(plain) is None
    made = make_certificate(bytes(32))
    for name, data in (("cert", made.pem), ("key", made.key_pem)):
        (tmp_path / name).write_bytes(data)
    files = {"certificate": tmp_path / "cert", "certificate_key": tmp_path / "key"}
    context = process._tls(plain.model_copy(update=files))
    assert context is not None
    assert (context.minimum_version, context.num_tickets) == (ssl.TLSVersion.TLSv1_3, 0)
