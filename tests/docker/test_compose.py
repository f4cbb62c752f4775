"""`docker compose up`, in a fresh clone, on a real engine."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.docker.compose import IMAGE, PIN, Compose
from tests.docker.engine import TOOLS, Engine
from tests.support.waiting import until

pytestmark = [
    pytest.mark.schedulers(*TOOLS),
    pytest.mark.netns,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("docker"),
]

# Each node says who it is and what its /etc/hosts holds.
TELL = 'echo "$NODE_RANK $(hostname) $(getent ahostsv4 $(hostname) | head -n 1)" && cat /etc/hosts'
WAIT = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
# How every join string begins.
SECRET = "rdzv1-"


def test_the_image_has_rdzv_beside_the_users_pins_and_none_has_moved(docker: Engine) -> None:
    places = "for name in python pip rdzv; do command -v $name; done"
    script = f"pip freeze --all; {places}; rdzv --version"
    run = ("run", "--rm", "--network=none", "--entrypoint=sh")
    before = docker.docker(*run, "rdzv-test-user", "-c", "pip freeze --all").splitlines()
    after = docker.docker(*run, IMAGE, "-c", script).splitlines()
    assert PIN in before
    assert after[: len(before)] == before
    *where, version = after[len(before) :]
    assert where == ["/opt/user/bin/python", "/opt/user/bin/pip", "/usr/local/bin/rdzv"]
    assert version.startswith("rdzv ")


def test_up_of_version_2_trains_the_demo_and_leaves_no_secret(compose_2: Compose) -> None:
    compose, engine = compose_2, compose_2.engine
    compose.adapt()
    outcome = compose.run("--ansi=never", "up")
    said = outcome.out + outcome.err
    assert outcome.code == 0, said
    assert re.search(r"digits: accuracy 0\.9\d+ after \d+ epochs on 4 processes", said)
    assert "rdzv: run 'demo' ok: all 4 nodes ended with exit code 0" in said
    assert compose.exit_codes() == {"launcher": [0], "worker": [0, 0, 0]}
    known = [json.dumps(engine.look(one)) for one in engine.containers()]
    assert [text for text in [*known, said] if SECRET in text] == []
    volume = json.loads(engine.docker("volume", "inspect", "rdzv_join"))[0]
    assert list(Path(volume["Mountpoint"]).iterdir()) == []  # it was in memory


def test_each_container_knows_all_names_and_forgets_them_at_the_end(compose: Compose) -> None:
    engine = compose.engine
    compose.adapt(TELL)
    outcome = compose.run("up", "--no-color", WORKERS="2")
    assert outcome.code == 0, outcome.out + outcome.err
    nodes, files = {}, []
    for container in engine.containers():
        logs = engine.logs(container)
        start = next(i for i, line in enumerate(logs) if re.match(r"\d+ \w+ [\d.]+ ", line))
        rank, name, address = logs[start].split()[:3]
        nodes[rank] = (name, address)
        lines = [line.split() for line in logs[start + 1 :]]
        files.append({(line[0], name) for line in lines for name in line[1:]})
        assert "node-" not in Path(engine.look(container)["HostsPath"]).read_text()
    wanted = {(address, name) for name, address in nodes.values()}
    wanted |= {(address, f"node-{rank}") for rank, (_, address) in nodes.items()}
    assert sorted(nodes) == ["0", "1", "2"]
    assert [wanted - file for file in files] == [set()] * 3


def test_up_ends_with_the_cause_when_a_worker_was_killed(compose: Compose) -> None:
    engine = compose.engine
    compose.adapt(WAIT)
    with ThreadPoolExecutor() as pool:
        up = pool.submit(compose.run, "up", "--exit-code-from", "launcher", WORKERS="2")
        (launcher,) = until(lambda: compose.containers("launcher"))
        until(lambda: any("; starting " in line for line in engine.logs(launcher)))
        victim = compose.containers("worker")[0]
        engine.docker("kill", victim)
        outcome = up.result()
    assert outcome.code == ExitCode.NODE_LOST, outcome.out + outcome.err
    assert victim[:12] in engine.logs(launcher)[-1]
