"""What is rdzv's and what is COMMAND's, on command lines as they are typed, by value."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from launcher.cli import main
from launcher.cli.given import (
    KnownFlag,
    Option,
    _shown,
    leading,
    misplaced,
    read_line,
    spelled_out,
    written,
)
from launcher.cli.help import known_flags
from rendezvous.wire.errors import ExitCode
from tests.launcher.command import rdzv
from tests.support.rows import rows
from worker.contracts.advice import Line

pytestmark = pytest.mark.usefixtures("bare")


def context(name: str) -> click.Context:
    """Of a command of `rdzv`."""
    above = click.Context(main, **main.context_settings)
    return click.Context(main.commands[name], parent=above)


LAUNCH = context("launch")


def refused(line: str) -> tuple[str, list[str]]:
    """The message and the hint's lines."""
    done = rdzv("launch", *shlex.split(line))
    assert (done.exit_code, done.stdout) == (int(ExitCode.USAGE), "")
    message, *hint = done.stderr.splitlines()
    return message, [one.strip() for one in hint]


BEHIND = """
N2 ddp.py --dry-run | N2 --dry-run -- ddp.py | N2 -- ddp.py --dry-run
N2 t.py --lr 1 --nproc_per_node 4 -v | N2 --nproc_per_node 4 -- t.py --lr 1 -v | N2 -- \
t.py --lr 1 --nproc_per_node 4 -v
--nnodes=2 t.py --file a.yml 'b c' | --nnodes=2 --file a.yml -- t.py 'b c' | --nnodes=2 -- \
t.py --file a.yml 'b c'
N2 t.py --nnodes 4 --no-local-node | --nnodes 4 --no-local-node -- t.py | N2 -- \
t.py --nnodes 4 --no-local-node
--set A=1 t.py --set B=2 -- --ui | --set A=1 N2 --set B=2 -- t.py -- --ui | --set A=1 N2 -- \
t.py --set B=2 -- --ui
--framework env run x --grace=3 | --framework env N2 --grace=3 -- run x | --framework env N2 -- \
run x --grace=3
t.py --help | N2 --help -- t.py | N2 -- t.py --help
""".replace("N2", "--nnodes 2")


@pytest.mark.parametrize(("line", "own", "theirs"), rows(BEHIND))
def test_an_option_of_rdzv_behind_a_command_is_refused_with_both_lines(
    line: str, own: str, theirs: str
) -> None:
    message, hint = refused(line)
    assert "behind COMMAND" in message
    program = shlex.split(theirs.partition("-- ")[2])[0]
    assert hint == [f"for rdzv: rdzv launch {own}", f"for {program}: rdzv launch {theirs}"]


def test_a_line_that_would_be_refused_is_not_suggested() -> None:
    _, hint = refused("torchrun --nnodes 2 --tee 3 t.py --dry-run")
    assert hint == ["for rdzv: rdzv launch --nnodes 2 --dry-run -- torchrun --tee 3 t.py"]


@pytest.mark.parametrize(
    "line",
    [
        *("--nnodes 2 -- t.py --dry-run --nnodes 4", "--nnodes 2 t.py -- --dry-run"),
        *("--nnodes 2 t.py --lr 1 --role x --parent 3", "--nnodes 2 t.py --dry_runs -n 2 dry-run"),
        *("--nnodes 2 t.py nnodes --seed 3", "--nnodes 2 accelerate launch --debug t.py"),
    ],
)
def test_what_is_commands_alone_is_never_refused(line: str) -> None:
    done = rdzv("launch", "--dry-run", *shlex.split(line))
    assert done.exit_code == 0, done.stderr


