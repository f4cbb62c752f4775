"""Who may be told where another replica's run is, by what its journal says."""

from __future__ import annotations

import pytest

from rendezvous.registry.doors import Doors
from rendezvous.registry.journal import Record
from rendezvous.run import events
from rendezvous.run.decision import Decision, Outcome, dump_entry
from rendezvous.run.events import Event
from rendezvous.talk.credentials import Credential, node_credential
from rendezvous.wire.run import SlotNews, SlotState
from tests.support.registry import Launch
from tests.support.served import OPERATOR
from tests.support.virtual_time import run_virtually

KEY = bytes(32)
OLD, NEW = Launch("demo", "launch00"), Launch("demo")


class Journal:
    """Records of one run, and how often they were read."""

    def __init__(self, *happened: Event) -> None:
        self.happened = list(happened)
        self.reads = 0

    async def read(self, run: str) -> list[Record]:
        self.reads += 1
        found = self.happened if run == "demo" else []
        decided = Decision(Outcome("it happened"), {})
        return [Record(run, n, 0.0, dump_entry(one, decided)) for n, one in enumerate(found, 1)]


class Clock:
    """Seconds that pass as somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 50.0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def created(launch: Launch) -> events.Created:
    return events.Created(run=launch.run, spec=launch.spec(2))


def generation(slot: int, number: int) -> events.SlotChanged:
    token = NEW.token(slot, number)
    news = SlotNews(generation=number, state=SlotState.SUBMITTED, token_sha256=token.sha256())
    return events.SlotChanged(slot=slot, news=news)


def doors(journal: Journal, clock: Clock | None = None) -> Doors:
    clock = clock or Clock()
    return Doors(KEY, OPERATOR.sha256(), journal.read, clock.now, clock.sleep)


def node(launch: Launch, slot: int, number: int = 1) -> Credential:
    return node_credential(KEY, launch.run, launch.keys.launch_id, slot, number)


@pytest.mark.parametrize(
    ("shown", "opens"),
    [
        (OPERATOR, True),
        (Credential("registry", bytes(32)), OPERATOR.secret == bytes(32)),
        (NEW.keys.admin, True),
        (NEW.keys.read, True),
        (NEW.keys.look, True),
        (NEW.keys.logs, True),
        (NEW.token(1), True),
        (NEW.token(1, 2), True),
        (node(NEW, 0), True),
        (node(NEW, 1, 7), True),
        (node(OLD, 0), True),  # it is told how its launch has ended
        (OLD.keys.admin, False),
        (OLD.keys.read, False),
        (OLD.keys.look, False),
        (OLD.token(1), False),
        (NEW.token(0, 2), False),
        (Credential("node", bytes(32), 0, 1), False),
        (Credential("metrics", NEW.keys.read.secret), False),
    ],
)
def test_a_door_opens_to_whom_the_owner_lets_in(shown: Credential, opens: bool) -> None:
    journal = Journal(created(OLD), created(NEW), generation(1, 2))
    assert run_virtually(doors(journal).opens("demo", shown)) is opens
    if shown.kind != "registry":
        assert run_virtually(doors(Journal()).opens("demo", shown)) is False


def test_what_is_known_is_not_read_again() -> None:
    journal = Journal(created(NEW))
    kept = doors(journal)
    for _ in range(3):
        assert run_virtually(kept.opens("demo", NEW.keys.read))
    assert journal.reads == 1


def test_a_token_that_was_told_since_is_found_after_a_second_at_most() -> None:
    journal, clock = Journal(created(NEW)), Clock()
    kept = doors(journal, clock)
    assert run_virtually(kept.opens("demo", NEW.token(1)))
    journal.happened.append(generation(1, 2))
    began = clock.seconds
    assert run_virtually(kept.opens("demo", NEW.token(1, 2)))
    assert clock.seconds - began <= 1.0


def test_strangers_have_a_run_read_once_a_second_however_many_they_are() -> None:
    journal, clock = Journal(created(NEW)), Clock()
    kept = doors(journal, clock)
    for _ in range(10):
        began = clock.seconds
        assert not run_virtually(kept.opens("demo", OLD.keys.read))
    assert journal.reads <= clock.seconds - 50.0 + 1
    assert clock.seconds - began <= 1.0
