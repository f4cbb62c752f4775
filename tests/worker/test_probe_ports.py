"""At which ports a node answers its peers' probes."""

from __future__ import annotations

from itertools import islice

from worker.probe.ports import TRIES, ports_to_try

RANGE = (40_000, 40_009)


def test_all_nodes_of_a_launch_prefer_the_same_port_of_the_kernels_own() -> None:
    first = {next(ports_to_try(f"{number:010x}", RANGE)) for number in range(200)}
    assert first == set(range(40_000, 40_010))
    port, *rest = ports_to_try("a", RANGE)
    assert [port, *rest] == [*ports_to_try("a", RANGE)]
    assert rest == [0] * TRIES


def test_what_is_taken_is_not_tried() -> None:
    port = next(ports_to_try("a", RANGE))
    after = RANGE[0] + (port + 1 - RANGE[0]) % 10
    assert next(ports_to_try("a", RANGE, taken={port})) == after
    assert {*ports_to_try("a", RANGE, taken=range(*RANGE, 1))} == {RANGE[1], 0}
    assert {*ports_to_try("a", RANGE, taken=range(40_000, 40_010))} == {0}


def test_of_a_persons_range_each_is_tried_and_no_other() -> None:
    found = [*ports_to_try("a", (1_024, 65_535), RANGE, taken={40_003})]
    assert sorted(found) == [port for port in range(40_000, 40_010) if port != 40_003]
    assert [*islice(ports_to_try("a", (50_000, 50_000), (40_000, 40_000)), 3)] == [40_000]
