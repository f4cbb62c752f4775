"""Runs over a real ssh and a real sshd on each of several emulated hosts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.path.test_netns import PROGRAM, expectations
from tests.ssh.machines import (
    LIMIT_SECONDS,
    RUN,
    SSHD,
    Machines,
    command_lines,
    machines,
    served_machines,
)
from tests.support.canaries import Canaries, add_run, loose
from tests.support.disks import fill, small_disk
from tests.support.launching import RDZV, environment, other_rdzv
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


@pytest.mark.torch
def test_three_hosts_train_while_the_launcher_sits_on_a_login_host(tmp_path: Path) -> None:
    with served_machines(4, tmp_path) as made:
        hosts = made.hosts[1:]
        hostfile = tmp_path / "hostfile"
        hostfile.write_text("# rack 1\nh1 slots=2\nh2 slots=1\nh3:1\n")
        options = ["--rdzv-id", RUN, "--hostfile", str(hostfile), "--no-local-node", *made.ssh]
        launched = made.start_launch(*options, command=[PROGRAM, *expectations(hosts)])
        outcome = launched.finish(LIMIT_SECONDS)
        logs = [made.worker_log(host) for host in hosts]
        fetched = made.rdzv("logs", RUN, "--lines", "100")
        made.wait_until_idle()
    assert outcome.code == 0, outcome.out
    results = sorted(
        (json.loads(line[7:]) for log in logs for line in log.splitlines() if line[:6] == "RESULT"),
        key=lambda result: int(result["rank"]),
    )
    assert [result["hostname"] for result in results] == ["h1", "h1", "h2", "h3"]
    assert {result["sum"] for result in results} == {10}
    assert {result["master_addr"] for result in results} == {hosts[0].address}
    assert fetched.stdout.count("RESULT ") == 4, fetched


# ---- hosts that cannot take part -----------------------------------------------------------------


def failed_on_h2(made: Machines, *options: str) -> str:
    """What the launch says at its end; nothing is left of it."""
    launched = made.launch("--submit-retries", "0", *options, command=["sleep", "600"])
    outcome = launched.finish(LIMIT_SECONDS)
    made.wait_until_idle()
    assert outcome.code == 83, outcome.out
    return "\n".join(outcome.out.strip().splitlines()[-2:])


def test_a_host_whose_key_is_unknown_is_refused(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        known = made.known_hosts.read_text().splitlines(keepends=True)
        made.known_hosts.write_text("".join(line for line in known if line[:3] != "h2 "))
        said = failed_on_h2(made)
    assert "slot 2: 'ssh' ended with exit code 255: Host key verification failed." in said
    assert "the key of h2 is not known here, or is another one now" in said
    assert not re.search(r"^h2\b", made.known_hosts.read_text(), re.M)


@pytest.mark.nightly
def test_a_host_that_shows_another_key_is_refused(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        known = made.known_hosts.read_text().splitlines(keepends=True)
        made.known_hosts.write_text("".join(line for line in known if line[:3] != "h2 "))
        made.know(made.hosts[2], key_of=made.hosts[1])
        said = failed_on_h2(made)
    assert "Host key verification failed." in said
    assert "the key of h2 is not known here, or is another one now" in said


@pytest.mark.nightly
def test_a_host_that_does_not_know_the_user_is_refused(tmp_path: Path) -> None:
    with machines(3, tmp_path) as made:
        made.serve(*made.hosts[:2])
        made.serve(made.hosts[2], keys="key-h0.pub")
        said = failed_on_h2(made)
    assert "root@h2: Permission denied (publickey)." in said
    assert "'ssh -oBatchMode=yes h2 true' must work here without a question" in said


@pytest.mark.nightly
def test_a_host_without_sshd_is_told(tmp_path: Path) -> None:
    with machines(3, tmp_path) as made:
        made.serve(*made.hosts[:2])
        said = failed_on_h2(made)
    assert "ssh: connect to host h2 port 22: Connection refused" in said
    assert "check that the host is up and runs sshd" in said


def test_a_host_that_is_down_is_told(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        made.lab.link_down(made.hosts[2])
        said = failed_on_h2(made)
    assert "ssh: connect to host h2 port 22: " in said
    assert "check that the host is up and runs sshd" in said


def test_a_host_without_rdzv_is_told(tmp_path: Path) -> None:
    with machines(3, tmp_path) as made:
        made.serve(*made.hosts[:2])
        made.serve(made.hosts[2], path="/usr/bin:/bin")
        said = failed_on_h2(made)
    assert "h2: there is no command 'rdzv' on it" in said


def test_a_host_that_cannot_take_part_is_told_before_it_joins(tmp_path: Path) -> None:
    folder = other_rdzv(tmp_path, "export RDZV_INTERFACE=ib9")
    with machines(3, tmp_path) as made:
        made.serve(*made.hosts[:2])
        made.serve(made.hosts[2], path=f"{folder}:{environment(made.state)['PATH']}")
        outcome = made.launch(command=["sleep", "600"]).finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == ExitCode.USAGE, outcome.out
    last = "\n".join(outcome.out.strip().splitlines()[-2:])
    assert "h2" in last
    assert "ib9" in last


def test_a_host_whose_disk_is_full_is_told(tmp_path: Path) -> None:
    with machines(3, tmp_path) as made:
        home = made.home(made.hosts[2])
        home.rmdir()
        with small_disk(home, "64k"):
            fill(home)
            made.serve()
            said = failed_on_h2(made)
    assert "No space left on device" in said
    assert "make room in the home folder on that host" in said


# ---- what breaks on the way ----------------------------------------------------------------------


def test_a_run_goes_on_when_its_hosts_cannot_be_asked_any_more(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        launched = made.launch(command=gated(tmp_path))
        wait_for_programs(made)
        made.end_servers(made.hosts[1], made.hosts[2])
        until(lambda: "Connection refused" in status_of(made), LIMIT_SECONDS)
        (tmp_path / "end").touch()
        until(lambda: "rank 0 ends" in (launched.folder / "logs/node-0.log").read_text())
        made.serve(made.hosts[1], made.hosts[2])  # now it can be seen that nothing is left there
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
        logs = [made.worker_log(host) for host in made.hosts[1:]]
    assert outcome.code == 0, outcome.out
    assert [f"\nrank {rank} ends\n" in log for rank, log in enumerate(logs, 1)] == [True, True]


def status_of(made: Machines) -> str:
    """What `rdzv status` says, as JSON."""
    return made.rdzv("status", RUN, "--json").stdout


def test_a_launcher_killed_before_the_go_finds_its_worker_runs_again(tmp_path: Path) -> None:
    slow = tmp_path / "bin" / "rdzv"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\nuntil [ -e {tmp_path}/on ]; do sleep 0.1; done; exec {RDZV} "$@"\n'
    )
    slow.chmod(0o755)
    with machines(3, tmp_path) as made:
        made.serve(*made.hosts[:2])
        made.serve(made.hosts[2], path=f"{slow.parent}:{environment(made.state)['PATH']}")
        launched = made.launch(command=gated(tmp_path))
        launched.wait_for("joined", 2)
        until(lambda: made.worker_log(made.hosts[2]), LIMIT_SECONDS)
        launched.signal(signal.SIGKILL)
        launched.finish()
        launched = made.launch(command=gated(tmp_path))
        (tmp_path / "on").touch()
        wait_for_programs(made)
        (tmp_path / "end").touch()
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
        names = [path for host in made.hosts for path in made.files(host)]
    assert outcome.code == 0, outcome.out
    assert "resuming launch" in outcome.out
    runs = [name for name in names if name.startswith(".local/state/rdzv/ssh/")]
    assert [name[-8:] for name in runs] == ["-1-1.log", "-2-1.log"]


def test_a_launcher_killed_after_the_go_leaves_nothing(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        launched = made.launch(command=gated(tmp_path))
        wait_for_programs(made)
        launched.signal(signal.SIGKILL)
        made.wait_until_idle()


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