def test_a_worker_refuses_it_as_well() -> None:
    done = rdzv("worker", "t.py", "--nnodes", "2")
    assert "behind COMMAND ('t.py')" in done.stderr
    assert "for rdzv: rdzv worker --nnodes 2 -- t.py" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "launch --dry-run --nnodes 2 --nproc_per_node 2 --node_rank 0 --rdzv_id x --master_port=1",
        "launch --dry_run --nnodes=2 --max_restarts 3 --rdzv_backend c10d --log_dir /x",
        "launch --dry-run --no_local_node --scheduler manual --nnodes 2 --submit_retries 3",
    ],
)
def test_options_may_be_written_with_underscores_as_for_torchrun(words: str) -> None:
    done = rdzv(*words.split(), "--", "t.py", "--keep_this")
    assert (done.exit_code, "t.py --keep_this" in done.stdout) == (0, True), done.stderr


def test_every_option_of_every_command_may() -> None:
    for name in ("launch", "worker", "bench", "serve", "logs", "status", "ui", "prune"):
        flags = known_flags(context(name))
        for flag in (one for one in flags if "-" in one.lstrip("-")):
            done = rdzv(name, f"--{flag[2:].replace('-', '_')}=", "--help")
            assert "No such option" not in done.stderr, flag
    assert written("--a_b=c_d") == "--a-b=c_d"


HINTS = """
--port 7 -- tune run r --config 'a b' | --port 7 N2 --framework env -- tune run r --config 'a b'
-- tune run --nnodes 1 --nproc_per_node 2 r -x | N2 --nproc-per-node 2 --framework env -- \
tune run r -x
--nproc_per_node 4 -- tune run --nproc=2 r | N2 --nproc-per-node 2 --framework env -- tune run r
--set A=b -- ./run.sh -x | --set A=b N2 --framework command -- ./run.sh -x
--ui -- torchrun --nnodes 4 t.py --lr 1 | --ui --nnodes 4 -- torchrun t.py --lr 1
--pass-env A -- K=1 t.py --lr 1 | --pass-env A N2 --pass-env K -- t.py --lr 1
--ui -- mpirun -np 2 ./x | --ui N2 --framework openmpi -- mpirun -np 2 ./x
--nnodes 2 --warm on -- python -u t.py -x | --nnodes 2 --warm on -- t.py -x
--ui -- t.py --nnodes 3 -x | --ui --nnodes 3 -- t.py -x
--nnodes 3 -- python -m deepspeed t.py --lr 1 | --nnodes 3 -- deepspeed t.py --lr 1
--nnodes 3 --ui | --nnodes 3 --ui -- train.py --epochs 3
--ui | --ui N2 -- train.py --epochs 3
""".replace("N2", "--nnodes 2")


@pytest.mark.parametrize(("line", "works"), rows(HINTS))
def test_a_suggested_line_repeats_what_was_given(line: str, works: str) -> None:
    _, hint = refused(line)
    assert hint[0].partition("rdzv launch ")[2].startswith(works)


def test_a_line_too_long_to_copy_shows_no_more_than_everyone_may_see() -> None:
    _, hint = refused(f"--nnodes 2 -- ./run.sh {'x' * 4000}")
    assert hint[0].endswith(": rdzv launch --framework command -- ./run.sh ...")


def test_a_line_of_advice_for_everyone_hides_words_that_may_be_secret() -> None:
    line = Line(("t.py", "--key", "secret"), ("--ui",), before="K=... ")
    assert line.text() == "K=... rdzv launch --ui -- t.py ..."
    assert Line(before="srun ").text() == "srun rdzv launch ..."


def test_what_is_behind_the_second_dashes_is_commands() -> None:
    words = ["--nnodes", "2", "t.py", "--ui", "--", "--ui"]
    given = read_line("rdzv launch", words, words[2:], known_flags(LAUNCH))
    found, kept = misplaced(given, known_flags(LAUNCH))
    assert ([one.words for one in found], kept) == ([("--ui",)], ["t.py", "--", "--ui"])


def test_an_option_of_rdzv_with_which_a_command_behind_the_dashes_begins_is_refused() -> None:
    message, hint = refused("--nnodes 2 -- --framework env t.py --l 1")
    assert message.startswith("rdzv: --framework is behind '--', where COMMAND begins")
    assert hint[0].endswith(": rdzv launch --nnodes 2 --framework env -- t.py --l 1")


