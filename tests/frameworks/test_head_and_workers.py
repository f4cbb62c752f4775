"""Scripts of docs/head-and-workers.md, as examples/ has them, over emulated hosts."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import EXAMPLES, JOBS, Ended, environment_of, left_on, logs_of, results_in
from tests.support.cluster import cluster
from tests.support.launching import BIN
from tests.support.netlab import Lab

HERE = JOBS / "head_and_workers"
SCRIPTS = EXAMPLES / "head_and_workers"
PAGE = EXAMPLES.parent / "docs" / "head-and-workers.md"
OWN_RAY = 'mkdir -p "$0" /tmp/ray && mount --bind "$0" /tmp/ray && exec sh "$1"'
"""The hosts share /tmp, in which Ray's nodes on one machine have their sockets."""
OPTIONS = ("--framework", "command", "--ends-with", "node0", "--hosts", "off", "--grace", "5")


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment in which `vllm` is a stand-in; this folder has what a person wrote."""
    programs = tmp_path / "programs"
    shutil.copytree(HERE, programs)
    monkeypatch.chdir(programs)
    return {"PATH": f"{programs}:{BIN}:{os.environ['PATH']}", "MODEL": "a-model"}


def launch(lab: Lab, folder: Path, script: str, *command: str, **env: str) -> Ended:
    """Launch an example on all hosts of the lab."""
    words = [str(SCRIPTS / script), *command]
    with cluster(lab, folder, *OPTIONS, command=words, env=env) as run:
        if run.has_submitted():
            for slot in range(1, len(lab.hosts)):
                argv = ["sh", "-c", OWN_RAY, str(folder / f"ray-{slot}"), str(run.script(slot))]
                run.workers[slot] = run.start(slot, argv)
        outcome = run.finish()
    assert left_on(lab) == []
    logs = logs_of(run)
    return Ended(outcome.code, outcome.err, logs, results_in(logs))


def test_the_page_shows_the_examples_as_they_are() -> None:
    shown = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    texts = {path.name: path.read_text("utf-8") for path in sorted(SCRIPTS.glob("*.sh"))}
    bodies = {"".join(text.splitlines(keepends=True)[2:]): name for name, text in texts.items()}
    assert sorted(bodies[block] for block in shown) == sorted(texts)
    assert all(text.startswith("#!/bin/sh\n# ") for text in texts.values())


@pytest.mark.netns
@pytest.mark.timeout(200)
class TestOverHosts:
    """Each script, on hosts of their own."""

    def test_others_sleep_until_the_head_is_done(self, tmp_path: Path) -> None:
        with Lab(3) as lab:
            ended = launch(lab, tmp_path, "sleep.sh", "sh", "-c", "echo only $NODE_RANK; sleep 1")
        assert ended.code == 0, ended.told
        assert ended.logs.strip() == "only 0"
        assert ended.last_line.endswith("; the 2 others were stopped")

    def test_one_vllm_serves_over_all_nodes(
        self, stand_ins: dict[str, str], tmp_path: Path
    ) -> None:
        with Lab(3) as lab:
            command = ("python3", str(HERE / "client.py"))
            ended = launch(lab, tmp_path, "vllm.sh", *command, **stand_ins)
            addresses = [host.address for host in lab.hosts]
        assert ended.code == 0, ended.told
        assert f"SERVED a-model {' '.join(addresses)}\n" in ended.logs

    def test_a_trainer_has_its_rewards_and_rollouts(
        self, stand_ins: dict[str, str], tmp_path: Path
    ) -> None:
        with Lab(4) as lab:
            ended = launch(lab, tmp_path, "rl.sh", **stand_ins)
            addresses = [host.address for host in lab.hosts]
        assert ended.code == 0, ended.told
        assert [line for line in ended.logs.splitlines() if line.startswith("RL ")] == [
            f"RL {address} reward 4" for address in addresses[2:]
        ]

    def test_a_rollout_server_that_fails_is_named(
        self, stand_ins: dict[str, str], tmp_path: Path
    ) -> None:
        stand_ins["PATH"] = stand_ins["PATH"].partition(":")[2]  # there is no vllm
        with Lab(3) as lab:
            ended = launch(lab, tmp_path, "rl.sh", **stand_ins)
        assert ended.code == 127, ended.told
        assert "node 2 (h2) failed: the program ended with exit code 127" in ended.last_line

    @pytest.mark.frameworks("ray")
    def test_a_driver_of_ray_has_all_nodes(self, tmp_path: Path) -> None:
        env = environment_of(ENVIRONMENTS["ray"], tmp_path)
        env |= {"RAY_USAGE_STATS_ENABLED": "0"}
        with Lab(2, hosts_mode="selfonly") as lab:
            command = ("python3", str(HERE / "driver.py"))
            ended = launch(lab, tmp_path, "ray.sh", *command, **env)
            addresses = [host.address for host in lab.hosts]
        assert ended.code == 0, ended.told
        assert f"RAY {' '.join(addresses)}\n" in ended.logs
        assert "run 'r' ok: node 0 ended with exit code 0 after " in ended.last_line
