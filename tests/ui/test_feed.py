"""The page keeps up with its run, whatever becomes of the connection."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import Open
from tests.support.waiting import until
from tests.ui import runs
from tests.ui.seen import Seen
from tests.ui.stub import SESSION, Stub

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def says(seen: Seen, sentence: str) -> None:
    """Wait until the first screen says so."""
    seen.page.locator(".sentence", has_text=sentence).wait_for()


def test_changes_are_shown_and_rows_that_have_not_changed_are_not_touched(opened: Open) -> None:
    seen = opened(Stub(4))
    says(seen, "running on 4 nodes")
    seen.page.evaluate(
        "() => document.querySelectorAll('.view-now tbody tr')"
        ".forEach((row) => { row.before_ = row.firstChild; })"
    )
    bad = runs.slot(2, 4, "running", state="lost", tone="bad", problem="no lease", worse=3)
    seen.stub.change(slots=[bad])
    seen.stub.change(head=runs.head(4, "running", sentence="node 2 (h2) is lost", tone="bad"))
    says(seen, "node 2 (h2) is lost")
    first = seen.page.locator(".view-now tbody tr").first
    first.get_by_text("no lease").wait_for()
    kept = seen.page.evaluate(
        "() => [...document.querySelectorAll('.view-now tbody tr')]"
        ".map((row) => row.before_ === row.firstChild)"
    )
    assert kept == [False, True, True, True]


def test_elapsed_time_runs_on_between_changes(opened: Open) -> None:
    seen = opened(Stub(4))
    elapsed = seen.page.locator("#elapsed", has_text="5 min ")
    elapsed.wait_for()

    def seconds() -> int:
        found = re.search("5 min ([0-9]+) s", elapsed.inner_text())
        assert found
        return int(found[1])

    first = seconds()
    assert first >= 18
    until(lambda: seconds() >= first + 2)


def test_a_stream_that_is_cut_goes_on_after_what_was_seen(opened: Open) -> None:
    seen = opened(Stub(4))
    seen.stub.change(head=runs.head(4, "running", sentence="step 1,300"))
    says(seen, "step 1,300")
    seen.stub.streams(1)
    seen.stub.cut()
    seen.asks("/stream", 2)
    seen.stub.change(head=runs.head(4, "running", sentence="step 1,400"))
    says(seen, "step 1,400")
    paths = [path for _, path, _ in seen.stub.asked if "/stream" in path]
    assert [path.partition("after=")[2] for path in paths[:2]] == ["10", "11"]
    assert seen.stub.count("/state") == 1


def test_a_server_that_is_gone_is_said_and_asked_again(opened: Open) -> None:
    seen = opened(Stub(4))
    says(seen, "running on 4 nodes")
    seen.stub.stop()
    banner = seen.page.get_by_text("Not connected for")
    banner.wait_for()
    seen.page.get_by_text("check that 'rdzv ui' still runs").wait_for()
    seen.page.get_by_text("Not connected for 2 s").wait_for()
    seen.stub.start()
    banner.wait_for(state="hidden")
    seen.stub.change(head=runs.head(4, "running", sentence="step 1,500"))
    says(seen, "step 1,500")


def test_after_a_reset_the_state_is_asked_again(opened: Open) -> None:
    seen = opened(Stub(4))
    says(seen, "running on 4 nodes")
    seen.stub.answers["state"] = runs.state(4, "restarting")
    seen.stub.change(reset=True)
    says(seen, "the programs start again in 8 s")


def test_behind_a_proxy_that_holds_back_streams_the_page_asks(opened: Open) -> None:
    stub = Stub(4)
    stub.silent = True
    seen = opened(stub, clock=True)
    says(seen, "running on 4 nodes")
    for times in (1, 2):
        seen.asks("/stream", times)
        seen.page.clock.fast_forward(15_500)
    seen.asks("/changes", 1)
    stub.change(head=runs.head(4, "running", sentence="step 1,600"))
    seen.page.clock.fast_forward(1_000)
    says(seen, "step 1,600")
    assert stub.count("/stream") == 2


def test_a_stream_that_falls_silent_is_said_and_is_no_proxy_that_holds_back(opened: Open) -> None:
    seen = opened(Stub(4), clock=True)
    seen.stub.change(beat=True)
    seen.stub.change(head=runs.head(4, "running", sentence="step 1,650"))
    says(seen, "step 1,650")
    seen.stub.silent = True
    for times in (1, 2, 3):
        seen.asks("/stream", times)
        seen.page.clock.fast_forward(15_500)
    seen.page.get_by_text("nothing comes any more").wait_for()
    seen.asks("/stream", 4)
    assert seen.stub.count("/changes") == 0
    seen.stub.silent = False
    seen.stub.change(head=runs.head(4, "running", sentence="step 1,660"))
    says(seen, "step 1,660")
    seen.page.get_by_text("nothing comes any more").wait_for(state="hidden")


def test_a_page_that_nobody_sees_stops_its_stream_and_catches_up(opened: Open) -> None:
    seen = opened(Stub(4), clock=True)
    seen.stub.streams(1)
    hide = (
        "(hidden) => { Object.defineProperty(document, 'hidden', "
        "{ value: hidden, configurable: true }); "
        "document.dispatchEvent(new Event('visibilitychange')); }"
    )
    seen.page.evaluate(hide, True)
    seen.page.clock.fast_forward(301_000)
    seen.stub.streams(0)
    seen.stub.change(head=runs.head(4, "running", sentence="step 1,700"))
    seen.page.wait_for_timeout(300)
    seen.stub.streams(0)
    assert seen.page.locator(".sentence").inner_text().startswith("running on 4 nodes")
    seen.page.evaluate(hide, False)
    says(seen, "step 1,700")
    assert seen.stub.count("/state") == 1


def test_below_a_prefix_every_address_is_below_it(opened: Open) -> None:
    seen = opened(Stub(4, prefix="/proxy/user-1"))
    says(seen, "running on 4 nodes")
    assert {path.startswith("/proxy/user-1/") for _, path, _ in seen.stub.asked} == {True}


def test_the_session_is_a_header_and_in_no_address(opened: Open) -> None:
    seen = opened(Stub(4))
    says(seen, "running on 4 nodes")
    asked = [one for one in seen.stub.asked if "ui-api/runs" in one[1]]
    assert {headers.get("x-rdzv-session") for _, _, headers in asked} == {SESSION}
    assert not [path for _, path, _ in seen.stub.asked if SESSION in path]


def test_a_run_that_is_over_may_be_launched_again_and_its_page_may_end(opened: Open) -> None:
    seen = opened(Stub(4))
    seen.asks("/stream", 1)
    seen.stub.change(head=runs.head(4, "failed"))
    says(seen, "rank 5 was killed for memory")
    seen.page.locator("#elapsed", has_text="took 5 min 18 s").wait_for()
    assert not seen.page.get_by_role("button", name="Cancel the run").is_visible()
    seen.stub.streams(1)
    seen.stub.change(head=runs.head(4, "failed", next_step="rdzv ui llama, to see this again"))
    seen.page.get_by_text("to see this again").first.wait_for()
    seen.stub.stop()
    seen.page.locator(
        "#link", has_text="The run has ended, and the server of this page with it"
    ).wait_for()
    assert not seen.page.get_by_text("tunnel").is_visible()
    seen.stub.start()
    seen.stub.change(head=runs.head(4, "running", sentence="launched again"))
    says(seen, "launched again")
    seen.page.locator("#link").wait_for(state="hidden")


def test_a_stream_that_breaks_in_the_middle_is_taken_up_again(opened: Open) -> None:
    stub = Stub(4)
    stub.broken = True
    seen = opened(stub)
    stub.streams(1)
    stub.cut()
    seen.page.get_by_text("trying again: the connection was cut").wait_for()
    seen.page.get_by_text("Not connected for").wait_for(state="hidden")
    stub.change(head=runs.head(4, "running", sentence="step 1,800"))
    says(seen, "step 1,800")