@pytest.mark.parametrize(
    ("words", "found", "rest"),
    [
        ("-- --max-restarts 3 t.py", ["--max-restarts 3"], "t.py"),
        ("-- t.py --ui", [], "t.py --ui"),
        ("-- -m pkg", [], "-m pkg"),
        ("t.py", [], "t.py"),
        ("-- --ui --nnodes=2", ["--ui", "--nnodes=2"], ""),
    ],
)
def test_what_a_command_begins_with(words: str, found: list[str], rest: str) -> None:
    typed = words.split()
    command = typed[typed[0] == "--" :]
    options, left = leading(
        read_line("rdzv launch", typed, command, known_flags(LAUNCH)), known_flags(LAUNCH)
    )
    assert ([" ".join(one.words) for one in options], " ".join(left)) == (found, rest)


def test_a_program_on_path_is_not_said_not_to_exist(tmp_path: Path) -> None:
    tool = tmp_path / "bin/mytrain"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    done = rdzv(
        *("launch", "--nnodes", "2", "--", "mytrain", "--lr", "1"), env={"PATH": f"{tool.parent}"}
    )
    assert done.exit_code == ExitCode.USAGE
    assert "'mytrain' is not a Python script, but torchrun starts only" in done.stderr
    node, rank = (line.strip() for line in done.stderr.splitlines()[1:])
    assert node.endswith("_PORT: rdzv launch --nnodes 2 --framework command -- mytrain --lr 1")
    assert rank.endswith("_SIZE: rdzv launch --nnodes 2 --framework env -- mytrain --lr 1")


def test_a_line_of_advice_is_not_run_into_by_what_to_know_for_it() -> None:
    _, hint = refused("--nnodes 2 -- tune run full")
    assert hint[0] == "use rdzv launch --nnodes 2 --framework env -- tune run full"
    assert hint[1].startswith("without torchrun's flags")


FULL = {"--dry-run": KnownFlag("--dry-run", True, values=("short", "full", "off"))}
FULL |= {"--nnodes": KnownFlag("--nnodes", True), "--json": KnownFlag("--json", False)}


@pytest.mark.parametrize(
    ("line", "spelled"),
    [
        ("--dry-run --nnodes 4 -- t.py", "--dry-run=short --nnodes 4 -- t.py"),
        ("--nnodes 4 --dry-run t.py", "--nnodes 4 --dry-run=short t.py"),
        ("--dry-run full t.py --dry-run", "--dry-run=full t.py --dry-run"),
        ("--json --dry_run off -- full", "--json --dry_run=off -- full"),
        ("--dry-run=full --nnodes --dry-run", "--dry-run=full --nnodes --dry-run"),
        ("--nnodes 4 --dry-run -- full", "--nnodes 4 --dry-run=short -- full"),
        ("--frob --dry-run", "--frob --dry-run=short"),
        ("--dry-run", "--dry-run=short"),
    ],
)
def test_a_value_that_may_be_left_out_is_spelled_out(line: str, spelled: str) -> None:
    assert spelled_out(line.split(), FULL) == spelled.split()


@pytest.mark.parametrize("words", ["--dry-run full", "--dry-run=full", "--dry_run full"])
def test_a_dry_run_is_short_or_full(words: str) -> None:
    short = rdzv(*["launch", "--nnodes", "4", "--dry-run", "t.py"]).stdout
    full = rdzv(*f"launch --nnodes 4 {words} t.py".split()).stdout
    assert short.startswith("Run 'run-")
    assert full.startswith("# slot 0, by local: ")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--lr 3", "--lr 3"),
        ("--env=MODE=fast", "--env=MODE=fast"),
        ("--env=HF_TOKEN=hf_1", "--env HF_TOKEN"),
        ("--env HF_TOKEN=hf_1", "--env HF_TOKEN"),
    ],
)
def test_the_value_of_a_secret_is_not_shown(words: str, shown: str) -> None:
    name = words.partition("=")[0].partition(" ")[0]
    assert _shown(Option(name, tuple(words.split()))) == tuple(shown.split())
