"""The recorder's thread, what it does without, and the words in which actions are written down."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from rendezvous.enums import StrEnum
from rendezvous.frozen import frozen
from rendezvous.recording import recorder as module
from rendezvous.recording.reading import inputs_of, is_recording, read
from rendezvous.recording.recorder import BackgroundRecorder, Codec, DirectRecorder, Sink
from rendezvous.recording.values import made, plain, words
from rendezvous.wire.errors import Fenced, UsageError
from rendezvous.wire.run import RestartFacts
from tests.support.recordings import Kept


class Colour(StrEnum):
    RED = "red"


@frozen
class Said:
    """An input, or what is within an action."""

    number: int
    text: str = ""
    inner: Said | None = None


@frozen
class Done:
    """An action."""

    id: int
    text: str
    colour: Colour
    inner: Said
    error: Exception
    more: float = 0.5
    off: bool = False


@frozen
class Acting:
    """An action with a model that is newer than it."""

    id: int
    facts: RestartFacts = RestartFacts()


CODEC = Codec("test", (Said,), {"said": Said}, lambda said: said, str.upper, lambda *_: ((), None))  # type: ignore[arg-type]


def numbers(kept: Kept) -> list[int]:
    """Of the inputs that are in it."""
    return [json.loads(line)["number"] for line in kept.lines[1:]]


async def test_all_that_was_taken_is_written_when_it_is_closed(tmp_path: Path) -> None:
    kept = Kept()
    recorder = BackgroundRecorder(CODEC, lambda: kept)
    recorder.begin({"said": Said(0, "a")}, 5.0)
    for number in range(300):
        recorder.take(Said(number, "b", Said(7)), 5.0 + number / 3, [Said(number)])
    await recorder.close()
    found = read([kept.save(tmp_path / "file")])
    assert (found.of, found.at, found.made_with["said"]["text"]) == ("test", 5.0, "A")
    assert [line.number for line in found.lines] == [*range(1, 301)]
    assert [line.at for line in found.lines] == [5.0 + number / 3 for number in range(300)]
    assert found.lines[7].actions == ["Said(7)"]
    assert (found.lines[0].same, found.lines[1].same) == ([], ["inner"])


def test_a_value_that_is_away_for_an_input_is_written_again(tmp_path: Path) -> None:
    kept, said = Kept(), [Said(1, inner=Said(7)), Said(2), Said(3, inner=Said(7))]
    recorder = DirectRecorder(CODEC, kept)
    recorder.begin({}, 5.0)
    for one in said:
        recorder.take(one, 5.0, [])
    recording = read([kept.save(tmp_path / "file")])
    assert [one for _, one in inputs_of(recording, CODEC)] == said


async def test_a_disk_that_hangs_costs_the_inputs_of_that_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    monkeypatch.setattr(module, "_CLOSE_SECONDS", 0.05)
    kept, answers = Kept(), threading.Event()

    def opened() -> Sink:
        answers.wait()
        return kept

    recorder = BackgroundRecorder(CODEC, opened)
    recorder.begin({}, 0.0)
    for number in range(10):
        recorder.take(Said(number), 0.0, [])
    await recorder.close()  # nobody waits for it
    assert kept.lines == []
    answers.set()
    await asyncio.to_thread(recorder._thread.join)
    assert numbers(kept) == [1, 2]


async def test_what_was_missed_is_seen_by_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    recorder = BackgroundRecorder(CODEC, lambda: kept)
    recorder.begin({}, 0.0)
    for room in (100, 0, 0, 100, 100, 0, 100, 100):
        monkeypatch.setattr(module, "_MOST_WAITING", room)
        recorder.take(Said(0), 0.0, [])
    await recorder.close()
    assert numbers(kept) == [1, 4, 5, 7, 8]


async def test_a_file_that_cannot_be_written_ends_the_recording_alone() -> None:
    def opened() -> Sink:
        raise OSError("no room")

    recorder = BackgroundRecorder(CODEC, opened)
    recorder.begin({}, 0.0)
    for _ in range(2):
        recorder.take(Said(0), 0.0, [])
        await recorder.close()


def test_an_action_in_words_has_no_text_of_others() -> None:
    action = Done(4, "secret", Colour.RED, Said(1, "secret", Said(2)), Fenced("secret"))
    assert words(action) == "Done(4, colour=red, Said(1, Said(2)), Fenced, more=0.5)"
    assert words(Done(4, "", Colour.RED, Said(1), KeyError(3), 0.0, True)) == (
        "Done(4, colour=red, Said(1), Exception, more=0.0, off=True)"
    )


def test_a_field_that_is_newer_than_a_recording_changes_no_words_of_it() -> None:
    """A model says what it was given, also after it was written down and read back."""
    old = {"run": "r", "max_restarts": 3}
    facts = RestartFacts.model_validate({"restarts": 1, "max_restarts": 3})
    assert words(facts) == "RestartFacts(restarts=1, max_restarts=3)"
    assert words(RestartFacts.model_validate({"max_restarts": 3})) == "RestartFacts(max_restarts=3)"
    assert plain(RestartFacts.model_validate(old), str) == {"max_restarts": 3}
    assert made(RestartFacts, plain(facts, str)).model_fields_set == {"restarts", "max_restarts"}
    assert words(Acting(2)) == "Acting(2)"
    assert words(Acting(2, facts)) == "Acting(2, RestartFacts(restarts=1, max_restarts=3))"


@pytest.mark.parametrize(
    ("hint", "value", "written"),
    [
        (dict[str, tuple[int, ...]], {"a": (1, 2)}, {"a": [1, 2]}),
        (frozenset[str], frozenset({"b", "a"}), ["a", "b"]),
        (tuple[str, float], ("a", 0.1), ["a", 0.1]),
        (Colour, Colour.RED, "red"),
        (object, Path("/a"), "/a"),
    ],
)
def test_a_value_as_json(hint: Any, value: Any, written: Any) -> None:
    assert plain(value, str) == written
    assert made(hint, written) == (value if hint is not object else "/a")


def test_what_is_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert not is_recording(file)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read([file])
    for text in (b"", b"{}\n", b'{"rdzv":"x"}', b'{"rdzv":"recording"}', b"\xff", b"{\xff}"):
        file.write_bytes(text)
        with pytest.raises(UsageError, match="is not a complete recording"):
            read([file])
