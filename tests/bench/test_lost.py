"""Losses are measured as nodes are lost: an agent is killed, or a host falls silent."""

from __future__ import annotations

import os

import pytest

from bench import agents, lost


@pytest.mark.nightly
@pytest.mark.real_time
def test_a_killed_agent_is_replaced_with_a_standby_and_without() -> None:
    ready, again = lost.after_kill(1)
    assert (ready.what, ready.nodes, ready.target) == ("standby_first", 4, 2.0)
    assert (again.what, again.nodes, again.target) == ("resubmitted_first", 4, 1.5)
    assert ready.value > 0
    assert again.value > 0
    assert " a standby there; " in ready.note
    assert " less the scheduler's time " in again.note


@pytest.mark.nightly
@pytest.mark.real_time
def test_of_three_agents_the_standby_s_is_measured() -> None:
    [made] = agents.standby_rss(1)
    assert (made.what, made.unit, made.target) == ("standby_rss", "MB", 60)
    assert 20 < made.value < 200


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_a_silent_host_s_place_is_not_taken_before_its_fence_is_over() -> None:
    [made] = lost.silent(1, lease=3, fence=7)
    assert (made.what, made.nodes, made.target) == ("silent_first", 3, 8.0)
    assert made.value > 7 - 3  # the fence counts from its last word, at most a lease ago
    assert made.note.endswith("lease 3 s, fence 7 s")


def test_without_root_the_silent_host_is_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert len(list(lost.works(lost.FULL))) == 2
    said = "a silent host is not measured: emulated hosts need root\n"
    assert capsys.readouterr().out == said
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert len(list(lost.works(lost.FULL))) == 3
    assert len(list(lost.works(lost.QUICK))) == 2
