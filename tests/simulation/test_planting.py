"""What is planted reaches whoever calls the function, is taken back, and fits what it replaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendezvous.registry import service
from rendezvous.run import leases
from rendezvous.serving import answers
from tests.simulation.planting import (
    Bug,
    Part,
    always,
    awaited,
    by_name,
    constant,
    given,
    nothing,
    nothing_awaited,
    put,
    replace,
    while_set,
    wrap,
)
from tests.support.shapes import TABLE, Square, half, later, quarter, squared, step

HERE = "tests.support.shapes:"


def planted(*parts: Part) -> Any:
    bug = Bug("a bug", *parts)
    bug.check()
    return bug.planted()


def test_a_function_is_replaced_for_whoever_has_it_and_only_as_long() -> None:
    kept = half
    with planted(replace(HERE + "half", lambda number, digits=0: number)):
        assert (kept(8), TABLE["half"](8), half(number=8, digits=3)) == (8, 8, 8)
    assert (kept(8), TABLE["half"](8)) == (4, 4)


def test_a_wrapped_one_is_given_the_real_one_first() -> None:
    with planted(wrap(HERE + "half", lambda real, number, **more: real(number + 2, **more) + 10)):
        assert half(5) == 13.5
        assert half(number=5, digits=0) == 14


def test_arguments_are_given_by_name_whatever_the_caller_says() -> None:
    with planted(given(HERE + "half", number=3, digits=0)):
        assert half(8) == half(number=8, digits=1) == 2


def test_methods_of_all_kinds_are_changed() -> None:
    square = Square(3)
    with planted(
        replace(HERE + "Square.area", lambda square: -square.side),
        replace(HERE + "Square.way_around", lambda square: 1.0),
        replace(HERE + "Square.corners", always(5)),
        wrap(HERE + "Square.of", lambda real, cls, side: real(cls, side + 1)),
        given(HERE + "Square.__init__", side=7.0),
    ):
        assert (square.area, square.way_around, square.around()) == (-3, 1.0, 15)
        assert Square.of(1) == Square(9)
    assert (Square(3).area, Square(3).way_around, Square.of(1)) == (9, 12, Square(1))


def test_what_is_cached_is_forgotten() -> None:
    assert squared(3) == 9
    with planted(wrap(HERE + "squared", lambda real, number: real(number) + 1)):
        assert squared(3) == 10
    assert squared(3) == 9


def test_functions_that_wait_or_close_over_something_are_changed() -> None:
    async def twice(real: Any, number: int) -> int:
        return int(await real(number) + await real(number))

    assert step() == 1
    with planted(wrap(HERE + "later", twice), wrap(HERE + "step", lambda real: -real())):
        assert asyncio.run(later(4)) == 8
        assert step() == -2
    assert asyncio.run(later(4)) == 4
    assert step() == 3


def test_what_is_awaited_is_changed_and_may_be_nothing() -> None:
    with planted(wrap(HERE + "later", awaited(lambda found, number: found + number))):
        assert asyncio.run(later(4)) == 8
    with planted(replace(HERE + "later", nothing_awaited)):
        assert asyncio.run(later(4)) is None
    assert asyncio.run(later(4)) == 4


def test_two_changes_of_one_function_both_hold() -> None:
    with planted(
        wrap(HERE + "half", lambda real, *args, **more: real(*args, **more) + 1),
        given(HERE + "half", number=8),
    ):
        assert half(number=2) == 5
    assert half(2) == 1


def test_a_change_within_a_function_holds_while_that_runs() -> None:
    with planted(replace(HERE + "half", always(100), within=HERE + "quarter")):
        assert quarter(8) == 100
        assert half(8) == 4
    assert quarter(8) == 2


def test_a_constant_is_changed_with_its_copies() -> None:
    before = leases.DOUBT_SWEEPS
    with planted(constant("rendezvous.run.leases:DOUBT_SWEEPS", before + 1)):
        assert leases.DOUBT_SWEEPS == vars(service)["DOUBT_SWEEPS"] == before + 1
    assert leases.DOUBT_SWEEPS == vars(service)["DOUBT_SWEEPS"] == before


def test_what_is_compiled_for_dataclasses_of_the_product_is_changed() -> None:
    with planted(replace("rendezvous.serving.answers:Body.of", always(None))):
        assert answers.Body.of(b"x") is None
    assert answers.Body.of(b"x") == answers.Body(b"x")


def test_attributes_are_set_while_a_function_runs_also_where_it_fails() -> None:
    square = Square(3)
    parts = wrap(HERE + "Square.around", while_set(lambda one: one, side=lambda one: one.side + 1))
    with planted(parts):
        assert (square.around(), square.side) == (16, 3)
    fails = replace(HERE + "Square.corners", lambda: 1 / 0)
    with planted(parts, fails), pytest.raises(ZeroDivisionError):
        square.around()
    assert put(square, side=3) == Square(3)
    nobody = wrap(HERE + "Square.around", while_set(lambda _: None, side=0))
    with planted(nobody):
        assert square.around() == 12


def test_all_is_as_before_where_one_part_does_not_fit() -> None:
    bug = Bug("a bug", replace(HERE + "half", nothing), replace(HERE + "third", nothing))
    with pytest.raises(ValueError, match="there is no"), bug.planted():
        pass
    assert half(2) == 1


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (replace(HERE + "third", nothing), "there is no .*third"),
        (replace(HERE + "Square.color", nothing), "there is no .*Square.color"),
        (replace("rendezvous.run.nowhere:half", nothing), "there is no module"),
        (replace(HERE + "TABLE", nothing), "TABLE is no function of the product"),
        (replace("asyncio:sleep", nothing), "is no function of the product"),
        (given(HERE + "half", fraction=2), "half has no argument fraction"),
        (constant("rendezvous.run.leases:_GONE", 1), "there is no"),
        (constant("rendezvous.run.leases:_MASS_COUNT", 3), "is 3 anyway"),
        (replace(HERE + "third", nothing, within=HERE + "half"), "there is no .*third"),
        (replace(HERE + "half", nothing, within=HERE + "third"), "there is no .*third"),
        (
            replace(HERE + "later", nothing, within=HERE + "quarter"),
            "quarter does not call .*later",
        ),
        (replace("asyncio:sleep", nothing, within=HERE + "later"), "no function of the product"),
        (replace(HERE + "half", nothing, within=HERE + "half_later"), "not alone while it runs"),
    ],
)
def test_what_does_not_fit_says_so(part: Part, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Bug("a bug", part).check()


@pytest.mark.parametrize(
    "part",
    [
        replace(HERE + "half", lambda: 0.0),
        replace(HERE + "half", lambda number: number),
        replace(HERE + "half", lambda number, *, digits: number),
        wrap(HERE + "half", lambda number, digits=0: number),
        wrap(HERE + "Square.area", lambda real: real()),
        replace(HERE + "half", lambda: 0.0, within=HERE + "quarter"),
    ],
)
def test_a_replacement_takes_the_same_calls(part: Part) -> None:
    with pytest.raises(TypeError):
        Bug("a bug", part).check()


def test_a_bug_changes_something_and_has_a_name_of_its_own() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        Bug("a bug").check()
    with pytest.raises(ValueError, match="two bugs have one name"):
        by_name(Bug("a bug"), Bug("a bug"))
