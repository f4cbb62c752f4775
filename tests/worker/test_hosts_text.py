"""The text of a hosts file: where names are written, and that every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.hostnames import is_valid_label
from worker.hosts.text import HostsEntry, remove_blocks, render_hosts

PLAIN = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
BEGIN = "# BEGIN rdzv run={} pid=0 start=0 boot= ns=0 own={}\n"
ENTRIES = [HostsEntry("10.0.0.4", ["n0", "node-0"]), HostsEntry("fd00::5", ["n1", "node-1"])]
BODY = "10.0.0.4 n0 node-0\n::ffff:10.0.0.4 n0 node-0\nfd00::5 n1 node-1\n"
BLOCK = BEGIN.format("r1", "n0,node-0") + BODY + "# END rdzv run=r1\n"


def block(*was: str) -> str:
    """The block after lines that have lost names."""
    begin, body = BLOCK.split("\n", 1)
    return "\n".join([begin, *(f"# was {line}" for line in was), body])


def render(current: str, *, run: str = "r1", entries: Sequence[HostsEntry] = ENTRIES) -> str:
    return render_hosts(current, entries, run=run, own_names={"n0", "node-0"})


def remove_block(current: str, run: str | None) -> str:
    """The text without this run's block, or without any for None."""
    return remove_blocks(current, lambda block: run in (None, block.run))


# ---- the text -----------------------------------------------------------------------------------


def test_an_empty_table_gives_an_empty_block_and_addresses_are_written_in_canonical_form() -> None:
    assert render_hosts("", [], run="r1", own_names=set()) == (
        "# BEGIN rdzv run=r1 pid=0 start=0 boot= ns=0 own=\n# END rdzv run=r1\n"
    )
    assert "\nfd00::5 n1\n" in render("", entries=[HostsEntry("FD00:0::0005", ["n1"])])


def test_a_loopback_line_loses_the_own_name_and_keeps_the_others() -> None:
    current = "127.0.0.1 localhost n0 box\n127.0.1.1\tN0\n::1 n0 ip6-localhost # six\n"
    mapped = "::ffff:127.0.1.1 n0\n"
    assert render(current + mapped) == (
        "127.0.0.1 localhost    box\n#27.0.1.1\tN0\n::1    ip6-localhost # six\n"
        "#:ffff:127.0.1.1 n0\n"
    ) + block(
        "0: 127.0.0.1 localhost n0 box",
        "1: 127.0.1.1\tN0",
        "2: ::1 n0 ip6-localhost # six",
        "3: ::ffff:127.0.1.1 n0",
    )


@pytest.mark.parametrize(
    "line",
    ["127.0.1.1 n1\n", "10.0.0.4 n0\n", "# 127.0.1.1 n0\n", "127.0.1.1 n0x\n", "bad n0\n", "n0\n"],
)
def test_other_lines_are_left_alone(line: str) -> None:
    assert render(PLAIN + line) == PLAIN + line + BLOCK


def test_a_new_table_replaces_the_block_and_frees_the_lines_of_the_old_one() -> None:
    old = render_hosts("127.0.1.1 old\n127.0.1.2 n0", [], run="r1", own_names={"old"})
    assert render(old) == render("127.0.1.1 old\n127.0.1.2 n0")


def test_two_runs_stand_side_by_side_and_go_in_any_order() -> None:
    current = "127.0.0.1 localhost n0 x\n127.0.1.1 y"
    entries = [HostsEntry("10.1.0.4", ["x", "y"])]
    both = render_hosts(render(current), entries, run="r2", own_names={"x", "y"})
    assert both == (
        "127.0.0.1 localhost     \n#27.0.1.1 y\n"
        + block("0: 127.0.0.1 localhost n0 x", "1: 127.0.1.1 y").replace(
            "node-0\n", "node-0 newline=added\n", 1
        )
        + BEGIN.format("r2", "x,y")
        + "10.1.0.4 x y\n::ffff:10.1.0.4 x y\n# END rdzv run=r2\n"
    )
    only_second = render_hosts(current, entries, run="r2", own_names={"x", "y"})
    assert remove_block(both, "r1") == only_second
    assert remove_block(both, "r2") == render(current)
    assert remove_block(only_second, "r2") == current
    assert remove_block(both, None) == current


