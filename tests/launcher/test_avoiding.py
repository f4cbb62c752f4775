"""`--avoid`, and host lists with more hosts than nodes: what is planned, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.plan.avoiding import Places, avoid_notes
from launcher.plan.named_hosts import on_named_hosts
from launcher.plan.plan import ANYWHERE, Where
from launcher.schedulers.catalog import scheduler_entry
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from tests.launcher.command import plan_of, rdzv

SLURM = ("launch", "--dry-run=full", "--scheduler", "slurm", "--no-local-node", "--nnodes", "2")
LISTED = ("launch", "--dry-run=full", "--no-local-node", "--hostlist", "n1,n2,n3")


def test_slurm_is_told_what_to_exclude_and_nothing_where_nothing_is() -> None:
    shown = rdzv(*SLURM, "--avoid", "gpu[01-02],x", "--avoid", "y", "--", "t.py")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("\n#SBATCH --exclude=gpu01,gpu02,x,y\n") == 1
    assert "--exclude=" not in rdzv(*SLURM, "--", "t.py").stdout


def test_hosts_of_a_list_are_left_out() -> None:
    given = {"hostlist": ["n1,u@n2,n3.x"], "avoid": ["n[2-3]"], "local_node": False}
    settings, hosts, more, notes = on_named_hosts(LaunchSettings.model_validate(given))
    assert (settings.nnodes, settings.avoid, hosts, more) == ("1", ["n2", "n3"], ("n1",), ())
    assert notes == ["--avoid leaves n1 of the hosts, so --nnodes is 1"]
    given |= {"nnodes": "1", "avoid": ["n2", "n2,n3"]}
    assert on_named_hosts(LaunchSettings.model_validate(given))[3] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*LISTED, "--avoid", "n2", "--nnodes", "3"), "the hosts, which are 2: n1, n3"),
        ((*LISTED, "--avoid", "n[1-3]"), "--avoid leaves none of the hosts"),
        ((*LISTED, "--avoid", "n1,,n2"), "--avoid n1,,n2: there is no host before a comma"),
        ((*LISTED, "--avoid", "gke-n1,123"), "--avoid gke-n1,123: '123' is a number, not"),
        ((*LISTED, "--avoid", "n1:8"), "--avoid n1:8: n1 is given with a user or"),
        ((*LISTED, "--avoid", "u@n1"), "--avoid u@n1: n1 is given with a user or"),
        (("launch", "--nnodes", "2", "--avoid", "n2"), "--avoid n2 has no effect: "),
        (("launch", "--nnodes", "2", "--avoid", "n2"), "worker.yaml has no <<AVOID>>"),
    ],
)
def test_what_cannot_be_avoided_is_refused(words: tuple[str, ...], said: str) -> None:
    shown = rdzv(*words, "--", "t.py")
    assert shown.exit_code == 64
    assert said in shown.stderr


def test_a_symmetric_start_has_its_nodes_already() -> None:
    made = plan_of("t.py", nnodes="2", avoid=["n2"])
    with pytest.raises(UsageError, match="--avoid n2 has no effect: the nodes are there already"):
        avoid_notes(replace(made, site=replace(made.site, avoids=True)), symmetric=True)


def test_one_that_is_set_for_all_launches_is_told_of_where_nothing_heeds_it() -> None:
    words = ("launch", "--dry-run", "--nnodes", "2", "--", "t.py")
    shown = rdzv(*words, env={"RDZV_AVOID": "n2"})
    assert shown.exit_code == 0
    assert "RDZV_AVOID has no effect" in shown.stderr


def test_a_spec_of_a_persons_own_needs_a_place_for_it(tmp_path: Path) -> None:
    spec = tmp_path / "own.sbatch"
    spec.write_text("#!/bin/sh\nexport RDZV_JOIN=<<RDZV_JOIN>>\nexec rdzv worker -- <<COMMAND>>\n")
    shown = rdzv(*SLURM, "--worker-spec", str(spec), "--avoid", "n2", "--", "t.py")
    assert shown.exit_code == 64
    assert f"{spec} has no <<AVOID>>" in shown.stderr


@pytest.mark.parametrize("loss", ["replace", "shrink"])
def test_a_list_may_name_more_hosts_for_lost_nodes(loss: str) -> None:
    given = {"hostlist": ["n1:8,n2:8,n3:8,n4:4"], "local_node": False, "on_node_loss": loss}
    given |= {"nnodes": "1:2", "standby": 1}
    settings, hosts, more, notes = on_named_hosts(LaunchSettings.model_validate(given))
    assert (hosts, more, notes) == (("n1", "n2", "n3"), ("n4",), [])
    assert settings.nproc_per_node == "8"  # a node keeps the number of its slot
    with pytest.raises(UsageError, match="does not match the hosts, which are 4"):
        on_named_hosts(LaunchSettings.model_validate(given | {"on_node_loss": "fail"} | NO_STANDBY))


NO_STANDBY = {"standby": 0}


def test_a_scheduler_that_reads_no_host_chooses_among_the_listed_ones_itself() -> None:
    """Slurm's spec has no <<HOST>>: the list says how many nodes there are, and nothing more."""
    made = plan_of("t.py", nnodes="2", avoid=["n2"])
    site = replace(made.site, hosts=("n1", "n3"), more_hosts=("n4",), avoids=True)
    places = Places.of(replace(made, site=site))
    assert (places.hosts, places.more) == ((), ())
    assert places.where(["n1"], (), ["n1"]) == Where(avoid=("n2", "n1"))
    places = Places.of(replace(made, site=replace(site, takes_host=True)))
    assert places.where(["n1"], ("n3",), ["n1"]) == Where("n4")
    with pytest.raises(UsageError, match="has no effect"):
        avoid_notes(replace(made, site=replace(site, avoids=False)), symmetric=False)


def test_which_schedulers_read_a_host_and_tell_one() -> None:
    found = {name: scheduler_entry(name) for name in ("ssh", "slurm", "kubernetes", "docker")}
    assert [name for name, entry in found.items() if "HOST" in entry.variables] == ["ssh"]
    assert [name for name, entry in found.items() if entry.tells_host] == ["slurm", "kubernetes"]


# --- where a worker run starts --------------------------------------------------------------------

TOLD = Places(avoid=("bad",), avoids=True)
NAMED = Places(("n1", "n2"), ("n3",))


@pytest.mark.parametrize(
    ("places", "failed", "taken", "elsewhere", "where"),
    [
        (TOLD, [], (), [], ANYWHERE),
        (TOLD, ["a", "b"], (), [], Where(avoid=("bad", "a", "b"))),
        (Places(), ["a"], (), [], ANYWHERE),
        (NAMED, [], ("n2",), [], ANYWHERE),
        (NAMED, ["n1"], ("n2",), ["n1"], Where("n3")),
        (NAMED, ["n1", "n3"], ("n2",), ["n1", "n3"], Where("n1")),
        (NAMED, ["n3", "n1"], ("n2",), ["n3", "n1"], Where("n3")),
        (NAMED, ["n1"], ("n2", "n3"), ["n1"], Where("n1")),
        (NAMED, ["n2"], ("n3",), ["n1", "n2"], Where("n1")),  # where another slot's has failed
        (NAMED, ["n1"], ("n1", "n2", "n3"), ["n1"], Where("n1")),  # nobody knows a better one
    ],
)
def test_where_the_next_worker_run_of_a_slot_starts(
    places: Places, failed: list[str], taken: tuple[str, ...], elsewhere: list[str], where: Where
) -> None:
    assert places.where(failed, taken, elsewhere) == where
