"""The Kubernetes specs, rendered and loaded; and values that a careless template would break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from launcher.plan.plan import Site, Spec, Submission, make_plan
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings

FOLDER = specs_folder() / "kubernetes"
IMAGE = "registry.example:5000/team/image@sha256:" + "0" * 64
UGLY = [
    "a b",
    "it's",
    'say "hi"',
    "key: value",
    "#comment",
    "a|b & c; d > e",
    "0755",
    "yes",
    "No",
    "null",
    "~",
    "12e4567",
    "1_000",
    "12:30",
    "0x1f",
    "",
    "--",
    "two\nlines\n",
    "\ttab ",
    "back\\slash",
    "$HOME `id` $$ $(HOSTNAME) $(RDZV_JOIN_FILE) ${{ inputs.x }}",
    "{{ .Values }} %s %(x)s",
    "- item",
    "*alias &anchor !tag @at",
    "<<NAME>>",
    "한국어",
    "中文。标点",
    "e\u0301 \u00a0 \u2028",
]


def worker_run(
    command: Sequence[str] = ("train.py",),
    *,
    image: str = IMAGE,
    run: str = "llama",
    passed: Sequence[str] = (),
    slot: int = 1,
    generation: int = 1,
) -> Submission:
    """A worker run of the shipped template."""
    path = FOLDER / "worker.yaml.tpl"
    names = [f"VALUE_{number}" for number in range(len(passed))]
    plan = make_plan(
        LaunchSettings(
            nnodes="4", hosts="off", set=[f"IMAGE={image}", "GPUS=8"], pass_env=list(names)
        ),
        command,
        dict(zip(names, passed, strict=True)),
        Site(Spec(str(path), path.read_text(encoding="utf-8"))),
        run=run,
        launch_id="12e4567890",
    )
    return plan.submission(slot, generation)


def documents(text: str) -> list[Any]:
    """All documents of a manifest."""
    return list(yaml.safe_load_all(text))


def shipped(name: str) -> list[Any]:
    """The documents of a shipped manifest that is no template."""
    return documents((FOLDER / name).read_text(encoding="utf-8"))


def rules() -> list[Any]:
    """What the shipped Role lets a launcher do."""
    found: list[Any] = next(o for o in shipped("launcher.yaml") if o["kind"] == "Role")["rules"]
    return found
