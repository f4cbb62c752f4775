"""`--set` of a variable that the spec and the scheduler do not have: refused, or told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.options import with_sources
from launcher.plan.plan import Plan, Site, Spec
from launcher.plan.set_variables import check_set, set_twice, variables_to_set
from launcher.schedulers.catalog import known_schedulers, scheduler_entry
from launcher.schedulers.shipped import specs_folder
from rendezvous.wire.errors import UsageError
from tests.launcher.command import plan_of, rdzv
from tests.support.bed import settings_of

FLAG, VARIABLE = "--set", "RDZV_SET"


def planned(source: str, template: str, *given: str, by: str = FLAG) -> Plan:
    made = plan_of("train.py", site=Site(Spec(source, template)), nnodes="2", set=list(given))
    return replace(made, settings=with_sources(made.settings, {"set": by}))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("SBATC=--x", "did you mean SBATCH?"),
        ("IMAGES=x", "did you mean IMAGE?"),
        ("QQ=x", "it has IMAGE, SBATCH"),
    ],
)
def test_a_variable_that_nothing_reads_is_refused_with_the_nearest_one(
    given: str, hint: str
) -> None:
    made = planned("job.sh", "run <<IMAGE>> <<NAME>>", "SBATCH=a", given)
    with pytest.raises(UsageError) as caught:
        check_set(made, {"SBATCH"}, "/here/slurm.toml")
    name = given.partition("=")[0]
    assert caught.value.message == (
        f"--set {name}: neither job.sh nor the scheduler 'slurm.toml' has a variable of that name"
    )
    assert caught.value.hint == hint


def test_where_there_is_none_the_scheduler_is_asked_for() -> None:
    with pytest.raises(UsageError) as caught:
        check_set(planned("worker.yaml", "a: <<NAME>>", "IMAGE=a"), (), "local")
    assert caught.value.hint.startswith("it has none: name the scheduler")


def test_what_a_comment_of_a_yaml_spec_names_is_not_read() -> None:
    with pytest.raises(UsageError, match="--set GPUS: neither"):
        check_set(planned("worker.yaml", "a: <<IMAGE>> # <<GPUS>>", "GPUS=8"), (), "local")
    assert check_set(planned("job.sbatch", "#SBATCH -G <<GPUS>>", "GPUS=8"), (), "slurm") == []


def test_of_all_launches_of_a_person_what_is_like_none_is_told_alone() -> None:
    made = planned("worker.yaml", "a: <<NAME>>", "IMAGE=secret", by=VARIABLE)
    (note,) = check_set(made, (), "local")
    assert note == (
        "RDZV_SET IMAGE: neither worker.yaml nor the scheduler 'local' has a variable of that "
        "name, so it changes nothing"
    )
    with pytest.raises(UsageError, match="RDZV_SET IMAG: neither"):
        check_set(planned("a.yaml", "a: <<IMAGE>>", "IMAG=x", by=VARIABLE), (), "local")


def test_of_several_values_the_last_one_counts_and_that_is_told() -> None:
    assert set_twice(["A=1", "B=1", "A=2", "B=1", "A=3"]) == [
        "--set A is given 3 times: the last one counts alone"
    ]


@pytest.mark.parametrize("name", list(known_schedulers()))
def test_every_scheduler_takes_its_own_variables_and_no_misspelt_one(name: str) -> None:
    entry = scheduler_entry(name)
    spec = Spec(entry.spec, (specs_folder() / entry.spec).read_text(encoding="utf-8"))
    needed = {key: value for key, value in settings_of(name).items() if key != "PROJECT"}
    made = planned(spec.source, spec.template, *(f"{key}={value}" for key, value in needed.items()))
    assert check_set(made, entry.variables, name) == []
    wrong = planned(spec.source, spec.template, "QQ=x")
    with pytest.raises(UsageError, match="--set QQ: neither"):
        check_set(wrong, entry.variables, name)


@pytest.mark.parametrize("own", ["ID", "SPEC", "GRACE", "LINES"])
def test_what_rdzv_sets_for_the_commands_is_no_variable(own: str) -> None:
    assert own not in scheduler_entry("ssh").variables | scheduler_entry("docker").variables


def test_the_command_line_refuses_it_at_once(tmp_path: Path) -> None:
    words = "launch --scheduler slurm --nnodes 2 --set SBATC=--x --dry-run full"
    found = rdzv(*words.split(), "--", "train.py", state=tmp_path)
    assert found.exit_code == 64
    assert "did you mean SBATCH?" in found.output
    checked = rdzv("schedulers", "check", "slurm", "--set", "SBATC=--x", state=tmp_path)
    assert checked.exit_code == 64
    assert "did you mean SBATCH?" in checked.output


@pytest.mark.parametrize(
    ("template", "of_scheduler", "needs", "expected"),
    [
        ("run <<IMAGE>> <<NAME>> <<QUEUE>>", {"SBATCH"}, (), (["IMAGE", "QUEUE"], ["SBATCH"])),
        ("run <<NAME>>", {"IMAGE", "ENGINE"}, ("IMAGE",), (["IMAGE"], ["ENGINE"])),
        ("ssh <<HOST>>", {"HOST", "AVOID"}, ("HOST",), ([], [])),
    ],
)
def test_what_only_set_gives_is_told_apart_by_whether_it_is_needed(
    template: str,
    of_scheduler: set[str],
    needs: tuple[str, ...],
    expected: tuple[list[str], list[str]],
) -> None:
    assert variables_to_set(Spec("job.sh", template), of_scheduler, needs) == expected
