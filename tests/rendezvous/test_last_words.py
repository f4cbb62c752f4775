"""What the registry keeps of the ranks' last words: which come first, and where it ends."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.registry import last_words
from rendezvous.registry.app import make_app
from rendezvous.registry.last_words import KeptWords, has_failed, wanted
from rendezvous.run.state import Run, create
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.wire.last_words import (
    KeptText,
    LastWords,
    LastWordsReply,
    RankText,
    RunLastWords,
    clean_text,
)
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import EpochEnd, Phase, Result
from tests.support.registry import Launch
from tests.support.served import Served, ask, serving

DEMO = Launch("demo")
FAILED = Result(status="failed", exit_code=3, message="", slot=1, rank=5)
FEW = 3_500
"""Bytes for all, where there is little room."""


def over(result: Result | None = FAILED, *ended: EpochEnd) -> Run:
    """A run in its third epoch, with this result."""
    run = create("demo", DEMO.spec(2), 0.0)
    run.epoch, run.result = 3, result
    run.starts.ended = ended
    return run


def end(epoch: int, slot: int, rank: int | None = None, code: str = "program_failed") -> EpochEnd:
    return EpochEnd(epoch=epoch, message="", slot=slot, rank=rank, code=code)


def text(rank: int | None, words: str = "x", **more: Any) -> RankText:
    return RankText(rank=rank, text=words, **more)


def said(*texts: RankText, epoch: int = 3, node: int = 0) -> LastWords:
    return LastWords(epoch=epoch, node=node, texts=list(texts))


def read(kept: KeptWords, after: int = 0) -> RunLastWords:
    return RunLastWords.model_validate_json(kept.after(after))


def kept_of(kept: KeptWords) -> list[tuple[int, int | None, bool]]:
    return [(one.epoch, one.rank, one.whole) for one in read(kept).texts]


# --- of whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "slot", "epoch", "reply"),
    [
        (over(), 1, 3, LastWordsReply(wants=True, rank=5)),
        (over(), 0, 3, LastWordsReply()),
        (over(FAILED.model_copy(update={"rank": None})), 1, 3, LastWordsReply(wants=True)),
        (over(FAILED, end(2, 0, 4)), 0, 2, LastWordsReply(wants=True, rank=4)),
        (over(FAILED, end(2, 0, 4)), 1, 2, LastWordsReply()),
        (over(None, end(2, 0, 4)), 0, 2, LastWordsReply(wants=True, rank=4)),
        (over(None, end(2, 0, code="")), 0, 2, LastWordsReply()),
        (over(None), 1, 3, LastWordsReply()),
        (over(FAILED.model_copy(update={"status": "cancelled"})), 1, 3, LastWordsReply()),
    ],
)
def test_all_of_the_first_causes_rank_is_wanted(
    run: Run, slot: int, epoch: int, reply: LastWordsReply
) -> None:
    assert wanted(run, slot, epoch) == reply
    assert KeptWords().take(run, slot, said(text(0), epoch=epoch)) == reply


@pytest.mark.parametrize(
    ("run", "epoch", "failed"),
    [
        (over(), 3, True),
        (over(None), 3, False),
        (over(FAILED.model_copy(update={"status": "ok"})), 3, False),
        (over(FAILED.model_copy(update={"status": "cancelled"})), 3, False),
        (over(None, end(2, 0)), 2, True),
        (over(None, end(2, 0, code="")), 2, False),
        (over(), 7, False),
    ],
)
def test_of_an_epoch_that_has_not_failed_nothing_is_kept(
    run: Run, epoch: int, failed: bool
) -> None:
    kept = KeptWords()
    kept.take(run, 1, said(text(5), text(5, whole=True), epoch=epoch))
    assert has_failed(run, epoch) == failed == bool(read(kept).texts)


# --- what is kept ---------------------------------------------------------------------------------


def test_it_is_read_as_it_was_sent_with_its_place() -> None:
    kept = KeptWords()
    kept.take(over(), 1, said(text(5, "a\nb"), text(None, "torchrun"), node=1))
    told = read(kept)
    place: dict[str, Any] = {"epoch": 3, "slot": 1, "node": 1}
    assert told.texts == [
        KeptText(rank=5, text="a\nb", number=1, **place),
        KeptText(rank=None, text="torchrun", number=2, **place),
    ]
    assert (told.newest, told.left_out) == (2, 0)
    assert [one.rank for one in read(kept, 1).texts] == [None]
    assert read(kept, 2).texts == []
    assert read(KeptWords()).session != told.session


def test_the_whole_text_takes_the_place_of_the_last_lines_and_stays() -> None:
    kept, run = KeptWords(), over()
    kept.take(run, 1, said(text(5, "end"), text(4, "other"), node=1))
    for part in (0, 1):
        kept.take(run, 1, said(text(5, f"piece {part}", whole=True, part=part), node=1))
    kept.take(run, 1, said(text(5, "late"), node=1))
    assert [(one.rank, one.text) for one in read(kept).texts] == [
        (4, "other"),
        (5, "piece 0"),
        (5, "piece 1"),
    ]


def test_what_is_sent_again_is_kept_once() -> None:
    kept, run = KeptWords(), over()
    for words in ("a", "b"):
        kept.take(run, 0, said(text(0, words)))
    (one,) = read(kept).texts
    assert (one.text, one.number) == ("b", 2)


def test_a_node_sends_no_whole_text_that_is_not_asked_for_nor_one_of_anothers() -> None:
    kept, run = KeptWords(), over()
    kept.take(run, 0, said(text(0, whole=True)))
    assert read(kept).texts == []
    kept.take(run, 1, said(text(5, "mine"), node=1))
    kept.take(run, 0, said(text(5, "forged"), node=1))
    assert [one.text for one in read(kept).texts] == ["mine"]


# --- how much of it -------------------------------------------------------------------------------


def test_the_first_cause_comes_before_the_others_and_a_new_epoch_before_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_words, "MOST_BYTES", FEW)
    kept, run = KeptWords(), over(FAILED, end(2, 1, 5))
    words = "x" * 900
    kept.take(run, 0, said(*(text(rank, words) for rank in range(5)), epoch=2))
    assert kept_of(kept) == [(2, rank, False) for rank in range(3)]
    assert read(kept).left_out == 2
    kept.take(run, 1, said(text(5, words, whole=True), epoch=2, node=1))
    assert kept_of(kept) == [(2, 1, False), (2, 2, False), (2, 5, True)]
    kept.take(run, 0, said(text(0, words), text(1, words), text(2, words)))
    assert kept_of(kept) == [(2, 5, True), (3, 0, False), (3, 1, False)]
    assert read(kept).left_out == 6
    for part in range(3):
        kept.take(run, 1, said(text(5, words, whole=True, part=part), node=1))
    assert kept_of(kept) == [(3, 5, True)] * 3
    kept.take(run, 1, said(text(4, words), node=1))
    assert kept_of(kept) == [(3, 5, True)] * 3
    assert len(kept.after(0)) < FEW + 200


def test_no_node_takes_the_room_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "NODE_BYTES", FEW)
    kept = KeptWords()
    kept.take(over(), 0, said(*(text(rank, "x" * 900) for rank in range(5))))
    kept.take(over(), 1, said(text(9, "x" * 900), node=1))
    assert [one.rank for one in read(kept).texts] == [0, 1, 2, 9]


def test_the_room_of_a_node_is_that_of_one_epoch_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_words, "NODE_BYTES", FEW)
    kept, run = KeptWords(), over(FAILED, end(2, 1, 5))
    many = [text(rank, "x" * 900) for rank in range(5)]
    for epoch in (2, 3):
        kept.take(run, 1, said(*many, epoch=epoch, node=1))
    assert kept_of(kept) == [(epoch, rank, False) for epoch in (2, 3) for rank in range(3)]
    assert read(kept).left_out == 4
    for part in range(3):  # in the place of its last lines, of which there are none
        kept.take(run, 1, said(text(5, "x" * 900, whole=True, part=part), node=1))
    assert read(kept).left_out == 7
    kept.take(run, 1, said(text(2, "short"), text(9, "x" * 700), node=1))  # it has room again
    assert kept_of(kept)[3:] == [(3, rank, False) for rank in (0, 1, 2, 9)]


def test_it_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "_ANSWER_BYTES", 2_500)
    kept, after, ranks = KeptWords(), 0, list[int | None]()
    kept.take(over(), 0, said(*(text(rank, "x" * 900) for rank in range(5))))
    pages = 0
    while texts := read(kept, after).texts:
        pages, after = pages + 1, texts[-1].number
        ranks += [one.rank for one in texts]
    assert (pages, ranks) == (3, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        ("one\ntwo", "one\ntwo"),
        ("a\tb\x1b[31m", "a b?[31m"),
        ("a\rb‮c\x00", "a?b?c?"),
        ("é\U0001f600", "é\U0001f600"),
    ],
)
def test_what_is_kept_turns_and_hides_no_line(given: str, clean: str) -> None:
    assert clean_text(given) == clean == RankText(text=given).text
    assert len(clean) == len(given)


# --- the routes -----------------------------------------------------------------------------------


served = pytest.fixture(serving)


async def test_what_nodes_send_is_read_by_who_may_read_logs(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO)
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    host = served.host(DEMO)
    await served.service.report(host, 1, 1, ExitReport(epoch=1, exit_code=3, rank=1))
    await served.service.report(host, 0, 1, ExitReport(epoch=1, exit_code=0, stopped=True))
    assert host.run.result is not None
    before = host.number, host.version, host.news_seq
    node = served.service.access.node_credential(host, 1, 1)
    url = "/v1/runs/demo/nodes/1/words"
    message = said(text(1, "CUDA out of memory"), epoch=1, node=1).model_dump(mode="json")
    answer = await ask(app, "POST", url, node, message)
    assert (answer.status, answer.json["wants"]) == (200, True)
    for shown, status in ((DEMO.keys.admin, 200), (DEMO.keys.read, 403), (node, 403)):
        answer = await ask(app, "GET", "/v1/runs/demo/words?after=0", shown)
        assert answer.status == status
        assert (b"CUDA" in answer.body) == (status == 200)
    assert (host.number, host.version, host.news_seq) == before  # in no journal, and wake nobody
    assert served.service.counters["last_words"] == 1
    for body in (b"{", b"[]", b'{"epoch":0,"node":1,"texts":[]}', b'{"epoch":1}'):
        assert (await ask(app, "POST", url, node, body)).problem == (400, "bad_request")


@pytest.mark.parametrize(("less", "kept"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("bound", ["NODE_BYTES", "MOST_BYTES"])
def test_what_fills_all_the_room_is_kept(
    bound: str, less: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KeptWords()
    known.take(over(), 0, said(text(3, "x" * 900)))
    monkeypatch.setattr(last_words, bound, known._bytes - less)
    again = KeptWords()
    again.take(over(), 0, said(text(3, "x" * 900)))
    found = read(again)
    assert (len(found.texts), found.left_out) == (kept, 1 - kept)
