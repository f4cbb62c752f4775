"""Worker specs that start no `rdzv worker`: found in each form, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.plan.plan import Spec
from launcher.plan.spec_command import without_rdzv
from launcher.prepare.preparation import prepare
from launcher.schedulers.catalog import known_schedulers, scheduler_entry
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from rendezvous.talk.join_string import group_token_text

OF_ARGV = "docker/worker.env"
"""Variables alone: the profile's own command starts rdzv."""
SHIPPED = sorted({scheduler_entry(name).spec for name in known_schedulers()} - {OF_ARGV})
"""Of each scheduler, the spec of its worker runs."""
INSTEAD = "write 'rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>' there"


def shipped(name: str) -> str:
    return (specs_folder() / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_spec_starts_rdzv(name: str) -> None:
    assert without_rdzv(Spec(name, shipped(name))) == ""


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("own", ["torchrun", "accelerate launch", "deepspeed"])
def test_the_same_with_a_teams_own_command_is_told(name: str, own: str) -> None:
    lines = []
    for line in shipped(name).splitlines():
        words = line.replace("argv: [rdzv, worker, <<WORKER_OPTIONS>>", "argv: [rdzv worker")
        words = words.replace("rdzv worker", own)
        lines.append(words.replace("<<WORKER_OPTIONS>>", ""))
    at = next(n for n, line in enumerate(lines, 1) if own in line and line[:1] != "#")
    said = without_rdzv(Spec(name, "\n".join(lines)))
    assert said.startswith(f"{name}:{at} starts '{own}', and nothing")
    assert said.endswith(INSTEAD)


VESSL = """name: <<NAME>>
# rdzv worker <<WORKER_OPTIONS>>: what it was once
image: team/image
env: {RDZV_ENDPOINT: head}
run:
  - workdir: /code   # torchrun is below
    command: |
      pip install -r requirements.txt
      torchrun --nnodes=$NUM_NODES --rdzv-backend=c10d train.py
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VESSL, "run.yaml:9 starts 'torchrun', and nothing in that spec starts 'rdzv worker'"),
        ("run: python3.11 train.py\n", "run.yaml:1 starts 'python3.11', and nothing"),
        ("command: [accelerate, launch, train.py]", "run.yaml:1 starts 'accelerate launch', and"),
        ('{"argv": ["tune", "run", "x"]}', "run.yaml:1 starts 'tune run', and"),
        ("command:\n  - rdzv\n  - launch\n  - --\n", "run.yaml:2 starts 'rdzv launch', and"),
        (
            "name: x\nrun: sh /code/start-all.sh\n",
            "nothing in run.yaml:2 starts 'rdzv worker': unl",
        ),
        ("name: x\n", "nothing in run.yaml starts 'rdzv worker': unless a script"),
    ],
)
def test_what_stands_in_its_place_is_named_with_its_line(text: str, said: str) -> None:
    found = without_rdzv(Spec("run.yaml", text))
    assert found.startswith(said)
    assert found.endswith(INSTEAD)


@pytest.mark.parametrize(
    "text",
    [
        "run: /opt/rdzv/bin/rdzv worker -- train.py",
        "run: python -m rdzv worker -- train.py",
        "command: [rdzv, worker, --, train.py]",
        'command:\n  - "rdzv"\n  - "worker"\n',
        '{"argv": ["rdzv", "worker", "--", "train.py"]}',
        "run: $RDZV worker -- torchrun",
        'run: "${MY_RDZV}" worker',
        "run: sh specs/vessl/start.sh worker",
        "run: my-wrapper <<WORKER_OPTIONS>> -- <<COMMAND>>",
    ],
)
def test_rdzv_is_known_however_it_is_written(text: str) -> None:
    assert without_rdzv(Spec("run.yaml", text)) == ""


@pytest.mark.parametrize(
    ("scheduler", "token", "warns"),
    [
        ("manual", None, True),
        ("slurm", None, True),
        ("docker", None, False),  # its command starts rdzv, and the spec is variables alone
        ("manual", group_token_text(bytes(32)), False),  # nothing is submitted
    ],
)
def test_a_launch_and_its_dry_run_warn(
    tmp_path: Path, scheduler: str, token: str | None, warns: bool
) -> None:
    spec = tmp_path / "team.sh"
    spec.write_text("export RDZV_JOIN=<<RDZV_JOIN>>\ntorchrun train.py\n")
    settings = LaunchSettings(
        scheduler=scheduler, nnodes="2", worker_spec=spec, framework="command", rdzv_id="r"
    )
    notes = prepare(settings, ["true"], {}, group_token=token).notes
    assert [note.startswith(f"{spec}:2 starts 'torchrun'") for note in notes] == [True] * warns
