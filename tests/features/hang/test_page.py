"""How a page looks at the ranks of a run, and what Prometheus gets."""

from __future__ import annotations

from pathlib import Path

from launcher.state.state_dir import StateDir
from launcher.ui.clerk import Keys
from rendezvous.wire.question import QuestionCall
from tests.features.hang.test_asks import look
from tests.launcher.test_ui_prometheus import state_of, told
from tests.support.exposition import value
from tests.support.pages import RUN, page_door
from tests.support.written import Registry
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