def test_lines_that_others_add_while_the_block_stands_are_kept() -> None:
    head, tail = "127.0.1.1 n0", "10.9.9.9 added\n"
    grown = render(head) + tail
    assert remove_block(grown, "r1") == f"{head}\n{tail}"
    assert render(grown) == render(f"{head}\n{tail}")


def test_a_block_whose_lines_got_other_endings_is_still_found() -> None:
    assert remove_block(render(PLAIN).replace("\n", "\r\n"), "r1") == PLAIN.replace("\n", "\r\n")


def test_names_come_back_to_lines_that_have_moved_or_were_written_in_part_only() -> None:
    written = render("127.0.0.1 localhost node-0\n127.0.1.1 n0\n")
    assert written.startswith("127.0.0.1 localhost       \n#27.0.1.1 n0\n")
    moved = "10.9.9.9 new\n" + written.replace("localhost       \n", "localhost    e-0\n")
    assert remove_block(moved, "r1") == "10.9.9.9 new\n127.0.0.1 localhost node-0\n127.0.1.1 n0\n"


def test_names_come_back_to_each_of_two_equal_lines_that_have_moved() -> None:
    moved = "10.9.9.9 new\n" + render("127.0.1.1 n0\n" * 2)
    assert remove_block(moved, "r1") == "10.9.9.9 new\n" + "127.0.1.1 n0\n" * 2


def test_a_line_that_looks_like_one_that_has_lost_its_name_stays() -> None:
    text = "127.0.1.1 n0\n#27.0.1.1 n0\n"
    not_yet_switched_off = text + render(text)[len(text) :]
    assert remove_block(not_yet_switched_off, "r1") == text


def test_a_line_that_somebody_has_changed_meanwhile_is_left_alone() -> None:
    changed = render("127.0.1.1 n0\n").replace("#27.0.1.1 n0\n", "#27.0.1.1 n9\n", 1)
    assert remove_block(changed, "r1") == "#27.0.1.1 n9\n"


@pytest.mark.parametrize(
    "text", ["", PLAIN, "127.0.0.1 localhost n0", "127.0.1.1 n0\n10.0.0.9 x\n"]
)
def test_what_a_killed_process_leaves_of_a_block_is_taken_away(text: str) -> None:
    """Whichever part was not written, and all the same where the markers stand alone."""
    written = render(text)
    tail = written[len(text) :]
    frame = "".join(
        line if line.startswith(("# BEGIN", "# END")) else "\n" * len(line)
        for line in tail.splitlines(keepends=True)
    )
    begin = frame.index("# BEGIN rdzv run=r1") + len("# BEGIN rdzv run=")
    newline_at = frame.index("newline=added\n") if "newline=added\n" in frame else 0
    for cut in range(begin, len(frame) + 1):
        kept = remove_block(text + frame[:cut], None)
        assert kept == (text if cut > newline_at + 12 else f"{text}\n")
    for cut in range(len(tail)):
        assert remove_block(text + tail[:cut] + frame[cut:], None) == text
    for cut in range(len(text)):
        assert remove_block(written[:cut] + text[cut:] + tail, None) == text


@pytest.mark.parametrize("broken", ["# BEGIN rdzv run=r2 by hand\n", BEGIN.format("r2", "")])
def test_what_looks_torn_once_a_block_is_taken_away_goes_with_it(broken: str) -> None:
    text = PLAIN + broken + render("x").removeprefix("x\n")
    assert remove_block(text, None) == PLAIN


