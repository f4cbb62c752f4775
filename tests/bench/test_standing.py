"""The rows of a standing registry: beside their targets, and left out where PostgreSQL is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import standing
from bench.rows import Figure
from tests.support.postgres import Postgres, one_primary


@pytest.fixture
def primary() -> Iterator[Postgres]:
    """An engine without standbys."""
    with one_primary() as made:
        yield made


def test_without_postgresql_nothing_is_measured_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(standing, "missing", lambda: "it is not here")
    assert list(standing.works(standing.QUICK)) == []
    assert capsys.readouterr().out == "the standing registry is not measured: it is not here\n"


def test_commits_of_both_journals_are_measured_side_by_side(primary: Postgres) -> None:
    made = list(standing.commits(primary, 3))
    assert [(one.what, one.nodes, one.target, one.rounds) for one in made] == [
        ("commit_p50", 100, None, 3),
        ("commit_p99", 100, None, 3),
        ("commit_p50", 100, 5.0, 3),
        ("commit_p99", 100, 50.0, 3),
    ]
    assert [one.note.partition(",")[0] for one in made[::2]] == ["SQLite", "PostgreSQL"]
    assert all(one.value > 0 for one in made)


@pytest.mark.nightly
@pytest.mark.real_time
def test_nodes_meet_at_a_replica_as_they_do_at_a_registry_alone(primary: Postgres) -> None:
    *rows, ratio = standing.last_to_all(primary, 4, 1)
    assert [getattr(one, "journal", "") for one in rows] == ["sqlite", "postgres"]
    assert isinstance(ratio, Figure)
    assert (ratio.what, ratio.target) == ("postgres_by_sqlite", 1.5)
    sealed = list(standing.sealed(primary, 1, crowds_at_once=2))
    assert [(one.what, one.nodes, one.target) for one in sealed] == [
        ("sealed_run", 16, None),
        ("sealed_run", 16, 50.0),
    ]


@pytest.mark.nightly  # the quick benchmark leaves these out: most of a minute
@pytest.mark.real_time
@pytest.mark.timeout(180)
def test_what_a_run_meets_that_loses_its_owner_or_the_engine_is_measured() -> None:
    with standing.engine() as servers:
        ends = list(standing.taken_over(servers, 1))
        away = list(standing.engine_away(servers, 2.0))
    assert [one.what for one in ends] == [
        "owner_killed",
        "owner_silent",
        "run_moved",
        "run_moved_errors",
    ]
    assert all(one.value > 0 for one in ends[:3])
    assert [(one.what, one.value) for one in away] == [("away_disturbed", 0), ("away_lost", 0)]
