"""The profiles of docs/schedulers.md; one is run against a service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import BaseModel

from launcher.plan.plan import HIDDEN, Site, Spec, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.profile_file import Profile
from launcher.settings import LaunchSettings
from tests.support.launching import environment, launch
from tests.support.missing import give_up

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "schedulers.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(toml|json)\n(.*?)```\n", re.DOTALL)


def written(folder: Path, section: str) -> Path:
    """A profile of a page and its spec, as files."""
    _, _, after = TEXT.partition(f"\n## {section}\n")
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
        parts = (field.annotation, *typing.get_args(field.annotation))
        inner = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        if inner:
            yield from keys(inner[0], f"[{name}] ")
        else:
            yield f"{table}{field.alias or name}"


def test_every_key_of_a_profile_is_documented_and_no_other() -> None:
    _, _, after = TEXT.partition("\n## The format, key by key\n")
    documented = re.findall(r"^- `(.*?)`: ", after.partition("\n## ")[0], re.MULTILINE)
    assert documented == list(keys(Profile))


def test_a_scheduler_of_your_own_takes_eleven_lines(tmp_path: Path) -> None:
    text = written(tmp_path, "A scheduler of your own").read_text()
    assert len(text.splitlines()) == 11


def test_the_profile_for_nomad_can_be_read_and_gives_its_job(tmp_path: Path) -> None:
    entry = scheduler_entry(str(written(tmp_path, "Another example: Nomad")))
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


class BatchApi(ThreadingHTTPServer):
    """A service as the page supposes it; its jobs are processes. No answer to a POST arrives."""

    def __init__(self, environ: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.environ = environ
        self.jobs: list[tuple[str, subprocess.Popen[bytes]]] = []

    def shown(self, number: int) -> dict[str, str]:
        """What it tells of a job."""
        name, process = self.jobs[number]
        code = process.poll()
        state = "running" if code is None else "failed" if code else "done"
        return {"id": f"j-{number}", "name": name, "state": state}


class _Handler(BaseHTTPRequestHandler):
    server: BatchApi

    def do_POST(self) -> None:
        posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        process = subprocess.Popen(posted["command"], env=self.server.environ | posted["env"])
        self.server.jobs.append((posted["name"], process))

    def do_GET(self) -> None:
        shown = map(self.server.shown, range(len(self.server.jobs)))
        places = ("/jobs?name={name}", "/jobs/{id}")
        asked = [job for job in shown if self.path in [p.format(**job) for p in places]]
        body = json.dumps(asked).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def serving(environ: dict[str, str]) -> Iterator[BatchApi]:
    """The service, on a port of its own; what it has started is ended at the end."""
    with BatchApi(environ) as api:
        thread = threading.Thread(target=api.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()
            for _, process in api.jobs:
                process.kill()
                process.wait()


@pytest.mark.nightly
def test_the_profile_of_the_page_launches_once_though_an_answer_is_lost(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        give_up("curl is not installed")
    out = tmp_path / "out"
    profile = written(tmp_path, "A scheduler of your own")
    profile.write_text("poll_seconds = 0.1\n" + profile.read_text())
    with serving(environment(tmp_path / "their-state")) as api:
        options = ["--nnodes=1", "--no-local-node", f"--scheduler-profile={profile}"]
        options += [f"--set=API=http://127.0.0.1:{api.server_port}", "--framework=command"]
        command = ["sh", "-c", f"echo node $NODE_RANK > {out}"]
        outcome = launch(tmp_path / "state", *options, command=command)
        assert [process.wait(20) for _, process in api.jobs] == [0]
    assert outcome.code == 0, outcome.err
    assert out.read_text() == "node 0\n"