WORDS = (
    *("127.0.0.1", "127.0.1.1", "::1", "10.0.0.4", "localhost", "n0", "N0", "node-0", "#"),
    *("# BEGIN rdzv", "# END rdzv run=r1", "run=r1", "\r", "é", "\udcff", "\x00"),
)
_words = st.lists(st.sampled_from(WORDS), max_size=6)
_line = st.one_of(
    st.text(st.characters(blacklist_characters="\n"), max_size=30),
    st.builds(lambda words, blank: blank.join(words), _words, st.sampled_from([" ", "\t", "  \t"])),
)
_texts = st.builds(
    lambda lines, end: "\n".join(lines) + end,
    st.lists(_line, max_size=8),
    st.sampled_from(["", "\n"]),
).filter(lambda text: remove_block(text, None) == text)  # what holds nothing of rdzv's


@settings(deadline=None)
@given(_texts)
def test_removing_a_block_gives_any_text_back(text: str) -> None:
    rendered = render(text)
    assert remove_block(rendered, "r1") == text
    assert render(rendered) == rendered
    assert rendered.endswith(BODY + "# END rdzv run=r1\n")


@settings(deadline=None)
@given(_texts, _texts, st.booleans())
def test_two_blocks_give_any_text_back_in_any_order(text: str, tail: str, first: bool) -> None:
    both = render_hosts(render(text), ENTRIES, run="r2", own_names={"localhost-0", "n0"}) + tail
    order = ("r1", "r2") if first else ("r2", "r1")
    joined = text + "\n" * bool(text and not text.endswith("\n")) + tail
    assume(remove_block(joined, None) == joined)
    assert remove_block(remove_block(both, order[0]), order[1]) == (joined if tail else text)


# ---- hostile input ------------------------------------------------------------------------------

BAD_ADDRESSES = [
    *("", "10.0.0", "10.0.0.4.5", "010.0.0.4", "256.0.0.1", "10.0.0.4/24", "0.0.0.0", "::"),
    *("10.0.0.4\n127.0.0.1 bank", "10.0.0.4\r", "10.0.0.4 bank", " 10.0.0.4", "10.0.0.4#", "\0"),
    *("::ffff:10.0.0.4", "fe80::1", "fe80::1%eth0", "fd00::1%\nx", "169.254.169.254", "224.0.0.1"),
    *("255.255.255.255", "ff02::1", "localhost", "n0", "0x0a000004", "167772164", "1" * 100),
    *("\u0661\u0660.0.0.4", "10.0.0.4\u2028", "10.0.0.4\x85", "\udcff", "[fd00::1]", "-"),
]

BAD_NAMES = [
    *("", "localhost", "LOCALHOST", "a b", "a\tb", "a\nb", "a\n10.9.9.9 bank", "a\rb", "a\0b"),
    *("a#b", "a\x0bb", "a\u2028b", "a\x85b", "a.b", "bank.example", ".", "-a", "a-", "1234", "a_b"),
    *("é", "a\u202eb", "\udcff", "$(id)", "`id`", "a;b", "*", "<script>", "a" * 64, "# END rdzv"),
    *("12", "localhost4", "broadcasthost", "loopback", "ip6-localhost", "IP6-AllNodes"),
    *("n0\n", "n0\n# END rdzv run=r1\n10.9.9.9 bank", "\x1b[2J"),
]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_what_is_no_nodes_address_is_never_written(address: str) -> None:
    with pytest.raises(ArmingFailed) as caught:
        render("", entries=[HostsEntry(address, ["n0"])])
    assert "not a node's address" in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_is_no_name_is_never_written(name: str) -> None:
    assert not is_valid_label(name)
    for entry, own in ((["n0", name], {"n0"}), (["n0"], {name})):
        with pytest.raises(ArmingFailed) as caught:
            render_hosts("", [HostsEntry("10.0.0.4", entry)], run="r1", own_names=own)
        assert caught.value.message.isprintable()


@pytest.mark.parametrize("run", ["", "a b", "r1\n10.9.9.9 bank", "-r", "r" * 64, "é"])
def test_a_run_id_that_is_none_is_never_written(run: str) -> None:
    with pytest.raises(ArmingFailed, match="is not a run id"):
        render_hosts("", ENTRIES, run=run, own_names=set())


def test_labels_that_may_stand_in_the_hosts_file() -> None:
    assert all(map(is_valid_label, ["node-1", "a", "A1", "1a", "x" * 63]))
