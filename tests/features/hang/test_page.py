"""How a page looks at the ranks of a run, and what Prometheus gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.state.state_dir import StateDir
from launcher.ui.clerk import Keys
from rendezvous.wire.question import QuestionCall
from tests.features.hang.test_asks import look
from tests.launcher.test_ui_prometheus import state_of, told
from tests.support.exposition import value
from tests.support.launching import launching
from tests.support.page_process import page_of
from tests.support.pages import RUN, page_door
from tests.support.written import Registry
from tests.ui import test_process
from tests.ui.test_asked import act, keys_of, registry, state

__all__ = ["registry", "state"]


async def test_a_look_is_asked_for_with_the_credential_that_may(
    registry: Registry, state: StateDir, tmp_path: Path
) -> None:
    at = f"/v1/runs/{RUN}"
    registry.answers |= {
        f"POST {at}/looks": QuestionCall(number=9),
        f"GET {at}/looks": look(numbers=(3, 4, 5)),
    }
    keys = keys_of(state)
    async with page_door(tmp_path, keys=keys) as door:
        code, seen = await act(door, act="look")
    assert keys.look is not None
    assert code == 200
    asked = [
        call
        for call, text in zip(registry.asked, registry.credentials, strict=True)
        if text == keys.look.text()
    ]
    assert [call for call, _ in asked] == [
        f"POST /v1/runs/{RUN}/looks",
        f"GET /v1/runs/{RUN}/looks",
    ]
    assert [(one["ranks"], one["frames"]) for one in seen["places"]] == [
        ("5", ["load (t.py:7)"]),
        ("3-4", ["reduce (t.py:7)"]),
    ]
    assert seen["places"][0]["head"].startswith("rank 5 (node 1, gpu-7)")
    assert seen["notes"] == ["node 2 (gpu-9, slot 0): it has not answered"]


async def test_a_page_without_acts_looks_at_nothing(
    registry: Registry, state: StateDir, tmp_path: Path
) -> None:
    keys = keys_of(state)
    async with page_door(tmp_path, keys=Keys(keys.read)) as door:
        code, said = await act(door, act="look")
    assert (code, said["message"]) == (403, "this page was started without acts")
    assert "POST" not in str(registry.asked)


def test_a_run_with_a_finding_is_stalled() -> None:
    found = told(state_of(finding="rank 3 is slow"), state_of(run="other", silence="no output"))
    assert value(found, "rdzv_stalled", run="llama") == 1
    assert value(found, "rdzv_stalled", run="other") == 0


@pytest.mark.page
@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_the_process_of_a_page_looks_and_holds_what_it_needs(tmp_path: Path) -> None:
    one = ("--nnodes", "1", "--framework", "command")
    with launching(tmp_path / "s", *one, command=test_process.waiting(tmp_path)) as run:
        run.wait_for_phase("running")
        with page_of(tmp_path / "s", "--ui-actions") as page:
            looker = page.looker()
            looker.wait("running")
            shown = looker.act(act="look")
            assert shown.status_code == 200, shown.text
            assert shown.json()["sentence"]
            if test_process.CAN_READ_MEMORY:
                held = test_process.credentials_held(page, looker, run)
                assert held == {"read", "look", "admin"}
        with page_of(tmp_path / "s") as page:
            looker = page.looker()
            assert looker.act(act="look", node=0).status_code == 403
        (tmp_path / "go").touch()
        run.finish()
