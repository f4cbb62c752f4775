"""Which address is used, what a failure leads to, and in which words it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rendezvous.talk.dialling import (
    DialNext,
    WaitFor,
    dial_order,
    dials_again,
    next_step,
    next_step_of_replicas,
)
from rendezvous.talk.failures import (
    Fault,
    NetworkFailure,
    NobodyListens,
    OtherKey,
    unreachable,
    words_of,
)
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import Unavailable


@pytest.mark.parametrize(
    ("answers", "since_first", "step"),
    [
        ([None, None], 0.0, WaitFor((0, 1), None)),
        ([False, None], 0.0, WaitFor((1,), None)),
        ([False, False], 0.0, None),
        ([], 0.0, None),
        ([True, None], 0.0, 0),
        ([False, True, None], 0.0, 1),
        ([None, True, None], 0.0, WaitFor((0,), 0.25)),
        ([None, False, True, None], 0.125, WaitFor((0,), 0.125)),
        ([None, True], 0.25, 1),
        ([None, True], 0.25 - 1e-17, 1),
        ([None, True], 0.25 - 1e-9, 1),
        ([True, True], 0.1, 0),
        ([None, True, True], 9.0, 1),
    ],
)
def test_the_first_of_the_list_has_a_moment_more_than_those_behind_it(
    answers: list[bool | None], since_first: float, step: object
) -> None:
    assert next_step(answers, since_first) == step


@pytest.mark.parametrize(
    ("answers", "left", "since_last", "step"),
    [
        ([], 3, 0.0, DialNext()),
        ([], 0, 0.0, None),
        ([None], 2, 0.0, WaitFor((0,), 0.25)),
        ([None], 2, 0.125, WaitFor((0,), 0.125)),
        ([None], 2, 0.25, DialNext()),
        ([None], 2, 0.25 - 1e-9, DialNext()),
        ([None], 0, 9.0, WaitFor((0,), None)),
        ([False], 2, 0.0, DialNext()),
        ([False, None], 1, 0.125, WaitFor((1,), 0.125)),
        ([None, False], 1, 0.125, WaitFor((0,), 0.125)),
        ([None, True], 1, 0.0, 1),
        ([True, None], 1, 9.0, 0),
        ([False, False], 0, 9.0, None),
    ],
)
def test_the_next_replica_is_dialled_a_moment_later_or_once_all_before_have_failed(
    answers: list[bool | None], left: int, since_last: float, step: object
) -> None:
    assert next_step_of_replicas(answers, left, since_last) == step


@pytest.mark.parametrize(
    ("late", "of_one_machine", "of_replicas"),
    [
        ("", "abc", "abc"),
        ("a", "bca", "bca"),
        ("ba", "cab", "cba"),
        ("cab", "abc", "cab"),
        ("xb", "acb", "acb"),
    ],
)
def test_who_was_late_is_dialled_behind_the_others(
    late: str, of_one_machine: str, of_replicas: str
) -> None:
    place = RegistryPlace(tuple("abc"), 29600)
    assert "".join(dial_order(place, late)) == of_one_machine
    assert "".join(dial_order(replace(place, replicas=True), late)) == of_replicas


@pytest.mark.parametrize(
    ("fault", "opened", "addresses", "again"),
    [
        (Fault.REFUSED, False, 1, True),
        (Fault.HOST_DOWN, False, 1, True),
        (Fault.FILTERED, False, 1, False),
        (Fault.FILTERED, False, 2, True),
        (Fault.FILTERED, True, 2, False),
        (Fault.SILENT, True, 2, False),
        (Fault.CLOSED, True, 2, False),
    ],
)
def test_all_addresses_are_dialled_again_when_no_connection_can_be_opened(
    fault: Fault, opened: bool, addresses: int, again: bool
) -> None:
    assert dials_again(NetworkFailure(fault, opened=opened), addresses) is again


@pytest.mark.parametrize(
    ("fault", "detail", "words"),
    [
        (Fault.NO_NAME, "Name or service not known", "its name cannot be resolved (Name or serv"),
        (Fault.NO_NAME_SERVER, "2", "no name server has returned its address within 2 s"),
        (Fault.TLS, "WRONG_VERSION_NUMBER", "it does not speak TLS 1.3 (WRONG_VERSION_NUMBER)"),
        (Fault.OTHER, "Network is unreachable", "Network is unreachable"),
    ],
)
def test_the_detail_of_a_failure_is_told(fault: Fault, detail: str, words: str) -> None:
    assert words_of(NetworkFailure(fault, detail)).startswith(words)


def test_every_fault_has_words() -> None:
    assert all(words_of(NetworkFailure(fault, "detail")) for fault in Fault)
    assert all(words_of(NetworkFailure(fault)) for fault in Fault if fault is not Fault.OTHER)


def failed(*faults: Fault, trust: str = "certificate") -> Unavailable:
    """What is told when the addresses a, b ... fail like that."""
    addresses = tuple("abcdef"[: len(faults)])
    place = RegistryPlace(addresses, 29600, trust)  # type: ignore[arg-type]
    failures = {a: NetworkFailure(fault) for a, fault in zip(addresses, faults, strict=True)}
    return unreachable(place, failures)


def test_every_address_is_told_in_the_order_of_the_list() -> None:
    refusal = failed(Fault.REFUSED, Fault.FILTERED)
    assert refusal.message == (
        "no registry at port 29600 of a, b (a: connection refused (no registry is listening); "
        "b: no answer (filtered, or the host is down))"
    )


def test_of_many_addresses_those_that_fail_alike_are_told_together() -> None:
    refusal = failed(*[Fault.REFUSED] * 5, Fault.FILTERED)
    assert refusal.message == (
        "no registry at port 29600 of a and 5 more (a, b, c, d, e: connection refused (no registry "
        "is listening); f: no answer (filtered, or the host is down))"
    )


def test_where_the_ports_differ_each_address_is_told_with_its_own() -> None:
    place = RegistryPlace(("a", "b:7"), 29600)
    failures = {a: NetworkFailure(Fault.FILTERED) for a in place.addresses}
    told = "no answer (filtered, or the host is down)"
    assert unreachable(place, failures).message == (
        f"no registry at a:29600, b:7 (a: {told}; b:7: {told})"
    )


@pytest.mark.parametrize(
    ("resolved", "told"),
    [
        ((), "h: connection refused"),
        (("10.0.0.3",), "h as 10.0.0.3: connection refused"),
        (("127.0.1.1",), "h as 127.0.1.1, which is this node itself: connection refused"),
        (("10.0.0.3", "127.0.1.1"), "h as 10.0.0.3, 127.0.1.1: connection refused"),
        (("a1", "a2", "a3"), "h as a1 and 2 more: connection refused"),
    ],
)
def test_a_name_is_told_with_what_it_means_on_this_node(
    resolved: tuple[str, ...], told: str
) -> None:
    failure = NetworkFailure(Fault.REFUSED)
    failure.resolved = resolved
    error = unreachable(RegistryPlace(("h",), 29600), {"h": failure})
    assert error.message.startswith(f"no registry at port 29600 of h ({told}")


OTHER_JOIN = "another program or a newer launch listens there: start this node with the RDZV_JOIN"


@pytest.mark.parametrize(
    ("faults", "hint"),
    [
        ([Fault.NO_NAME, Fault.NO_NAME_SERVER], "this node cannot resolve the name of"),
        ([Fault.NO_NAME, Fault.REFUSED], "check that this node can reach that port"),
        ([Fault.OTHER_KEY, Fault.REFUSED], "give all nodes of a launch the same"),
        ([Fault.OTHER_KEY, Fault.NOT_PROVEN], OTHER_JOIN),
        ([Fault.TLS, Fault.NOT_HTTP], OTHER_JOIN),
        ([Fault.TLS, Fault.REFUSED], "check that this node can reach that port"),
    ],
)
def test_the_hint_fits_what_happened(faults: list[Fault], hint: str) -> None:
    told = failed(*faults).hint
    assert told.startswith(hint)
    assert bool(told) is bool(hint)


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ([Fault.OTHER_KEY, Fault.OTHER_KEY], OtherKey),
        ([Fault.OTHER_KEY, Fault.REFUSED], Unavailable),  # the registry may still come up there
        ([Fault.OTHER_PROGRAM], OtherKey),
        ([Fault.OTHER_KEY, Fault.OTHER_PROGRAM], OtherKey),
        ([Fault.PROXY], Unavailable),  # the registry may still come up behind it
        ([Fault.OTHER_PROGRAM, Fault.PROXY], Unavailable),
        ([Fault.REFUSED, Fault.REFUSED], NobodyListens),
        ([Fault.REFUSED, Fault.FILTERED], Unavailable),
    ],
)
def test_only_what_all_addresses_say_is_certain(faults: list[Fault], error: type) -> None:
    assert type(failed(*faults)) is error


def test_the_keys_that_were_met_are_kept_by_address() -> None:
    place = RegistryPlace(("a", "b"), 29600, "public_key", b"k" * 32)
    met = {"a": NetworkFailure(Fault.OTHER_KEY, "aa"), "b": NetworkFailure(Fault.OTHER_KEY, "bb")}
    error = unreachable(place, met)
    assert isinstance(error, OtherKey)
    assert error.pins == {"a": "aa", "b": "bb"}
    met["b"] = NetworkFailure(Fault.OTHER_PROGRAM, "an SSH server (SSH-2.0-x)")
    error = unreachable(place, met)
    assert isinstance(error, OtherKey)
    assert error.pins == {"a": "aa"}
    error = unreachable(place, dict.fromkeys("ab", met["b"]))
    assert isinstance(error, OtherKey)
    assert error.pins == {}
    assert error.hint.startswith("another program listens at that port of node 0")
    assert "a: an SSH server (SSH-2.0-x) answers there, and no registry of this run" in str(error)


def test_where_nobody_listens_in_a_symmetric_start_rank_0_is_missing() -> None:
    place = RegistryPlace(("a",), 29600, "public_key", b"k" * 32)
    hint = unreachable(place, {"a": NetworkFailure(Fault.REFUSED)}).hint
    assert hint.startswith("check that one node was started with NODE_RANK 0, on the machine that")
    assert unreachable(place, {"a": NetworkFailure(Fault.FILTERED)}).hint.startswith("check that t")
    hint = unreachable(place, {"a": NetworkFailure(Fault.TLS, "WRONG_VERSION_NUMBER")}).hint
    assert hint.startswith("another program listens at that port of node 0")


def test_without_tls_a_server_that_says_nothing_of_use_may_speak_tls() -> None:
    assert "; it may speak TLS" in failed(Fault.CLOSED, trust="plain").message
    assert "; it may speak TLS" in failed(Fault.NOT_HTTP, trust="plain").message
    assert "; it may speak TLS" not in failed(Fault.CLOSED).message
    assert "; it may speak TLS" not in failed(Fault.SILENT, trust="plain").message
