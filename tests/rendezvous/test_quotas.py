"""What tenants may use: sums over replicas, limits, windows of a minute, names that overlap."""

from __future__ import annotations

import pytest

from rendezvous.registry.quotas import (
    Window,
    read_usages,
    refuse_clash,
    refuse_over,
    total,
    usages_text,
)
from rendezvous.wire.errors import RdzvError, TenantClash, TooManyRequests, TooManyRuns
from rendezvous.wire.tenant import Tenant, TenantLimits, Usage


def tenant(name: str = "team", prefix: str = "team-", digit: str = "a") -> Tenant:
    return Tenant(name=name, prefix=prefix, sha256=digit * 64)


def test_a_window_holds_what_was_made_in_the_last_minute() -> None:
    window = Window()
    assert (window.count(100.0), window.frees_seconds(100.0)) == (0, 0.0)
    for now in (100.0, 130.0, 130.0):
        window.add(now)
    assert (window.count(130.0), window.frees_seconds(130.0)) == (3, 30.0)
    assert (window.count(159.9), window.count(160.0)) == (3, 2)
    assert window.frees_seconds(160.0) == 30.0
    assert (window.count(190.0), window.frees_seconds(190.0)) == (0, 0.0)


def test_what_is_used_is_the_sum_over_the_replicas_and_the_first_to_free_a_place_counts() -> None:
    here = Usage(runs=1, nodes=8, creates=2, frees_seconds=40.0)
    there = Usage(runs=2, nodes=4, creates=1, frees_seconds=12.5)
    assert total([here, Usage(), there]) == Usage(runs=3, nodes=12, creates=3, frees_seconds=12.5)
    assert total([]) == Usage()


@pytest.mark.parametrize(
    ("limits", "nodes", "error", "words", "hint"),
    [
        ({}, 10_000, None, "", ""),
        ({"max_runs": 4, "max_nodes": 32, "creates_per_minute": 6}, 4, None, "", ""),
        ({"max_runs": 3}, 1, TooManyRuns, "has 3 runs in progress, and its limit is 3", "until"),
        ({"max_nodes": 31}, 4, TooManyRuns, "needs 4 nodes", "wait until one of its runs ends"),
        ({"max_nodes": 2}, 4, TooManyRuns, "its limit is 2", "a limit of at least 4"),
        ({"creates_per_minute": 5}, 1, TooManyRequests, "made 5 runs", "wait 13 s"),
        ({"max_runs": 3, "creates_per_minute": 5}, 1, TooManyRuns, "has 3 runs", "--max-runs"),
    ],
)
def test_what_is_over_a_limit_is_refused_with_the_numbers_and_what_to_do(
    limits: dict[str, int], nodes: int, error: type[RdzvError] | None, words: str, hint: str
) -> None:
    team = tenant().model_copy(update={"limits": TenantLimits(**limits)})
    used = Usage(runs=3, nodes=28, creates=5, frees_seconds=12.6)
    if error is None:
        refuse_over(team, used, nodes)
        return
    with pytest.raises(error) as caught:
        refuse_over(team, used, nodes)
    assert words in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("prefix", ["team2-", "tea-", "team.", "team_", "Team-", "other-team-"])
def test_prefixes_of_which_none_begins_with_the_other_are_apart(prefix: str) -> None:
    refuse_clash([tenant()], tenant("other", prefix, "b"))


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (tenant("other", "team-", "b"), "overlaps 'team-', which is that of tenant 'team'"),
        (tenant("other", "team-a-", "b"), "the prefix 'team-a-' overlaps 'team-'"),
        (tenant("other", "team-a.b_", "b"), "overlaps"),
        (tenant("team", "new-"), "tenant 'team' has the prefix 'team-', which cannot be changed"),
        (tenant("t2", "new-"), "tenant 'team' has the same credential"),
    ],
)
def test_what_overlaps_is_refused_whichever_came_first(new: Tenant, words: str) -> None:
    with pytest.raises(TenantClash, match=words):
        refuse_clash([tenant()], new)
    with pytest.raises(TenantClash):
        refuse_clash([new], tenant())


def test_what_a_replica_tells_of_its_tenants_is_read_back_or_passed_over() -> None:
    usages = {"team": Usage(runs=1, nodes=8, creates=2, frees_seconds=40.0), "other": Usage(runs=2)}
    assert read_usages(usages_text(usages)) == usages
    assert read_usages('{"team": {"runs": 1, "of_a_newer_version": []}}') == {"team": Usage(runs=1)}
    for odd in ("", "{", "[]", '{"team": {"runs": -1}}', '{"team": 3}'):
        assert read_usages(odd) == {}


def test_who_is_to_wait_waits_for_a_second_at_least() -> None:
    team = tenant().model_copy(update={"limits": TenantLimits(creates_per_minute=5)})
    for frees, words in ((0.2, "wait 1 s"), (1.6, "wait 2 s")):
        used = Usage(runs=3, nodes=28, creates=5, frees_seconds=frees)
        with pytest.raises(TooManyRequests) as caught:
            refuse_over(team, used, 1)
        assert caught.value.hint == words
