"""One number says which protocol is spoken: the words with which another one is refused."""

from __future__ import annotations

import pytest

from rendezvous.wire.errors import OtherProtocol, RequestError, error_from_code
from rendezvous.wire.protocol import PROTOCOL, Greeting, Speaker, other_protocol, same_rdzv


@pytest.mark.parametrize(
    ("value", "speaker"),
    [
        ("2 0.9 the launcher on h1", Speaker("the launcher on h1", 2, "0.9")),
        ("2 ? 'rdzv status' on h1", Speaker("'rdzv status' on h1", 2, "")),
        ("2", Speaker("this client", 2, "")),
        ("", Speaker("this client", None, "")),
        ("two 0.9", Speaker("this client", None, "0.9")),
        ("\u0662 0.9", Speaker("this client", None, "0.9")),
        ("-1 \x1b[2J", Speaker("this client", None, "?[2J".strip("?"))),
        ("7 " + "x" * 200, Speaker("this client", 7, "x" * 117 + "…")),
    ],
)
def test_a_header_says_who_speaks(value: str, speaker: Speaker) -> None:
    assert Speaker.from_header(value) == speaker


def test_a_header_is_one_line_of_ascii() -> None:
    value = Speaker("the node on höst\n", PROTOCOL, "").header()
    assert value == f"{PROTOCOL} ? the node on h?st?"
    assert Speaker.from_header(value) == Speaker("the node on h?st?", PROTOCOL, "")


def test_the_sentence_names_both_and_what_to_do() -> None:
    error = other_protocol(Speaker("slot 2 (h2)", 2, "0.9"), Speaker("this registry", 1, "0.8"))
    assert error.message == (
        "slot 2 (h2) speaks protocol 2 (rdzv 0.9), but this registry speaks protocol 1 (rdzv 0.8)"
    )
    assert error.hint.endswith(". Try: pip install rdzv==0.8")
    assert "Try" not in same_rdzv("unknown")
    unknown = other_protocol(Speaker("slot 2", None, ""), Speaker("this registry", 1, "0.8"))
    assert unknown.message.startswith("slot 2 speaks an unknown protocol (an unknown rdzv), but")


def test_a_peer_that_does_not_know_the_code_understands_the_refusal() -> None:
    error = error_from_code("a_code_of_tomorrow", "who, and both numbers", "what to do")
    assert (type(error), error.retryable, int(error.exit_code)) == (RequestError, False, 77)
    known = error_from_code(OtherProtocol.code, "who")
    assert (type(known), known.retryable, int(known.exit_code)) == (OtherProtocol, False, 77)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ('{"slot": 2, "generation": 1, "hostname": "h2"}', "slot 2 (h2)"),
        ('{"slot": 2, "generation": 1, "protocol": null, "new": [7]}', "slot 2"),
    ],
)
def test_a_node_is_named_by_what_every_join_has(said: str, name: str) -> None:
    assert Greeting.model_validate_json(said).speaker == Speaker(name, None, "")
