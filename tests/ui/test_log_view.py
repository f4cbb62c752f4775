"""The log of a run on the page: by time over all ranks, by level, its noise folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import Open
from tests.ui import runs
from tests.ui.seen import Seen
from tests.ui.stub import Stub
from tests.ui.test_access import found_by_axe

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

AT = 1_764_081_000.0
ROWS = ".row, .fold > summary, .said"


def piece(source: str, *lines: tuple[float, str] | tuple[float, str, str]) -> dict[str, Any]:
    """What a log has at some seconds, each line of a kind."""
    return {
        "source": source,
        "lines": [one[1] for one in lines],
        "at": [AT + one[0] for one in lines],
        "kinds": "".join(one[2] if len(one) == 3 else "-" for one in lines),
    }


def noise(node: int, at: float, count: int) -> dict[str, Any]:
    """What a launcher prints of itself."""
    return piece(f"launcher-{node}", *((at, f"noise {n} of {node}", "n") for n in range(count)))


def shown(opened: Open, *pieces: Any, how: runs.How = "running", **more: Any) -> tuple[Seen, Any]:
    """The view of these pieces, once all are there."""
    stub = Stub(4, how)
    stub.logs = list(pieces)
    seen = opened(stub, "logs", **more)
    log = seen.page.get_by_role("log")
    log.locator(ROWS).first.wait_for()
    seen.settled()
    return seen, log


def words(log: Locator) -> list[str]:
    """The rows without their times."""
    return [text.split(" ", 1)[-1] for text in log.locator(ROWS).all_inner_texts()]


def test_lines_of_all_ranks_stand_in_the_order_of_their_times(opened: Open) -> None:
    seen, log = shown(
        opened,
        piece("rank-0", (1, "a"), (4, "d"), (6, "f")),
        piece("rank-1", (2, "b"), (5, "e")),
        piece("rank-2", (3, "c"), (3, "c, again")),
    )
    log.get_by_text("rank 0 f").wait_for()
    expected = ["0 a", "1 b", "2 c", "2 c, again", "0 d", "1 e", "0 f"]
    found = [text.replace("rank ", "") for text in words(log)]
    assert found == expected
    seen.stub.log(piece("rank-3", (4.5, "late, but older")), {"source": "rank-4", "lines": ["now"]})
    log.get_by_text("rank 4 now").wait_for()
    found = [text.replace("rank ", "") for text in words(log)]
    assert found[:-1] == [*expected[:5], "3 late, but older", *expected[5:]]
    assert log.locator(".row").last.inner_text() == "rank 4 now"  # no time is known of it


def test_a_log_keeps_its_own_order_whatever_its_clock_does(opened: Open) -> None:
    _, log = shown(opened, piece("rank-0", (5, "one"), (2, "two")), piece("rank-1", (3, "other")))
    log.get_by_text("two").wait_for()
    assert words(log) == ["rank 1 other", "rank 0 one", "rank 0 two"]


def test_ranks_have_colours_and_their_numbers_and_levels_their_words(opened: Open) -> None:
    kinds = ((1, "fine"), (2, "WARNING hot", "w"), (3, "ValueError: bad", "e"))
    for theme in ("light", "dark"):
        seen, log = shown(
            opened, piece("rank-0", *kinds), piece("rank-7", (9, "seven")), color_scheme=theme
        )
        log.get_by_text("rank 7 seven").wait_for()
        assert words(log) == [
            "rank 0 fine",
            "rank 0 warning WARNING hot",
            "rank 0 error ValueError: bad",
            "rank 7 seven",
        ]
        colour = "one => getComputedStyle(one).color"
        names = [one.evaluate(colour) for one in log.locator(".who").all()]
        assert names[0] == names[1] == names[2] != names[3]
        levels = [one.evaluate(colour) for one in log.locator(".level").all()]
        assert len({*levels, log.evaluate(colour)}) == 3
        assert (theme, found_by_axe(seen)) == (theme, [])


@pytest.mark.parametrize("by", ["button", "key"])
def test_a_button_and_a_key_lead_to_the_first_error(opened: Open, by: str) -> None:
    lines = [(n, f"line {n}") for n in range(3_000)]
    seen, log = shown(
        opened,
        piece("rank-0", *lines),
        noise(0, 1_199, 4),
        piece("rank-1", (1_200.5, "Traceback (most recent call last):", "e"), (2_000, "x", "e")),
    )
    log.get_by_text("line 2999").wait_for()
    assert log.get_by_text("Traceback").count() == 0  # it is far away, and not drawn
    if by == "button":
        seen.page.get_by_role("button", name="First error").click()
    else:
        seen.page.get_by_label("Only lines with one of").press("e")  # there it is a letter
        seen.page.get_by_label("Only lines with one of").fill("")
        seen.asks("/logs", 2)
        log.get_by_text("line 2999").wait_for()
        log.focus()
        seen.page.keyboard.press("e")
    found = seen.page.locator(":focus")
    assert found.inner_text().endswith("rank 1 error Traceback (most recent call last):")
    seen.page.wait_for_timeout(300)  # what is around it is drawn meanwhile
    box, pane = found.bounding_box(), log.bounding_box()
    assert box is not None
    assert pane is not None
    assert pane["y"] < box["y"] < pane["y"] + pane["height"]
    around = words(log)
    at = around.index("rank 1 error Traceback (most recent call last):")
    assert around[at - 1 : at + 2 : 2] == ["rank 0 line 1200", "rank 0 line 1201"]


def test_without_an_error_there_is_nothing_to_jump_to(opened: Open) -> None:
    seen, log = shown(opened, piece("rank-0", (1, "fine")), noise(0, 2, 3))
    assert seen.page.get_by_role("button", name="No error").is_disabled()
    log.press("e")
    assert log.evaluate("(e) => e === document.activeElement")


def test_noise_of_the_launcher_is_one_row_that_can_be_opened(opened: Open) -> None:
    seen, log = shown(opened, *(noise(node, 1, 4) for node in range(4)), piece("rank-0", (2, "a")))
    log.get_by_text("rank 0 a").wait_for()
    fold = log.locator("details")
    assert fold.count() == 1
    assert fold.inner_text() == "torchrun's own output: 16 lines of 4 nodes"
    log.get_by_text("torchrun's own output").focus()
    seen.page.keyboard.press("Enter")
    fold.get_by_text("node 3 noise 3 of 3").wait_for()
    assert fold.locator(".row").count() == 16
    seen.stub.log(noise(2, 1.5, 1), noise(1, 3, 1))  # it grows, and stays open
    fold.get_by_text("node 2 noise 0 of 2").nth(1).wait_for()
    assert fold.first.locator(".row").count() == 17
    assert words(log)[-1] == "own output: 1 line"
    assert found_by_axe(seen) == []


def test_a_hundred_thousand_lines_are_held_of_which_few_are_drawn(opened: Open) -> None:
    seen, log = shown(opened, piece("rank-0", (0, "the first line")))
    for begin in range(0, 100_000, 5_000):
        lines = [(n / 10, f"line {n}") for n in range(begin, begin + 5_000)]
        seen.stub.log(piece(f"rank-{begin // 5_000 % 8}", *lines))
    log.get_by_text("line 99999").wait_for()
    seen.page.wait_for_timeout(300)
    assert log.locator(".row").count() < 1_000
    assert log.evaluate("(e) => e.scrollHeight - e.scrollTop - e.clientHeight") < 2
    log.evaluate("(e) => { e.scrollTop = 0; }")
    log.get_by_text("the first line").wait_for()
    assert log.evaluate("(e) => e.scrollTop") < 10
    assert log.locator(".row").count() < 1_000
    log.press("End")
    log.get_by_text("line 99999").wait_for()
    more = [(20_000 + n, f"more {n}") for n in range(10_000)]
    seen.stub.log(piece("rank-1", *more))
    log.get_by_text("more 9999").wait_for()
    log.evaluate("(e) => { e.scrollTop = 0; }")
    seen.page.wait_for_timeout(300)
    first = log.locator(".row").first.inner_text().split("line ")[-1]
    assert 5_000 <= int(first) <= 10_100  # the oldest are given up


def test_what_is_read_stays_where_it_is_while_more_comes(opened: Open) -> None:
    seen, log = shown(opened, piece("rank-0", *((n, f"line {n}") for n in range(2_000))))
    log.get_by_text("line 1999").wait_for()
    log.evaluate("(e) => { e.scrollTop = e.scrollHeight / 2; }")
    seen.page.wait_for_timeout(300)
    line = log.evaluate("""(log) => {
        const isBelow = (row) => row.getBoundingClientRect().top > log.getBoundingClientRect().top;
        return [...log.querySelectorAll(".row")].find(isBelow).innerText;
    }""")
    row = log.get_by_text(line.split("rank 0 ")[-1], exact=False).first
    before = row.bounding_box()
    seen.stub.log(piece("rank-1", (3_000, "newer")), piece("rank-0", (3_001, "newest")))
    seen.page.wait_for_timeout(300)
    assert row.bounding_box() == before


def test_the_end_stays_in_view_in_a_smaller_window(opened: Open) -> None:
    seen, log = shown(opened, piece("rank-0", *((n, f"line {n}") for n in range(500))))
    log.get_by_text("line 499").wait_for()
    seen.page.set_viewport_size({"width": 700, "height": 500})
    seen.page.wait_for_timeout(300)
    assert log.evaluate("(e) => e.scrollHeight - e.scrollTop - e.clientHeight") < 2


def test_the_key_for_the_end_is_there_at_once_and_follows_a_log_that_grows(opened: Open) -> None:
    seen, log = shown(opened, piece("rank-0", *((n, f"line {n}") for n in range(2_000))))
    log.get_by_text("line 1999").wait_for()
    log.evaluate("(e) => { e.scrollTop = 0; }")
    log.get_by_text("line 10", exact=False).first.wait_for()
    left = log.evaluate("""(e) => {
        e.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
        return e.scrollHeight - e.scrollTop - e.clientHeight;
    }""")
    assert left < 2
    seen.stub.log(piece("rank-0", (3_000, "newest")))
    log.get_by_text("newest").wait_for()


# ---- the culprit -----------------------------------------------------------------------------

FAILED_BEFORE = piece("rank-1", (1, "ValueError: a consequence", "e"), (2, "more"))
FIRST_CAUSE = piece("rank-5", (3, "starts"), (4, "MemoryError", "e"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_the_culprit_are_marked_as_its_row_is(opened: Open, theme: str) -> None:
    pieces = (FAILED_BEFORE, FIRST_CAUSE, noise(0, 5, 2))
    seen, log = shown(opened, *pieces, how="failed", color_scheme=theme)
    log.get_by_text("MemoryError").wait_for()
    marked = log.locator(".row.is-marked.is-bad")
    found = [" ".join(str(text).split()[1:]) for text in marked.all_text_contents()]
    assert found == ["rank 5 first cause starts", "rank 5 first cause error MemoryError"]
    edges = [
        row.evaluate("e => [getComputedStyle(e).borderLeftColor, e.className]")
        for row in log.locator(".row:not(.is-marked)").all()
    ]
    red = marked.first.evaluate("e => getComputedStyle(e).borderLeftColor")
    assert red == seen.page.locator("#state").evaluate("e => getComputedStyle(e).color")
    assert red not in [colour for colour, _ in edges]
    assert marked.first.evaluate("e => getComputedStyle(e).borderLeftWidth") == "8px"
    chip = seen.page.get_by_role("button", name="rank 5, first cause")
    assert chip.evaluate("e => getComputedStyle(e).color") == red
    assert found_by_axe(seen) == []


def test_the_first_error_is_the_culprits_whatever_failed_before_it(opened: Open) -> None:
    seen, log = shown(opened, FAILED_BEFORE, FIRST_CAUSE, how="failed")
    seen.page.get_by_role("button", name="First error of rank 5").click()
    assert "MemoryError" in log.locator(":focus").inner_text()


def test_without_an_error_of_the_culprit_the_first_one_is_as_good(opened: Open) -> None:
    seen, log = shown(opened, FAILED_BEFORE, how="failed")
    seen.page.get_by_role("button", name="First error", exact=False).click()
    assert seen.page.get_by_text("of rank 5").count() == 0
    assert "a consequence" in log.locator(":focus").inner_text()


def test_of_a_node_without_a_known_rank_all_its_lines_are_marked(opened: Open) -> None:
    stub = Stub(2, "failed")
    stub.answers["state"]["slots"][0] |= {"mark": "", "suspect": None}
    stub.answers["state"]["slots"][1] |= {"mark": "failed first", "tone": "bad"}
    stub.logs = [piece("rank-7", (1, "not its")), piece("rank-8", (2, "its"))]
    stub.logs += [piece("node-1", (3, "its own")), piece("launcher-1", (4, "its launcher's"))]
    seen = opened(stub, "logs")
    seen.page.get_by_text("its launcher's").wait_for()
    marked = seen.page.locator(".log .is-marked")
    assert [text.split("first ")[1] for text in marked.all_text_contents()] == [
        *("its", "its own", "its launcher's"),
    ]


def test_who_is_found_to_be_waited_for_is_marked_in_what_is_shown_already(opened: Open) -> None:
    seen, log = shown(opened, piece("rank-17", (1, "waits", "e")), piece("rank-3", (2, "other")))
    log.get_by_text("other").wait_for()
    assert log.locator(".is-marked").count() == 0
    late = {"mark": "waited for", "tone": "wait", "suspect": 17}
    seen.stub.change(slots=[runs.slot(2, 4, "running", **late)])
    seen.page.get_by_role("button", name="First error of rank 17").wait_for()
    assert log.locator(".is-marked.is-wait").all_text_contents()[0].endswith("waits")
    seen.page.get_by_role("button", name="rank 17, waited for").wait_for()
    seen.stub.change(slots=[runs.slot(2, 4, "running")])
    log.locator(".is-marked").wait_for(state="detached")
    assert log.locator(".row").count() == 2


# ---- how it ends -----------------------------------------------------------------------------


def test_after_the_end_of_run_and_server_no_tunnel_is_blamed(opened: Open) -> None:
    """As it is beside `rdzv launch --ui`, whose page ends with its run."""
    seen = opened(Stub(4), "logs", clock=True)
    place = seen.page.locator(".view-logs")
    place.get_by_text("New lines appear at the end").wait_for()
    seen.stub.change(head=runs.head(4, "failed"))
    seen.page.locator("#state", has_text="failed").wait_for()
    seen.stub.stop()
    ended = "The run has ended, and the server of this page with it"
    for _ in range(4):
        seen.page.clock.run_for(5_000)
    seen.page.locator("#link", has_text=ended).wait_for()
    said = f"{ended}; what is shown stays. Try: rdzv logs demo"
    place.get_by_role("status").get_by_text(said).wait_for()
    assert "tunnel" not in seen.page.locator("body").inner_text()
    assert place.get_by_text("step 1 loss 1.000").count() == 1  # what has come stays


def test_a_log_that_was_read_to_its_end_goes_on_saying_so(opened: Open) -> None:
    seen = opened(Stub(4, "failed"), "logs")
    place = seen.page.locator(".view-logs")
    place.get_by_text("End of the log.").wait_for()
    assert place.get_by_label("Follow").count() == 0
    seen.stub.stop()
    seen.page.locator("#link", has_text="The run has ended").wait_for()
    assert place.get_by_text("End of the log.").is_visible()


# ---- what is asked for -----------------------------------------------------------------------


def test_all_ranks_are_asked_for_but_of_very_many_nodes(opened: Open) -> None:
    seen = opened(Stub(64), "logs")
    seen.asks("logs?all=1&lines=23&follow=1")
    seen.page.get_by_label("Node").select_option("3")
    seen.asks("logs?node=3&all=1&lines=1000&follow=1")
    seen = opened(Stub(65), "logs")
    seen.asks("logs?lines=200&follow=1")
