"""What a node's own output shows of a word of its COMMAND."""

from __future__ import annotations

import pytest

from worker.agent.own_words import own_word, shown_word


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("train.py --lr 0.1", "'0.1'"),
        ("train.py --pad-tokens=3", "'--pad-tokens=3'"),
        ("train.py --tokenizer llama", "'llama'"),
        ("train.py --api-key", "'--api-key'"),
        ("train.py --api-key abc", "(hidden)"),
        ("train.py --api_key=abc", "'--api_key=(hidden)'"),
        ("env WANDB_API_KEY=abc", "'WANDB_API_KEY=(hidden)'"),
        ("train.py --password=a=b", "'--password=(hidden)'"),
        ("train.py s3://me:secret@host/x", "'s3://me:(hidden)@host/x'"),
        ("train.py hf_abcdefghijkl", "'(hidden)'"),
        ("train.py rdzv1-abcdef", "'(hidden)'"),
        ("bash -c run|TOKEN=abc;|LR=1|x.py", "'run TOKEN=(hidden); LR=1 x.py'"),
        ("a\x1b[0m", "'a?[0m'"),
    ],
)
def test_a_word_is_shown_without_what_may_be_a_secret(words: str, shown: str) -> None:
    command = [word.replace("|", " ") for word in words.split()]
    assert shown_word(command, len(command) - 1) == shown


def test_a_word_is_said_with_its_place_and_how_many_there_are() -> None:
    assert own_word(["a", "b"], 2) == "word 2 of 2 of COMMAND is 'b' here"
    assert own_word(["a", "b"], 3) == "COMMAND has 2 words here, and no word 3"
    assert own_word(["a"] * 200, 129) == "COMMAND has 200 words here, and differs behind word 128"
    assert len(shown_word(["a" * 5000], 0)) < 300


def test_the_longest_words_are_looked_through_at_once() -> None:
    for word in ("a" * 500_000, "a-" * 250_000, "a://" * 100_000):
        assert len(shown_word([word], 0)) < 300
