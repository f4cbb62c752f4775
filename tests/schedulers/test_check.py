"""`rdzv schedulers` and `rdzv schedulers check`: what is told, step by step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from launcher.cli import main
from launcher.schedulers.catalog import known_schedulers
from launcher.schedulers.profile import ProfileScheduler
from rendezvous.wire.errors import ExitCode
from tests.schedulers.behaving import REFUSAL
from tests.schedulers.test_profile import ONCE, Changes, changed, written
from tests.support.bed import OWN, SHIPPED, Bed

BATCH = str(OWN["batch"])
QUEUE = ("--set", "QUEUE=long")
CHECK = ("schedulers", "check")
LAUNCH = ("launch", "--nnodes", "2", "--dry-run=full")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may have been made is looked for once, and at once."""
    monkeypatch.setattr(ProfileScheduler, "looks", (0.0,))


def rdzv(bed: Bed, *words: str) -> Result:
    environ: dict[str, str | None] = {**bed.environ(), "RDZV_TOKEN": None, "RDZV_NNODES": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("launcher.schedulers.profile.CommandRunner", bed.runner)
        return CliRunner().invoke(main, words, env=environ)


def check(bed: Bed, *words: str) -> Result:
    return rdzv(bed, *CHECK, *words, "--state-dir", str(bed.folder / "runs"))


def steps(result: Result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines()]


def test_every_scheduler_is_listed_with_its_secret_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\n")
    (tmp_path / "ssh").chmod(0o755)
    result = CliRunner().invoke(main, ["schedulers"], env={"PATH": str(tmp_path)})
    lines = result.stdout.splitlines()
    listed = dict(zip(lines[::2], lines[1::2], strict=True))
    for name, entry in known_schedulers().items():
        said = listed[f"{name:12} {entry.summary}"]
        assert said.startswith(f"{'':12} join string: {entry.secret}")
        gone = ", ".join(command for command in entry.commands if command != "ssh")
        assert said.endswith(f"(not here: {gone})") is bool(gone)
    assert {*SHIPPED, "local", "manual", "external"} <= set(known_schedulers())


# What waits is said to run: then its logs can be read.
RUNS = ('queued = ["WAITING"]\nrunning = ["ACTIVE"]', 'running = ["WAITING"]')


@pytest.mark.parametrize(
    ("change", "state", "logs"), [([], "queued", []), ([RUNS], "running", ["logs"])]
)
def test_a_scheduler_that_works_is_proven_step_by_step(
    tmp_path: Path, change: list[Changes], state: str, logs: list[str]
) -> None:
    bed = Bed("batch", tmp_path)
    path = written(tmp_path, changed(*change))
    result = check(bed, "--scheduler-profile", str(path), *QUEUE)
    assert result.exit_code == 0, result.output
    assert steps(result) == ["prepare", "submit", "find", "see", *logs, "cancel", "gone", "the"]
    assert f"see      it is {state}: because (" in result.stdout
    assert "gone     it is ended: DONE: because (" in result.stdout
    (run,) = bed.made()
    assert run["state"] == "ended"
    # Given no registry it would end by itself.
    assert "--join-timeout 60" in run["spec"]
    assert "export RDZV_JOIN=" in run["spec"]
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("name", ["local", "manual", "external"])
def test_the_schedulers_that_are_code_can_be_checked_too(tmp_path: Path, name: str) -> None:
    result = check(Bed(name, tmp_path), name)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"the scheduler '{name}' works\n")
    assert list((tmp_path / "runs").iterdir()) == []


FIND = (r"'^(\d+) <<NAME>> '", r"'^\d+ (<<NAME>>) '")
KILL = ('["batch", "kill",', '["false", "kill",')


@pytest.mark.parametrize(
    ("faults", "change", "step", "words", "left"),
    [
        ("refuses", ONCE, "submit", REFUSAL, ""),
        ("nothing", ONCE, "submit", "ended with 0, but gave no id of a worker run", ""),
        (
            "lost down",
            ONCE,
            "submit",
            "'batch' ended",
            "ends by itself after 60 s: ",
        ),
        ("", FIND, "find", "its id is 7001, but [find] returned the id rdzv-", ""),
        ("no-word", ONCE, "see", "after 0 s it is not submitted or queued or running or", ""),
        ("", KILL, "cancel", "'false' ended", "; try: false kill --grace=0 7001\n"),
    ],
)
def test_the_step_that_fails_is_named_with_the_schedulers_words_and_what_may_be_left(
    tmp_path: Path, faults: str, change: Changes, step: str, words: str, left: str
) -> None:
    bed = Bed("batch", tmp_path, set(faults.split()))
    path = written(tmp_path, changed(change))
    result = check(bed, "--scheduler-profile", str(path), *QUEUE, "--timeout", "0")
    assert result.exit_code == 83
    order = ["prepare", "submit", "find", "see", "cancel"]
    done = order[: order.index(step)]
    assert steps(result)[: len(done) + 1] == done + ["the"] * bool(left)
    assert f"rdzv: step '{step}' of scheduler '{path.stem}' failed: " in result.stderr
    assert words in result.stderr
    if left:
        assert f"the worker run {bed.made()[0]['name']} may still exist; it ends" in result.stdout
        assert left in result.stdout
    else:
        assert {run["state"] for run in bed.made()} <= {"ended"}


OWN_ONE = ("--scheduler-profile", BATCH)
TWO = f"--scheduler slurm and --scheduler-profile {BATCH} name two schedulers"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (CHECK, "'rdzv schedulers check' needs one scheduler"),
        ((*CHECK, "slurm", *OWN_ONE), "'rdzv schedulers check' needs one scheduler"),
        ((*CHECK, "sge"), "there is no scheduler 'sge'"),
        ((*CHECK, *OWN_ONE), "the scheduler 'batch' needs QUEUE"),
        ((*CHECK, *OWN_ONE, "--worker-spec", "no.sh"), "the worker spec no.sh cannot"),
        ((*LAUNCH, "--scheduler", "slurm", *OWN_ONE, "--", "train.py"), TWO),
    ],
)
def test_what_is_no_one_scheduler_or_lacks_something_is_a_usage_error(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    result = rdzv(Bed("batch", tmp_path), *words)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr


def test_a_dry_run_shows_spec_and_command_of_a_profile_and_touches_nothing(tmp_path: Path) -> None:
    bed, state = Bed("batch", tmp_path), str(tmp_path / "runs")
    words = ["--scheduler-profile", os.path.relpath(BATCH), *QUEUE, "--state-dir", state]
    result = rdzv(bed, *LAUNCH, *words, "--", "train.py")
    assert result.exit_code == 0, result.output
    assert "# batch submit --queue=long --name=rdzv-to-be-made-1-1 " in result.stdout
    assert "export RDZV_JOIN=RDZV_JOIN-hidden" in result.stdout
    assert not (tmp_path / "runs").exists()
    assert bed.calls() == []
