"""Some schedules on every run of the suite, more of them in `make test-planted`; and the simulator
itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from _pytest.mark.structures import ParameterSet

from tests.simulation.__main__ import run_seeds, seeds_from
from tests.simulation.faults import KINDS, words
from tests.simulation.generate import generate, outlives_nodes
from tests.simulation.network import ADDRESSES
from tests.simulation.schedule import BREAKING, Fault, Launch, Schedule
from tests.simulation.world import World, simulate
from tests.support.nightly import at_night

_EACH = 5
"""Runs that outlive their nodes, in one test: seconds of work also on a slow machine."""
_LATER = [pytest.param(first, marks=pytest.mark.planted) for first in range(20, 40, 5)]


@pytest.mark.parametrize("first", [0, at_night(5), 10, at_night(15), *_LATER])
def test_every_invariant_holds_in_these_schedules(first: int) -> None:
    assert run_seeds(range(first, first + 5)).failed == []


@pytest.mark.planted
@pytest.mark.parametrize("first", [*range(5), *(at_night(first) for first in range(5, 15))])
def test_every_invariant_holds_in_runs_that_outlive_their_nodes(first: int) -> None:
    seeds = seeds_from(0, 15 * _EACH, outlives_nodes)
    assert run_seeds(seeds[first * _EACH : (first + 1) * _EACH]).failed == []


_FOUND = [1_013, 1_016, 1_153, 2_162, 2_614, 117_157]
_FOUND += [221, 318, 1_157, 1_709, 4_001, 4_061, 4_644, 5_071]
_FOUND += [118_187, 118_574, 121_943, 122_102, 124_057, 124_146, 126_102, 140_006, 141_194]
_FOUND += [141_788, 142_338, 142_463, 142_708, 143_604, 148_744, 615_325]
_FOUND += [160_688, 161_017, 166_062, 166_496, 167_991, 169_107, 171_216]
_FOUND += [172_808, 172_896, 174_129, 176_365]
_FOUND += [118_123, 121_705, 133_726, 139_789, 132_904, 133_662, 137_878, 301_182, 225_420]
_FOUND += [93_125]
_FOUND += [619_677, 601_801, 650_103, 398, 2_745, 3_169, 17_627, 1_846, 839_253, 847_776]
_FOUND += [5_209, 14_242, 14_918, 16_501]


CALM = replace(generate(3).without(()), keep_finished=3_600.0)
_LONG = [at_night(seed) for seed in (529, 1_012, 164_936)]
"""Hundreds of thousands of steps each."""
_EVERYDAY, _SHARE = 9, 3
"""The everyday suite tries one in so many of those that are found no more; of the others of a share
of three the nights one, `make test-planted` two."""


def but_planted(place: int, seed: int) -> ParameterSet:
    if place % _SHARE:
        return pytest.param(seed, marks=pytest.mark.planted)
    return at_night(seed) if place % _EVERYDAY else pytest.param(seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [*(but_planted(*one) for one in enumerate(_FOUND)), *_LONG])
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    """Seeds that have shown a defect, of the product or of its judge."""
    assert simulate(generate(seed)).violation is None


def test_a_schedule_without_faults_ends_well() -> None:
    report = simulate(CALM)
    assert (report.violation, sum(report.faults.values())) == (None, 0)
    assert len(report.records) > 10


def test_a_schedule_runs_the_same_way_each_time() -> None:
    assert simulate(generate(52)) == simulate(generate(52))


def test_every_kind_of_fault_is_drawn_and_can_be_read() -> None:
    faults = [fault for seed in range(1_000) for fault in generate(seed).faults]
    assert {fault.what for fault in faults} == KINDS.keys()
    assert all(words(fault).strip() for fault in faults)


# --- the clock and the machines -------------------------------------------------------------------


def test_what_a_stopped_registry_has_received_is_read_though_the_network_forgets_it() -> None:
    queue, boot = (1.114, 0.642, 0.366), (0.696, 0.423, 0.591)
    program, ranks = ((3.698, 0), (3.543, 0), (3.845, 0)), (None, None, None)
    shape = ("r0", 0.0, 3, 3, True, 2, 15.0, 20.0)
    launch = Launch(*shape, queue, boot, program, ranks, contagion=0.0, led=True)
    stopped = Fault("probed 3 after", "registry pause", seconds=27.446)
    schedule = Schedule(92257, (launch,), (Fault("acked 2 before", "forgotten"), stopped))
    report = simulate(schedule)
    assert (report.violation, sum(report.faults.values())) == (None, 2)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_node_whose_successor_had_failed_before_it_has_failed_once(retries: int) -> None:
    """A launcher that comes back starts its own node anew, while the former one has its lease."""
    calm = CALM.launches[0]
    launch = replace(calm, here=True, owns_registry=True, retries=retries, join_timeout=60.0)
    launch = replace(launch, boot=(0.2, *(40.0,) * (calm.slots - 1)))
    killed = Fault(2.0, "launcher killed", seconds=0.3)
    mute = Fault(2.1, "breaks", slot=0, count=BREAKING.index("connect") + 1)
    world = World(replace(CALM, launches=(launch,), faults=(killed, mute)))
    assert world.run().violation is None
    [facts] = world.history.facts.values()
    assert facts.failed_generations == {0: set(range(2, 3 + retries))}


# --- the network, with the client and the registry's application that ship at its ends ------------


def test_a_node_uses_the_address_that_is_left() -> None:
    cut = Fault("created 1 after", "address cut", slot=0, seconds=600.0)
    launch = replace(CALM.launches[0], addresses=2, lease=15.0)
    world = World(replace(CALM, launches=(launch,), faults=(cut,)))
    assert world.run().violation is None
    [process] = [process for process in world.history.processes if process.slot == 0]
    assert (process.ended, process.result is not None) == (0, True)
    assert process.client is not None
    assert process.client.base == f"https://{ADDRESSES[1]}:29600"
