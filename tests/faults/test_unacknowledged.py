"""All standbys away, or a full disk: the database answers, and keeps nothing; that is said."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from rendezvous.registry.commits import PATIENCE_SECONDS, PROBE_SECONDS
from rendezvous.wire.errors import ExitCode
from tests.support.drill import LIMIT_SECONDS, Drill
from tests.support.launching import rdzv
from tests.support.nightly import at_night
from tests.support.standing import check_journal
from tests.support.standing_world import world

pytestmark = [pytest.mark.faults, pytest.mark.real_time, pytest.mark.timeout(240)]

SEEN_SECONDS = PATIENCE_SECONDS + PROBE_SECONDS
"""A replica without runs knows it by then, and by its next beat."""
WHY = "none of its standbys confirms one"
NOT_READY = re.compile(rf"the registry's database has acknowledged no commit for \d+ s: {WHY}")
UNCONFIRMED = f"the registry's database acknowledges no commit: {WHY}"


@pytest.mark.parametrize("away", [8.0, at_night(75.0)])
async def test_with_all_standbys_away_it_is_said_everywhere_and_nothing_is_lost(
    tmp_path: Path, away: float
) -> None:
    async with world(tmp_path) as w:
        with Drill(w, tmp_path / "state") as drill:
            running = await drill.begin_and_run("running")
            await drill.until_all(ready=True, seconds=LIMIT_SECONDS)
            began = time.monotonic()
            for one in w.standbys:
                await asyncio.to_thread(one.stop, "immediate")
            starting = drill.begin("starting")
            words = await drill.until_all(ready=False, seconds=SEEN_SECONDS + 5)
            print(f"not ready after {time.monotonic() - began:.1f} s: {words[0]}")
            assert all(map(NOT_READY.fullmatch, words)), words
            assert min(await drill.measured("rdzv_commit_wait_seconds")) > PATIENCE_SECONDS
            status = await asyncio.to_thread(rdzv, drill.folder, "status", "running")
            assert UNCONFIRMED in " ".join(status.split())
            while (left := away - (time.monotonic() - began)) > 0:
                assert await drill.readiness(0)
                await asyncio.sleep(min(left, 1.0))
            if away > 30:
                assert min(await drill.measured("rdzv_commit_wait_seconds")) > away - 10
                assert min(await drill.measured("rdzv_journal_errors_total")) > 0
                outcome = await asyncio.to_thread(starting.finish)
                assert outcome.code == ExitCode.REGISTRY_LOST
                assert f"did not create the run within 20 s: {UNCONFIRMED}" in outcome.last_line
                assert "rdzv docs standing" in outcome.last_line
                starting = drill.begin("later")
            # Its replica may be the last that notices, and the launch reads every two seconds.
            await asyncio.to_thread(running.wait_to_say, UNCONFIRMED)
            mended = time.monotonic()
            await asyncio.to_thread(w.standbys[0].start)
            await drill.until_all(ready=True, seconds=5)
            print(f"ready {time.monotonic() - mended:.1f} s after a standby was started")
            assert max(await drill.measured("rdzv_commit_wait_seconds")) < 1
            await drill.finish(running)
            await drill.finish(starting)
        await check_journal(w.primary, w.database, ["running", starting.run])
