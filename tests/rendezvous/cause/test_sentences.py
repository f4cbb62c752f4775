"""What is said of a cause, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.clues import LAST_LINE
from rendezvous.cause.facts import FactKind
from rendezvous.cause.judge import Judged
from rendezvous.cause.seen import Proof, Suspect
from rendezvous.cause.sentences import fact_words, sentence_of
from rendezvous.cause.table import BY_ID, CAUSES, Row
from rendezvous.wire.evidence import Clue, Fact
from rendezvous.wire.words import PRINTABLE, bytes_text

OOM = Fact(kind=FactKind.OOM_KILL, value=2, limit=1536 << 20)
FULL = Fact(kind=FactKind.SPACE, path="/data", value=0, limit=1 << 40)


def suspect(
    row: str, code: int | None = 1, clue: Clue | None = None, *facts: Fact, at: float = 100.0
) -> Suspect:
    return Suspect(0, row, at, Proof.LINE, 3, code, clue, facts)


def clause(one: Suspect, **more: object) -> str:
    return sentence_of(Judged(one, one, **more)).clause  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *[(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (700 << 20, "700 MiB")],
        *[(1010 << 20, "1010 MiB"), (1536 << 20, "1.5 GiB"), (5 << 40, "5 TiB")],
    ],
)
def test_amounts_are_told_in_powers_of_two(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (OOM, "limit 1.5 GiB, 2 processes killed"),
        (Fact(kind=FactKind.OOM_KILL, value=1), "no limit is known"),
        (Fact(kind=FactKind.OOM_MACHINE, limit=1 << 34, words="Out"), "16 GiB of memory; Out"),
        (Fact(kind=FactKind.OOM_MACHINE), ""),
        (
            Fact(kind=FactKind.PIDS, path="/cg/job", value=1, limit=512),
            "limit of processes: 512 in pids.max of /cg/job, met 1 time",
        ),
        (
            Fact(kind=FactKind.PIDS, value=3, limit=512),
            "limit of processes: 512, met 3 times",
        ),
        (
            Fact(kind=FactKind.RLIMIT, path="nproc", value=20, limit=22),
            "limit of processes: 22 (ulimit -u), and the user had 20 a moment later",
        ),
        (FULL, "/data: 0 bytes of 1 TiB free"),
        (
            Fact(kind=FactKind.SHARED_MEMORY, path="/dev/shm", value=60 << 20, limit=64 << 20),
            "/dev/shm: 64 MiB in all",
        ),
        (Fact(kind=FactKind.INODES, path="/d", limit=9), "/d: none of 9 inodes is free"),
        (Fact(kind=FactKind.RLIMIT, path="nofile", limit=1024), "limit of open files: 1024"),
        (
            Fact(kind=FactKind.RLIMIT, path="as", limit=1 << 30),
            "the process may use 1 GiB of address space: ulimit -v",
        ),
        (Fact(kind=FactKind.RLIMIT, path="new", limit=5), "limit of new: 5"),
        (Fact(kind=FactKind.PORT, value=80, words="nginx"), "port 80 is held by nginx"),
        (Fact(kind="of a newer worker", value=1, words="x"), ""),
    ],
)
def test_facts_have_words(fact: Fact, words: str) -> None:
    assert fact_words(fact) == words


def test_every_kind_of_fact_has_words() -> None:
    for kind in FactKind:
        assert fact_words(Fact(kind=kind, path="/p", value=1, limit=2, words="w"))


def test_a_clause_has_the_meaning_the_numbers_the_line_and_the_place() -> None:
    line = "OSError: [Errno 28] No space left on device"
    clue = Clue(id="disk_full", line=line, where="train.py:7 in save")
    assert clause(suspect("disk_full", 1, clue, FULL)) == (
        f"a file system is full (/data: 0 bytes of 1 TiB free): {line} (train.py:7 in save)"
    )


def test_what_the_end_says_already_is_not_said_again() -> None:
    assert clause(suspect("killed", 137)) == ""
    assert clause(suspect("exit_code", 3)) == "no error of it was seen"
    clue = Clue(id="exception", line="KeyError: 1", where="a.py:1")
    assert clause(suspect("exception", 1, clue)) == "KeyError: 1 (a.py:1)"
    last = Clue(id=LAST_LINE, line="train.py: no such folder")
    assert clause(suspect("exit_code", 1, last)) == f"rank 3's last line was '{last.line}'"
    assert clause(suspect("memory_limit", 137, None, OOM)) == (
        "its control group reached its memory limit, and the kernel killed a process in it "
        "(limit 1.5 GiB, 2 processes killed)"
    )


@pytest.mark.parametrize(
    ("alike", "others", "words"),
    [
        (0, 0, ""),
        (0, 1, "; the other node did not fail in this way"),
        (1, 1, "; the other node failed in the same way"),
        (0, 3, "; the other 3 nodes did not fail in this way"),
        (2, 3, "; 2 of the other 3 nodes failed in the same way"),
    ],
)
def test_other_nodes_are_compared(alike: int, others: int, words: str) -> None:
    said = clause(suspect("import_error"), alike=alike, others=others)
    assert said == BY_ID["import_error"].says + words


def test_ranks_of_which_the_same_is_true_are_named() -> None:
    said = clause(suspect("stopped_process", None), together=(4, 5))
    assert said.endswith("; so did ranks 4, 5")
    assert clause(suspect("stopped_process", None), together=(4,)).endswith("; so did rank 4")


def test_what_to_do_about_a_rejected_argument_has_one_lead() -> None:
    """The last line begins it with `next:`."""
    one = suspect("arguments", 2, Clue(id="arguments", line="train.py: error: no --lr"))
    said = sentence_of(Judged(one, one, blames=True))
    assert said.hint == "see what it takes: python train.py --help"


def test_where_nobody_is_blamed_it_says_so_and_what_to_look_at() -> None:
    one = suspect("waited", 1, Clue(id="waited", line="Timed out"))
    said = sentence_of(Judged(one, one, blames=False, waiting=2, of=4, silent=(1, 3)))
    unknown = "which rank is the cause is not known"
    assert said.clause == f"{BY_ID['waited'].says}; {unknown}; rank 3 said 'Timed out'"
    assert said.brief == f"{BY_ID['waited'].says}; {unknown}"
    assert said.hint == "compare all ranks' output: rdzv logs RUN"
    assert said.evidence == (
        "rank 3 said: Timed out",
        "rank 3 ended with exit code 1",
        "2 of 4 ranks waited for another one, or lost it",
        "no report of their end from slots 1, 3",
    )


@pytest.mark.parametrize(("at", "when"), [(98.0, "2.0 s earlier"), (101.5, "1.5 s later")])
def test_the_evidence_tells_who_was_seen_to_fail_first(at: float, when: str) -> None:
    first = Suspect(1, "peer_gone", at, Proof.LINE, None, 1, Clue(id="peer_gone", line="closed"))
    said = sentence_of(Judged(suspect("killed", 137), first))
    assert said.evidence == ("rank 3 ended with exit code 137", f"slot 1 failed {when}: closed")


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.id)
@pytest.mark.parametrize("blames", [True, False])
def test_every_row_can_be_said_in_one_line(row: Row, blames: bool) -> None:
    name = row.id
    clue = Clue(id=name, line="x" * 400, where="y" * 100)
    one = suspect(name, 1, clue, OOM, FULL)
    said = sentence_of(Judged(one, one, blames, (4, 5, 6, 7, 8, 9, 10), 1, 2, 3, 4, (5,)))
    for text in (said.clause, said.hint, *said.evidence):
        assert PRINTABLE.match(text)
    assert 0 < len(said.clause) < 1000


def test_a_fact_is_not_told_twice() -> None:
    limit = Fact(kind=FactKind.RLIMIT, path="nofile", limit=128)
    words = clause(suspect("open_files", 1, None, limit, limit))
    assert words.startswith("it has reached the limit of open files (128)")
    words = clause(
        suspect("address_space", 1, None, Fact(kind=FactKind.RLIMIT, path="as", limit=1024))
    )
    assert "(the process may use 1 KiB of address space: ulimit -v)" in words


def test_an_error_that_was_written_is_quoted_as_such() -> None:
    assert clause(suspect("exit_code", 1, Clue(id="logged", line="ERROR {no}"))) == (
        "rank 3's last error was 'ERROR {no}'"
    )


@pytest.mark.parametrize(
    "line",
    ["  what():  No space", "lightning.fabric.utilities.exceptions.MisconfigurationError: x"],
)
def test_what_only_introduces_an_error_is_left_out(line: str) -> None:
    said = clause(suspect("exception", 1, Clue(id="exception", line=line)))
    assert said in ("No space", "MisconfigurationError: x")


def test_where_torch_logs_is_left_out() -> None:
    line = "[E1125 17:55:58.2 socket.cpp:1028] [c10d] The client socket has timed out"
    assert clause(suspect("store_unreachable", None, Clue(id="waited", line=line))).endswith(
        ": The client socket has timed out"
    )


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.id)
def test_no_step_is_of_some_ranks_where_all_have_failed(row: Row) -> None:
    said = sentence_of(Judged(one := suspect(row.id, 1), one, everyone=4))
    assert "some ranks fail" not in said.hint
    assert bool(said.hint) is bool(row.hint)


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.id)
def test_who_is_not_blamed_is_said_not_to_be_known_before_any_quote(row: Row) -> None:
    one = suspect(row.id, 1, Clue(id=row.id, line="x" * 400))
    for of, words in ((1, "whether that is the cause"), (4, "which rank is the cause")):
        said = sentence_of(Judged(one, one, blames=False, of=of, named=(0, 3), apart=((2, "y"),)))
        assert f"; {words} is not known; " in said.brief
        assert said.brief.index(" is not known") < said.brief.index("ranks 0, 3")
        assert said.clause == f"{said.brief}; {said.quote}"
        assert len(row.says) <= 160


def test_the_one_rank_that_is_not_known_to_have_waited_is_looked_at_first() -> None:
    one = suspect("waited", 134)
    said = sentence_of(Judged(one, one, blames=False, of=4, apart=((0, "y"),)))
    assert said.hint == "look at rank 0 first: rdzv logs RUN --rank 0"
    said = sentence_of(Judged(one, one, blames=False, of=4, apart=((0, "y"), (3, ""))))
    assert said.hint == "compare all ranks' output: rdzv logs RUN"


def test_a_checkpoint_that_does_not_fit_is_quoted_from_what_differs() -> None:
    line = "size mismatch for 0.weight: copying a param with shape torch.Size([8, 4])"
    clue = Clue(id="exception", line=f"RuntimeError: Error(s) in loading state_dict for N: {line}")
    assert clause(suspect("checkpoint_misfit", 1, clue)).endswith(f"fit the model: {line}")


def test_the_version_that_a_library_lacks_stands_in_the_reason() -> None:
    lacks = "ImportError: /opt/env/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found"
    clue = Clue(id="shared_library", line=f"{lacks} (required by /opt/env/ext.so)", raised=True)
    assert clause(suspect("shared_library", 1, clue)).endswith(f"does not fit: {lacks}")
