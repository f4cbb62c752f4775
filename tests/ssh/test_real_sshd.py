"""Runs over a real ssh and a real sshd on each of several emulated hosts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.ssh.machines import LIMIT_SECONDS, RUN, SSHD, Machines, command_lines, served_machines
from tests.support.canaries import Canaries, add_run, loose
from tests.support.launching import RDZV, environment
from tests.support.netlab import Host
from tests.support.waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.schedulers("ssh", "ssh-keygen", SSHD),
    pytest.mark.timeout(180),
]

JOIN = re.compile(rb"rdzv1-[\w-]{40}")


def gated(folder: Path) -> list[str]:
    """A program that says where it runs, and ends when the file `end` is there."""
    script = (
        f'echo "rank $NODE_RANK on $(hostname)"; until [ -e {folder}/end ]; do sleep 0.1; done; '
        'echo "rank $NODE_RANK ends"'
    )
    return ["sh", "-c", script]


def wait_for_programs(made: Machines) -> None:
    """Until the gated program runs on every host."""
    for host in made.hosts[1:]:
        until(partial(_runs_on, made, host), LIMIT_SECONDS)


def _runs_on(made: Machines, host: Host) -> bool:
    return f"on {host.name}" in made.worker_log(host)


def test_four_hosts_form_run_and_are_left_as_they_were(tmp_path: Path) -> None:
    with served_machines(4, tmp_path) as made, command_lines() as lines:
        launched = made.launch(command=gated(tmp_path))
        wait_for_programs(made)
        loose_files = [loose(made.home(host)) for host in made.hosts]
        canaries = Canaries()
        secret = bytes.fromhex((launched.folder / "secret").read_text())
        record = json.loads((launched.folder / "launch.json").read_text())
        add_run(canaries, secret, RUN, record["launch_id"], 4)
        in_files = [canaries.find_in_files(made.home(host)) for host in made.hosts]
        (tmp_path / "end").touch()
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
        logs = [made.worker_log(host) for host in made.hosts[1:]]
        files = [made.files(host) for host in made.hosts]
    assert outcome.code == 0, outcome.out
    assert "rank 0 on h0" in outcome.out
    for rank, log in enumerate(logs, 1):
        assert f"rank {rank} on h{rank}\n" in log
        assert log.endswith("\nrdzv: worker run ended with exit code 0\n")
    name = f"rdzv-{record['launch_id']}"
    assert files == [
        [],
        *(
            [
                f".local/state/rdzv/{RUN}/logs/node-{rank}.log",
                f".local/state/rdzv/{RUN}/logs/node-{rank}/hostfile",
                f".local/state/rdzv/{RUN}/logs/node-{rank}/hostfile.mpich",
                f".local/state/rdzv/{RUN}/logs/node-{rank}/table.json",
                f".local/state/rdzv/ssh/{name}-{rank}-1.log",
            ]
            for rank in (1, 2, 3)
        ),
    ]
    assert loose_files == [[]] * 4
    assert in_files == [{}] * 4
    every_line = b"\n".join(lines)
    assert b"rdzv: worker run ended" in every_line  # it has seen what runs on the hosts
    assert canaries.find(every_line) == set()
    assert not JOIN.search(every_line)


def test_a_host_whose_key_is_unknown_is_refused(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        known = made.known_hosts.read_text().splitlines(keepends=True)
        made.known_hosts.write_text("".join(line for line in known if line[:3] != "h2 "))
        launched = made.launch("--submit-retries", "0", command=["sleep", "600"])
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == 83, outcome.out
    said = "\n".join(outcome.out.strip().splitlines()[-2:])
    assert "slot 2: 'ssh' ended with exit code 255: Host key verification failed." in said
    assert "the key of h2 is not known here, or is another one now" in said
    assert not re.search(r"^h2\b", made.known_hosts.read_text(), re.M)


def test_a_launch_that_is_interrupted_ends_programs_that_do_not_listen(tmp_path: Path) -> None:
    stubborn = ["sh", "-c", 'trap "" TERM; echo "on $(hostname)"; while :; do sleep 0.1; done']
    with served_machines(3, tmp_path) as made:
        launched = made.launch("--grace", "1", command=stubborn)
        wait_for_programs(made)
        launched.signal(signal.SIGTERM)
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == 128 + signal.SIGTERM, outcome.out


def test_the_scheduler_can_be_tried_on_one_host(tmp_path: Path) -> None:
    with served_machines(2, tmp_path) as made:
        tried = made.rdzv("schedulers", "check", "ssh", "--set", "HOST=h1", *made.ssh)
        made.wait_until_idle()
    assert tried.returncode == 0, tried
    assert tried.stdout.splitlines()[-1] == "the scheduler 'ssh' works"


def test_logs_that_are_followed_leave_nothing_on_the_hosts_when_nobody_reads_on(
    tmp_path: Path,
) -> None:
    with served_machines(2, tmp_path) as made:
        launched = made.launch(command=gated(tmp_path))
        wait_for_programs(made)
        reader = made.hosts[0].start(
            # What a suite in the background of a shell starts is deaf to SIGINT like itself.
            ["env", "--default-signal=INT", RDZV, "logs", RUN, "--rank", "1", "--follow"],
            env=environment(made.state),
            stdout=subprocess.PIPE,
        )
        assert reader.stdout is not None
        seen = iter(reader.stdout)
        assert any("rank 1 on h1" in line for line in seen)
        until(lambda: "tail" in made.programs(made.hosts[1]))
        reader.send_signal(signal.SIGINT)
        reader.communicate(timeout=LIMIT_SECONDS)
        until(lambda: "tail" not in made.programs(made.hosts[1]))
        (tmp_path / "end").touch()
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == 0, outcome.out
