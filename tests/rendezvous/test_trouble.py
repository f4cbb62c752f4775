"""What keeps a registry from its work, and for how long."""

from __future__ import annotations

from rendezvous.server.trouble import Trouble


def test_what_fails_again_and_again_has_failed_since_the_first_time() -> None:
    trouble = Trouble()
    assert (trouble.words(100.0), trouble.seconds(100.0)) == ("", 0.0)
    for now in (100.0, 105.0, 114.0):
        trouble.failed("full", now)
    assert (trouble.words(120.0), trouble.seconds(120.0)) == ("full", 20.0)


def test_what_was_done_fails_no_more() -> None:
    trouble = Trouble()
    trouble.failed("full", 100.0)
    trouble.over()
    assert (trouble.words(101.0), trouble.seconds(101.0)) == ("", 0.0)
    trouble.failed("full again", 103.0)
    assert (trouble.words(105.0), trouble.seconds(105.0)) == ("full again", 2.0)


def test_what_nobody_tries_any_more_is_no_trouble() -> None:
    trouble = Trouble()
    trouble.failed("full", 100.0)
    assert trouble.words(110.0) == "full"
    assert (trouble.words(110.1), trouble.seconds(110.1)) == ("", 0.0)
    trouble.failed("full", 111.0)
    assert trouble.seconds(112.0) == 1.0
