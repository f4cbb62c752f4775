"""The tree of errors: its drawing, its codes, and the way over the wire and back."""

from __future__ import annotations

import re

import pytest

from rendezvous.wire import errors
from rendezvous.wire.errors import Cause, ExitCode, RdzvError, UsageError, error_from_code

ALL = [cls for cls in errors.with_children(RdzvError) if cls.__module__ == errors.__name__]
_BY_OTHERS = (Cause.PREEMPTED, Cause.STALLED, Cause.WRONG_WORLD)
OF_NO_ERROR = (Cause.REFUSED, Cause.AGENT_FAILED, Cause.PROGRAM_FAILED, *_BY_OTHERS)


def test_a_cause_that_an_error_has_too_is_its_code_and_exits_alike() -> None:
    causes = {cls.code: cls for cls in ALL if cls.code in list(Cause)}
    for code, cls in causes.items():
        assert isinstance(code, Cause)
        assert code.exit_code is cls.exit_code
    assert set(Cause) - set(causes) == set(OF_NO_ERROR)


def test_every_way_in_which_a_run_ends_has_a_cause() -> None:
    _, *ends = errors.with_children(errors.RunError)
    assert all(isinstance(cls.code, Cause) for cls in ends)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_comes_back_from_its_code(cls: type[RdzvError]) -> None:
    error = error_from_code(cls.code, "what happened", "what to try")
    assert type(error) is cls
    assert (error.message, error.hint) == ("what happened", "what to try")


def test_an_error_that_has_no_code_of_its_own_is_its_parent_on_the_wire() -> None:
    class Special(errors.BadRequest):
        status = 408

    assert type(error_from_code(Special("x").code, "x")) is errors.BadRequest


def test_a_code_that_is_not_known_is_a_refusal() -> None:
    error = error_from_code("of-a-newer-version", "no")
    assert type(error) is errors.RequestError
    assert not error.retryable


def test_the_text_is_the_message_and_then_the_hint() -> None:
    assert str(UsageError("no such file")) == "no such file"
    assert str(UsageError("no such file", hint="look")) == "no such file\nlook"


def test_the_drawing_at_the_top_shows_every_class_with_its_status_and_exit_code() -> None:
    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"[ │├└─]*─ (\w+)\s+(.*)", line):
            drawn[found[1]] = found[2]
    assert list(drawn) == [cls.__name__ for cls in ALL[1:]]
    for cls in ALL[1:]:
        if status := re.match(r"(\d{3}) ", drawn[cls.__name__]):
            assert int(status[1]) == cls.status
        if code := re.search(r"exit (\d+)$", drawn[cls.__name__]):
            assert int(code[1]) == cls.exit_code


def test_a_refusal_is_a_4xx_and_an_inability_a_5xx() -> None:
    for cls in ALL:
        if issubclass(cls, errors.RequestError | UsageError):
            assert 400 <= cls.status < 500
        elif issubclass(cls, errors.RegistryError):
            assert 500 <= cls.status < 600 or cls is errors.Moved  # who is asked can, elsewhere


def test_only_what_passes_with_time_is_tried_again() -> None:
    assert {cls.__name__ for cls in ALL if cls.retryable} == {
        "SlotTaken",
        "TooManyRequests",
        "Unavailable",
        "Moved",
        "StorageFull",
    }


def test_every_exit_code_has_its_help_and_is_no_signals() -> None:
    assert all(code.help for code in ExitCode)
    assert (int(ExitCode.NODE_LOST), str(ExitCode.NODE_LOST.value)) == (86, "86")
    assert max(ExitCode) < 128
    assert errors.NodeLost("x").exit_code is ExitCode.NODE_LOST
    assert errors.TooLate("x").exit_code == 0
