"""Each row of the table of docs/elastic.md has a test that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_HEAD = "| what happens | what follows with `--max-restarts` and `--on-node-loss` |"
_STORIES = "rendezvous/test_restarts.py"
_LOST, _SILENT = "rendezvous/test_replacing.py", "faults/test_silent_nodes.py"
_RESTARTS, _KILLED = "faults/test_restarts.py", "faults/test_node_loss.py"

# By the beginning of its row: the file, and the test or story in it.
SHOWN = {
    "a program ends with an exit code": (_RESTARTS, "test_an_exit_code_starts_all_programs_again"),
    "a process is killed by SIGKILL": (
        _RESTARTS,
        "test_a_killed_worker_of_torchrun_starts_all_programs_again",
    ),
    "a program does not end when": (
        _RESTARTS,
        "test_nothing_of_an_epoch_lives_when_the_next_one_starts",
    ),
    "exit code 126 or 127": (_STORIES, "what cannot be started or read is not started again"),
    "`SyntaxError` or": (_RESTARTS, "test_a_syntax_error_is_not_tried_again"),
    "argparse's exit code 2": (_STORIES, "wrong arguments are not started again"),
    "the same exit code and last output": (_RESTARTS, "test_the_same_end_twice_is_the_last_one"),
    "three epochs in a row": (_STORIES, "three epochs that get no further are enough"),
    "a program fails and no restart": (
        _RESTARTS,
        "test_what_fails_when_all_restarts_are_used_up_gives_the_exit_code",
    ),
    "some programs end with 0": (
        _STORIES,
        "a program that had ended well starts again with the others",
    ),
    "all programs end with 0": (_STORIES, "programs that have all ended well are not started"),
    "`fail`: a node is lost": (_STORIES, "a lost node ends the run although restarts are left"),
    "`fail`: a node's own failure": (_STORIES, "a failure of the node itself is none of the"),
    "`replace`: a node is lost, and a standby": (
        _KILLED,
        "test_a_standby_takes_the_place_of_a_killed_node",
    ),
    "`replace`: a node is lost, and no standby": (
        _KILLED,
        "test_without_a_standby_the_worker_run_is_submitted_again",
    ),
    "`replace`: its worker run does not come": (
        _LOST,
        "test_a_replacement_that_never_comes_ends_the_run_with_what_is_known",
    ),
    "`replace`: a node is lost, and all": (
        _KILLED,
        "test_replacements_end_and_the_last_line_says_so",
    ),
    "`replace`: a node leaves: SIGTERM": (
        _KILLED,
        "test_a_node_that_is_drained_is_replaced_before_it_goes",
    ),
    "`replace`: a node's own failure": (
        _LOST,
        "test_a_node_whose_device_fails_twice_is_replaced",
    ),
    "`replace`: a standby is lost |": (
        _KILLED,
        "test_a_standby_that_is_killed_disturbs_nobody_and_comes_again",
    ),
    "`replace`: a standby is lost while": (_LOST, "test_a_standby_dies_while_it_is_promoted"),
    "`shrink`: a node is lost": (
        _KILLED,
        "test_a_run_that_may_shrink_goes_on_with_those_that_are_left",
    ),
    "`shrink`: fewer than MIN": (_LOST, "test_it_does_not_shrink_below_the_least"),
    "a node is lost and programs fail": (
        _LOST,
        "test_a_loss_uses_no_restart_also_where_programs_failed_of_it",
    ),
    "the node of the launcher's own": (_KILLED, "test_the_launchers_own_node_ends_the_run"),
    "a silent node comes back": (
        _SILENT,
        "test_a_host_that_comes_back_before_its_lease_is_over_is_not_missed",
    ),
    "a lost node comes back": (
        _SILENT,
        "test_a_lost_host_that_comes_back_before_its_fence_ends_its_program_at_once",
    ),
    "a node cannot reach its registry": (
        _SILENT,
        "test_a_node_that_cannot_reach_its_registry_is_gone_before_its_replacement_starts",
    ),
    "the registry is killed": (
        _RESTARTS,
        "test_a_registry_that_is_killed_while_a_failure_is_answered_goes_on",
    ),
    "the launcher is killed while": (
        _RESTARTS,
        "test_a_launcher_that_is_killed_in_a_second_epoch_takes_the_run_with_it",
    ),
    "the launcher is killed between": (
        _RESTARTS,
        "test_a_launcher_that_is_killed_in_a_pause_is_resumed_by_the_same_command",
    ),
    "`rdzv restart RUN`": (_RESTARTS, "test_all_programs_start_again_by_hand"),
    "`rdzv cancel RUN`": (_STORIES, "a cancel ends a run that would start again"),
}


def rows() -> list[str]:
    """The rows of the table, without their first bar."""
    page = (ROOT / "docs" / "elastic.md").read_text()
    table = page.partition(f"{_HEAD}\n| --- | --- |\n")[2].partition("\n\n")[0]
    return [row.removeprefix("| ") for row in table.splitlines()]


def test_each_row_is_shown_once() -> None:
    found = [[row for row in rows() if row.startswith(key)] for key in SHOWN]
    assert [len(one) for one in found] == [1] * len(SHOWN)
    assert sorted(one[0] for one in found) == sorted(rows())


@pytest.mark.parametrize("key", [*SHOWN])
def test_the_test_of_a_row_exists(key: str) -> None:
    file, name = SHOWN[key]
    text = (ROOT / "tests" / file).read_text()
    assert f"def {name}(" in text or f"\n{name}" in text
