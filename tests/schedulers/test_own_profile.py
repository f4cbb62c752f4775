"""The profiles of docs/schedulers.md, read from the page; one is run against a service."""

from __future__ import annotations

import json
import re
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from launcher.plan.plan import HIDDEN, Site, Spec, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile_file import Profile
from launcher.settings import LaunchSettings
from tests.schedulers.batch_api import serving
from tests.support.launching import environment, launch
from tests.support.missing import give_up

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "schedulers.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(toml|json)\n(.*?)```\n", re.DOTALL)


def written(folder: Path, section: str) -> Path:
    """A profile of the page and its spec, as files."""
    _, _, after = PAGE.partition(f"\n## {section}\n")
    blocks = dict(BLOCK.findall(after.partition("\n## ")[0]))
    spec = re.search('^spec = "(.*)"', blocks["toml"], re.MULTILINE)
    assert spec is not None
    (folder / spec[1]).write_text(blocks["json"])
    path = folder / "own.toml"
    path.write_text(blocks["toml"])
    return path


# ---- the page -----------------------------------------------------------------------------------


def keys(model: type[BaseModel], table: str = "") -> Iterator[str]:
    """Every key of a profile, as the page writes it."""
    for name, field in model.model_fields.items():
        inner = [
            part
            for part in (field.annotation, *typing.get_args(field.annotation))
            if isinstance(part, type) and issubclass(part, BaseModel)
        ]
        if inner:
            yield from keys(inner[0], f"[{name}] ")
        else:
            yield f"{table}{field.alias or name}"


def test_every_key_of_a_profile_is_documented_and_no_other() -> None:
    _, _, after = PAGE.partition("\n## The format, key by key\n")
    documented = re.findall(r"^\| `(.*?)` \|", after.partition("\n## ")[0], re.MULTILINE)
    assert documented == list(keys(Profile))


def test_a_scheduler_of_your_own_takes_eleven_lines_and_is_in_the_readme(tmp_path: Path) -> None:
    text = written(tmp_path, "A scheduler of your own").read_text()
    assert len(text.splitlines()) == 11
    assert f"\n```toml\n{text}```\n" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_profile_for_nomad_can_be_read_and_gives_its_job(tmp_path: Path) -> None:
    path = written(tmp_path, "Another example: Nomad")
    entry = scheduler_entry(str(path))
    plan = make_plan(
        LaunchSettings(nnodes="2", set=["IMAGE=img"], framework="command"),
        ["sh", "-c", "two\nlines \"'"],
        {},
        Site(Spec(entry.spec, Path(entry.spec).read_text())),
        run="r",
        launch_id="l",
    )
    shown = entry.make(SchedulerContext(tmp_path, {})).prepare(plan.submission(1, 1), HIDDEN)
    command, _, spec = shown.partition("\n")
    assert command == f"# nomad job run -json {tmp_path}/rdzv-l-1-1.json"
    job = json.loads(spec)["Job"]
    assert (job["ID"], job["Datacenters"]) == ("rdzv-l-1-1", ["dc1"])
    task = job["TaskGroups"][0]["Tasks"][0]
    assert task["Env"] == {"RDZV_JOIN": HIDDEN}
    assert task["Config"]["args"][:2] == ["rdzv", "worker"]
    assert task["Config"]["args"][-4:] == ["--", "sh", "-c", "two\nlines \"'"]


# ---- the service --------------------------------------------------------------------------------


def test_a_run_is_launched_once_by_the_profile_of_the_page_though_an_answer_is_lost(
    tmp_path: Path,
) -> None:
    if shutil.which("curl") is None:
        give_up("curl is not installed")
    out = tmp_path / "out"
    with serving(**environment(tmp_path / "their-state")) as api:
        api.lose = True
        outcome = launch(
            tmp_path / "state",
            "--nnodes=1",
            "--no-local-node",
            f"--scheduler-profile={written(tmp_path, 'A scheduler of your own')}",
            f"--set=API={api.url}",
            "--framework=command",
            command=["sh", "-c", f"echo node $NODE_RANK > {out}"],
        )
        assert [job.process.wait(20) for job in api.jobs.values()] == [0]
    assert outcome.code == 0, outcome.err
    assert out.read_text() == "node 0\n"
