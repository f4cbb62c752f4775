"""The whole path on this machine: launcher, registry and agents as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.launching import (
    RDZV,
    Launched,
    environment,
    launch,
    launching,
    processes_with,
    shell,
)
from tests.support.nightly import but_at_night
from tests.support.waiting import until
from worker.offer.ports import find_free

COMMAND = ("--framework", "command")
DEAF_PROFILE = r"""
summary = "says of its only run that it runs, whatever it is told"
spec = "spec.sh"
secret = "spec"
submit = { argv = ["echo", "7"], id = '(\d)' }
find = { argv = ["echo", "7"], id = '(\d)' }
describe = { argv = ["echo", "up"], state = '(?P<state>\w+)' }
states = { running = ["up"] }
cancel = { argv = ["touch", "<<TOLD>>"] }
needs = ["TOLD"]
poll_seconds = 0.5
"""
# The launcher, which hears of the events only once all nodes have left.
LATE_EVENTS = """
import asyncio, sys
from launcher.cli import main
from rendezvous.talk.client import RegistryClient
at_once = RegistryClient.events
async def late(self, run, after):
    while not (await self.status(run)).everyone_left:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    async for line in at_once(self, run, after):
        yield line
RegistryClient.events = late
del sys.argv[:2]
sys.argv.insert(0, "rdzv")
main(prog_name="rdzv")
"""
WAIT = "while :; do sleep 0.05; done"
# A program that ends on TERM.
WAITING = f"trap 'exit 0' TERM; {WAIT}"

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]


def ready(folder: Path) -> str:
    """In a program: it has come so far that a signal finds what it is to find."""
    return f": > {folder}/ready-$NODE_RANK"


def wait_until_ready(folder: Path, nodes: int) -> None:
    """Until the programs of so many nodes have come to `ready`."""
    until(lambda: len(list(folder.glob("ready-*"))) == nodes)


def test_every_node_gets_the_same_table_and_its_own_rank(tmp_path: Path) -> None:
    out = tmp_path / "seen"
    out.mkdir()
    script = f"env > {out}/$NODE_RANK"
    outcome = launch(
        tmp_path / "s",
        "--nnodes",
        "3",
        "--nproc-per-node",
        "2,1,1",
        *COMMAND,
        command=shell(script),
    )
    assert outcome.code == 0, outcome.err
    assert "run 'r' ok: all 3 nodes ended with exit code 0" in outcome.last_line
    seen = [
        dict(
            line.split("=", 1) for line in (out / str(rank)).read_text().splitlines() if "=" in line
        )
        for rank in range(3)
    ]
    assert [s["NODE_RANK"] for s in seen] == ["0", "1", "2"]
    assert [s["NPROC_PER_NODE"] for s in seen] == ["2", "1", "1"]
    assert {(s["MASTER_ADDR"], s["NNODES"], s["RDZV_ID"]) for s in seen} == {
        ("127.0.0.1", "3", "r")
    }
    assert len({s["MASTER_PORT"] for s in seen}) == 1
    assert not any(name in s for s in seen for name in ("RDZV_JOIN", "RDZV_JOIN_FILE", "RANK"))


def test_a_failing_node_stops_the_others_and_is_named_in_the_last_line(tmp_path: Path) -> None:
    mark = f"left-{tmp_path}"
    fails = "if [ $NODE_RANK = 1 ]; then echo starting; echo it broke >&2; exit 7; fi"
    script = f"{fails}; : {mark}; {WAITING}"
    outcome = launch(tmp_path, "--nnodes", "3", *COMMAND, command=shell(script))
    assert outcome.code == 7
    host = socket.gethostname()
    assert f"run 'r' failed: node 1 ({host}, slot 1) failed" in outcome.last_line
    assert "exit code 7" in outcome.last_line
    assert "'it broke'" in outcome.last_line
    log = tmp_path / "r" / "logs" / "node-1.log"
    assert f"log: {log}" in outcome.last_line
    assert log.read_text() == "starting\nit broke\n"
    assert "rdzv:   | it broke" in outcome.err
    assert not processes_with(mark)


def test_a_launch_and_its_nodes_are_recorded_and_replayed(tmp_path: Path) -> None:
    script = "[ $NODE_RANK = 1 ] && exit 7; sleep 0.5"
    assert launch(tmp_path, "--nnodes", "2", *COMMAND, "--record", command=shell(script)).code == 7
    folder = tmp_path / "r"
    nodes = [folder / "logs" / f"recording-slot-{slot}-1.jsonl" for slot in (0, 1)]
    for path in (folder / "recording.jsonl", *nodes):
        done = subprocess.run(
            [RDZV, "replay", path], capture_output=True, text=True, env=environment(tmp_path)
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1].endswith(" replayed, which lead where they led")
        assert ": End(" in done.stdout.splitlines()[-2]


def test_a_program_killed_by_a_signal_gives_128_plus_its_number(tmp_path: Path) -> None:
    script = f"[ $NODE_RANK = 0 ] && kill -SEGV $$; {WAITING}"
    assert launch(tmp_path, "--nnodes", "2", *COMMAND, command=shell(script)).code == 139


def test_a_log_stays_within_its_limit_and_the_output_is_whole(tmp_path: Path) -> None:
    options = ("--nnodes", "1", *COMMAND, "--log-limit", "1M")
    outcome = launch(tmp_path, *options, command=["seq", "1000000"])
    assert outcome.out.splitlines() == [str(number) for number in range(1, 1_000_001)]
    logs = list(tmp_path.glob("*/logs/node-0.log*"))
    assert len(logs) == 3
    assert 600_000 < sum(path.stat().st_size for path in logs) <= 1 << 20


def test_arguments_arrive_as_they_were_given(tmp_path: Path) -> None:
    arguments = ["a b", "it's", 'say "hi"', "$HOME `id`", "two\nlines", "", "--nnodes", "ü"]
    program = (
        f"import json, sys; open({str(tmp_path / 'seen')!r}, 'w').write(json.dumps(sys.argv[1:]))"
    )
    outcome = launch(
        tmp_path / "s",
        "--nnodes",
        "1",
        *COMMAND,
        command=[sys.executable, "-c", program, *arguments],
    )
    assert outcome.code == 0, outcome.err
    assert json.loads((tmp_path / "seen").read_text()) == arguments


def test_a_folder_with_spaces_and_quotes_is_as_good_as_any(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    script = folder / "my script.sh"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    outcome = launch(
        folder / "st ate", "--nnodes", "2", *COMMAND, command=["./my script.sh"], cwd=folder
    )
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == [f"[0] {folder}", f"[1] {folder}"]


def test_a_users_worker_and_launcher_modules_do_not_get_in_the_way(tmp_path: Path) -> None:
    for name in ("worker", "launcher", "rendezvous", "typing", "logging"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the user\\'s own module')\n")
    (tmp_path / "job.py").write_text("import os\nprint('path', os.environ['PYTHONPATH'])\n")
    outcome = launch(
        tmp_path / "s",
        *("--nnodes", "2", *COMMAND),
        command=["sh", "-c", "echo path $PYTHONPATH"],
        cwd=tmp_path,
        env={"PYTHONPATH": "."},
    )
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] path .", "[1] path ."]


@pytest.mark.nightly
def test_a_missing_node_is_named_with_what_is_known_of_it(tmp_path: Path) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [sh, -c, 'test <<SLOT>> = 2 && exec sleep 60; exec rdzv worker \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(  # seen to its end before slot 2 would end by itself
        tmp_path / "s",
        *("--nnodes", "4", "--join-timeout", "12", "--worker-spec", str(spec), *COMMAND),
        command=shell("true"),
    )
    assert outcome.code == 80
    words = "expected 4 nodes and 3 joined within 12 s: slot 2 (worker run rdzv-"
    assert words in outcome.last_line
    assert "never reached the registry; the scheduler says running: pid" in outcome.last_line


def test_a_worker_run_that_ends_before_it_joins_is_submitted_again_then_fails(
    tmp_path: Path,
) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [sh, -c, 'test <<SLOT>> = 1 && exit 3; exec rdzv worker \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(
        tmp_path / "s", "--nnodes", "2", "--worker-spec", str(spec), *COMMAND, command=shell("true")
    )
    assert outcome.code == 83
    assert "it is submitted again as generation 2" in outcome.err
    assert "slot 1 failed before the go: its worker run ended before it joined" in outcome.last_line
    assert "exit code 3" in outcome.last_line


def test_a_node_with_another_nnodes_is_refused_with_both_values(tmp_path: Path) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [sh, -c, 'n=2; test <<SLOT>> = 1 && n=3; exec rdzv worker --loopback --hosts off"
        " --framework command --address 127.0.0.1<<SLOT>> --nnodes $n -- true']\n"
        "env: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(
        tmp_path / "s", "--nnodes", "2", "--worker-spec", str(spec), *COMMAND, command=["true"]
    )
    assert outcome.code == 77
    assert "was started with --nnodes 3, and run 'r' has --nnodes 2" in outcome.last_line


def test_two_nodes_that_differ_in_a_word_of_command_are_named_and_each_shows_its_own(
    tmp_path: Path,
) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [rdzv, worker, <<WORKER_OPTIONS>>, --, <<COMMAND>>, --lr, <<SLOT>>]\n"
        "env: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(
        tmp_path / "s", "--nnodes", "2", "--worker-spec", str(spec), *COMMAND, command=["true"]
    )
    assert outcome.code == 77
    result = json.loads((tmp_path / "s" / "r" / "result.json").read_text())
    assert (result["code"], result["command_word"], result["slot"]) == ("mismatch", 3, None)
    for slot in (0, 1):
        assert f"slot {slot} (" in outcome.last_line
        assert f"rdzv[slot {slot}]: word 3 of 3 of COMMAND is '{slot}' here" in outcome.err


def test_min_max_goes_on_without_the_slot_that_does_not_come(tmp_path: Path) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [sh, -c, 'test <<SLOT>> = 2 && exec sleep 60; exec rdzv worker \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(
        tmp_path / "s",
        *("--nnodes", "2:3", "--last-call", "1", "--worker-spec", str(spec), *COMMAND),
        command=shell("echo $NODE_RANK of $NNODES"),
    )
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_a_busy_registry_port_moves_the_registry_to_the_next(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        outcome = launch(
            tmp_path, "--nnodes", "2", "--port", str(port), *COMMAND, command=shell("true")
        )
    assert outcome.code == 0, outcome.err
    record = json.loads((tmp_path / "r" / "launch.json").read_text())
    assert record["place"]["p"] > port


def test_a_fixed_master_port_that_is_taken_ends_the_run_and_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        outcome = launch(
            tmp_path, "--nnodes", "2", "--master-port", str(port), *COMMAND, command=shell("true")
        )
    assert outcome.code == 82
    assert f"master port {port} is taken" in outcome.last_line
    assert "--master-port" in outcome.last_line


def test_a_program_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    outcome = launch(tmp_path, "--nnodes", "2", *COMMAND, command=["no-such-program"])
    assert outcome.code == 82
    assert "'no-such-program' of COMMAND is not on this node's PATH" in outcome.last_line
    assert "joined" not in outcome.err


def test_a_script_that_is_not_there_is_named_before_anybody_joins(tmp_path: Path) -> None:
    outcome = launch(tmp_path, "--nnodes", "2", *COMMAND, command=["python3", "nosuch.py"])
    assert outcome.code == 82
    assert "cannot take part: 'nosuch.py' of COMMAND is not there" in outcome.last_line
    assert "joined" not in outcome.err


@pytest.mark.parametrize("number", but_at_night([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_a_signal_ends_everything_in_order(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"mark-{tmp_path}"
    script = f": {mark}; trap 'echo bye; exit 0' TERM; {ready(tmp_path)}; {WAIT}"
    with launching(tmp_path / "s", "--nnodes", "2", *COMMAND, command=shell(script)) as launched:
        wait_until_ready(tmp_path, 2)
        launched.signal(number)
        outcome = launched.finish()
    assert outcome.code == 128 + number
    assert sorted(outcome.out.splitlines()) == ["[0] bye", "[1] bye"]
    assert f"{number.name} at the launcher" in outcome.last_line
    assert not processes_with(mark)


def test_ctrl_c_before_anything_is_up_ends_the_launch(tmp_path: Path) -> None:
    with launching(tmp_path, "--nnodes", "2", *COMMAND, command=shell("sleep 600")) as launched:
        until(lambda: (tmp_path / "r" / "launch.json").exists())
        time.sleep(0.05)
        launched.signal(signal.SIGINT)
        outcome = launched.finish()
    assert outcome.code == 130


def test_a_second_ctrl_c_ends_a_program_that_ignores_the_first(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    script = f": {mark}; trap '' TERM INT; {ready(tmp_path)}; {WAIT}"
    options = ("--nnodes", "2", "--grace", "60", *COMMAND)
    with launching(tmp_path / "s", *options, command=shell(script)) as launched:
        wait_until_ready(tmp_path, 2)
        launched.signal(signal.SIGINT)
        launched.wait_for_phase("finished")
        launched.signal(signal.SIGINT)
        outcome = launched.finish()  # long before the grace is over
    assert outcome.code == 130
    assert "SIGINT again: ending everything at once" in outcome.err
    until(lambda: not processes_with(mark))


@pytest.mark.parametrize("number", but_at_night([signal.SIGKILL, signal.SIGTERM], signal.SIGTERM))
def test_a_registry_ended_while_training_comes_back_and_disturbs_nobody(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = f"echo start; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo end"
    words = ("--nnodes", "2", "--json", *COMMAND)
    with launching(tmp_path / "s", *words, command=shell(script)) as launched:
        launched.wait_for_phase("running")
        launched.child("rendezvous.server").send_signal(number)
        launched.wait_for("restarted")
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    said = [line for line in outcome.err.splitlines() if line.startswith("[")]
    assert sorted(said) == ["[0] end", "[0] start", "[1] end", "[1] start"]
    for events in (launched.events(), [json.loads(line) for line in outcome.out.splitlines()]):
        kinds = [event["kind"] for event in events]
        assert [kinds.count(k) for k in ("joined", "acked", "restarted", "left")] == [2, 2, 1, 2]


def test_a_registry_killed_while_gathering_forgets_nobody(tmp_path: Path) -> None:
    with launching(
        tmp_path, "--nnodes", "2", "--scheduler", "manual", *COMMAND, command=shell("true")
    ) as launched:
        launched.wait_for("joined")
        launched.child("rendezvous.server").kill()
        launched.wait_for("restarted")
        events = launched.events()
        launched.signal(signal.SIGINT)
        launched.finish()
    assert [e["kind"] for e in events].count("joined") == 1


@pytest.mark.nightly
def test_an_agent_that_is_killed_ends_the_run_and_its_program(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    script = f": {mark}; while :; do sleep 0.05; done"
    with launching(tmp_path, "--nnodes", "2", *COMMAND, command=shell(script)) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(mark)) >= 2)
        launched.child("worker", "127.0.0.2").kill()
        outcome = launched.finish()
    assert outcome.code == 86
    assert "node 1" in outcome.last_line
    # Its scheduler says so, or its connections do: whoever is heard of first.
    assert re.search("was lost: its (worker run ended|agent is gone)", outcome.last_line)
    until(lambda: not processes_with(mark))


def test_the_next_start_removes_a_killed_agents_folder(tmp_path: Path) -> None:
    places = tmp_path / "temporary"
    places.mkdir()
    env = {"XDG_RUNTIME_DIR": str(places)}
    options = ("--nnodes", "2", *COMMAND)
    with launching(tmp_path, *options, command=["sleep", "60"], env=env) as launched:
        launched.wait_for_phase("running")
        launched.child("worker", "127.0.0.2").kill()
        launched.finish()
    assert len(list(places.iterdir())) == 1
    with launching(tmp_path, *options, command=["true"], env=env) as launched:
        assert launched.finish().code == 0
    assert list(places.iterdir()) == []


def test_a_launcher_told_to_end_because_a_node_has_died_names_the_node(tmp_path: Path) -> None:
    """As docker compose does it, and other platforms that end all when one has ended."""
    with launching(tmp_path, "--nnodes", "2", *COMMAND, command=shell(WAIT)) as launched:
        launched.wait_for_phase("running")
        agent = launched.child("worker", "127.0.0.2")
        agent.kill()
        until(
            lambda: not psutil.pid_exists(agent.pid)
        )  # a zombie may have threads, and its sockets
        launched.signal(signal.SIGTERM)
        outcome = launched.finish()
    assert outcome.code == 86, outcome.err
    assert "node 1" in outcome.last_line


@pytest.mark.nightly
def test_a_launcher_killed_before_the_go_is_resumed_by_the_same_command(tmp_path: Path) -> None:
    options = ("--nnodes", "2", "--scheduler", "manual", *COMMAND)
    with launching(tmp_path, *options, command=shell("echo ran")) as first:
        first.wait_for("joined")
        record = json.loads((first.folder / "launch.json").read_text())
        first.process.kill()
        first.process.wait()
    with launching(tmp_path, *options, command=shell("echo ran")) as second:
        until(
            lambda: json.loads((second.folder / "launch.json").read_text())["pid"] != record["pid"]
        )
        second.wait_for("joined", 2)
        resumed = json.loads((second.folder / "launch.json").read_text())
        second.signal(signal.SIGINT)
        outcome = second.finish()
    assert (resumed["launch_id"], resumed["place"]) == (record["launch_id"], record["place"])
    assert f"resuming launch {record['launch_id']}" in outcome.err


@pytest.mark.nightly
def test_a_launcher_killed_after_the_go_leaves_nothing_and_can_launch_again(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    script = f": {mark}; {WAITING}"
    with launching(tmp_path, "--nnodes", "2", *COMMAND, command=shell(script)) as first:
        first.wait_for_phase("running")
        until(lambda: len(processes_with(mark)) >= 2)
        first.process.kill()
        first.process.wait()
        until(lambda: not processes_with(mark))
    outcome = launch(tmp_path, "--nnodes", "2", *COMMAND, command=shell("echo again"))
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] again", "[1] again"]


def test_a_second_launcher_of_the_same_run_is_refused(tmp_path: Path) -> None:
    with launching(tmp_path, "--nnodes", "1", *COMMAND, command=shell(WAITING)) as first:
        first.wait_for_phase("running")
        second = launch(tmp_path, "--nnodes", "1", *COMMAND, command=shell("true"))
        first.signal(signal.SIGTERM)
        first.finish()
    assert second.code == 1
    assert f"run 'r' is being launched by pid {first.process.pid}" in second.err


@pytest.mark.nightly
def test_a_registry_that_stays_away_ends_the_nodes_after_the_orphan_timeout(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    options = ("--nnodes", "2", "--orphan-timeout", "3", *COMMAND)
    with launching(tmp_path, *options, command=shell(f": {mark}; {WAITING}")) as launched:
        launched.wait_for_phase("running")
        until(lambda: len(processes_with(mark)) >= 2)
        registry = launched.child("rendezvous.server")
        registry.suspend()
        try:
            outcome = launched.finish(90)
        finally:
            if registry.is_running():
                registry.kill()
    assert outcome.code == 85
    assert "has not answered for" in outcome.err or "does not answer" in outcome.err
    assert not processes_with(mark)


def test_json_events_end_with_the_result(tmp_path: Path) -> None:
    outcome = launch(tmp_path, "--nnodes", "2", "--json", *COMMAND, command=shell("echo hi"))
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["kind"] for line in lines].count("joined") == 2
    assert lines[-1]["kind"] == "result"
    assert lines[-1]["status"] == "ok"
    assert "hi" in outcome.err


def test_events_that_are_late_are_shown_before_the_result(tmp_path: Path) -> None:
    late = (sys.executable, "-c", LATE_EVENTS)
    outcome = launch(tmp_path, "--nnodes", "1", "--json", *COMMAND, command=["true"], by=late)
    kinds = [json.loads(line)["kind"] for line in outcome.out.splitlines()]
    assert (kinds.count("joined"), kinds.count("left"), kinds[-1]) == (1, 1, "result")


def test_a_dry_run_shows_every_worker_run_and_no_secret(tmp_path: Path) -> None:
    outcome = launch(tmp_path, "--nnodes", "3", "--dry-run", command=["train.py", "--lr", "1e-3"])
    assert outcome.code == 0
    assert outcome.out.count("RDZV_JOIN-hidden") == 1
    assert [line.split(",")[0] for line in outcome.out.splitlines() if line[:6] == "# slot"] == [
        "# slot 0",
        "# slot 1",
        "# slot 2",
    ]
    assert "rdzv1-" not in outcome.out + outcome.err
    assert not (tmp_path / "r").exists()


def test_status_cancel_and_logs_find_a_run_by_its_state(tmp_path: Path) -> None:
    with launching(
        tmp_path, "--nnodes", "2", *COMMAND, command=shell(f"echo hi; {WAITING}")
    ) as run:
        run.wait_for_phase("running")
        status = rdzv(run, "status", "r")
        assert "running on 2 nodes" in status
        assert "127.0.0.2" in status
        until(lambda: "hi" in rdzv(run, "logs", "r", "--node", "1"))
        assert "running" in rdzv(run, "status")
        cancelled = rdzv(run, "cancel", "r", "--reason", "enough")
        assert "enough" in cancelled
        outcome = run.finish()
    assert outcome.code == 84
    assert "was cancelled: enough" in outcome.last_line
    assert "was cancelled: enough" in rdzv(run, "status", "r")


def rdzv(launched: Launched, *words: str) -> str:
    """What another `rdzv` command says about the run."""
    env = environment(launched.state)
    return subprocess.run(
        [RDZV, *words], capture_output=True, text=True, timeout=20, env=env, check=False
    ).stdout


@contextlib.contextmanager
def standing_registry(state: Path, *options: str) -> Iterator[dict[str, str]]:
    """A standing registry; gives the environment of those who launch at it."""
    # Outside of what outgoing connections get, and not where other processes of the tests look.
    port = find_free(20_000 + os.getpid() % 8_000)
    registry = subprocess.Popen(
        [RDZV, "serve", "--port", str(port), "--registry-address", "127.0.0.1", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(state),
    )
    try:
        assert registry.stderr is not None
        said = registry.stderr.readline()
        yield {"RDZV_REGISTRY_FILE": said.rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip()}
    finally:
        registry.terminate()
        registry.communicate(timeout=30)


def test_a_standing_registry_serves_several_launches_at_once(tmp_path: Path) -> None:
    script = shell("sleep 1; echo $RDZV_ID")
    with (
        standing_registry(tmp_path / "serve") as env,
        launching(
            tmp_path / "a", "--nnodes", "2", *COMMAND, command=script, run="one", env=env
        ) as a,
        launching(
            tmp_path / "b", "--nnodes", "2", *COMMAND, command=script, run="two", env=env
        ) as b,
    ):
        first, second = a.finish(), b.finish()
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert sorted(first.out.splitlines()) == ["[0] one", "[1] one"]
    assert sorted(second.out.splitlines()) == ["[0] two", "[1] two"]


def test_a_standing_registry_that_takes_no_more_runs_says_so_at_once(tmp_path: Path) -> None:
    a, b = ("--nnodes", "2", *COMMAND), ("--nnodes", "1", *COMMAND)
    with standing_registry(tmp_path / "serve", "--max-runs", "1") as env:
        with launching(tmp_path / "a", *a, command=shell(WAITING), run="one", env=env) as held:
            until((held.folder / "status.json").exists)
            refused = launch(tmp_path / "b", *b, command=["true"], run="two", env=env)
            assert refused.code == 1
            assert "takes no further run" in refused.last_line
            assert "--max-runs" in refused.last_line
            assert "has not created the run yet" not in refused.err
            held.signal(signal.SIGTERM)
            held.finish()
        assert launch(tmp_path / "b", *b, command=["true"], run="two", env=env).code == 0


def test_a_node_that_fails_by_itself_tells_its_cause(tmp_path: Path) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [sh, -c, 'test <<SLOT>> = 1 && ulimit -n 16; exec rdzv worker \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(
        tmp_path / "s",
        "--nnodes",
        "2",
        "--worker-spec",
        str(spec),
        *COMMAND,
        command=["sleep", "60"],
    )
    assert outcome.code not in (0, 86)
    assert "slot 1) failed" in outcome.last_line
    assert "Too many open files" in outcome.last_line


@pytest.mark.parametrize(
    ("words", "needed"), [(("launch", "--nnodes", "3", "--", "true"), 67), (("serve",), 65)]
)
def test_a_limit_of_open_files_that_is_too_low_is_refused_with_what_is_needed(
    tmp_path: Path, words: tuple[str, ...], needed: int
) -> None:
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -n 12; exec "$@"', "sh", RDZV, *words],
        capture_output=True,
        text=True,
        env=environment(tmp_path, RDZV_FRAMEWORK="command"),
        check=False,
    )
    nodes = f"{needed - 64} node{'s' * (needed > 65)}"
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == (
        "rdzv: this process may open 12 files (ulimit -n), and a registry needs "
        f"{needed} for {nodes}"
    )


@pytest.mark.parametrize(
    ("changed", "script"),
    [
        pytest.param(("--lease", "20"), "true", marks=pytest.mark.nightly, id="option"),
        pytest.param((), "false", id="command"),
    ],
)
def test_a_resumed_launch_with_another_option_or_command_begins_anew(
    changed: tuple[str, ...], script: str, tmp_path: Path
) -> None:
    options = ("--nnodes", "2", "--scheduler", "manual", *COMMAND)
    with launching(tmp_path, *options, command=shell("true")) as first:
        first.wait_for("joined")
        record = json.loads((first.folder / "launch.json").read_text())
        first.process.kill()
        first.process.wait()
    with launching(tmp_path, *options, *changed, command=shell(script)) as second:

        def is_new() -> bool:
            with contextlib.suppress(FileNotFoundError):  # between the old launch and the new one
                text = (second.folder / "launch.json").read_text()
                return bool(json.loads(text)["launch_id"] != record["launch_id"])
            return False

        until(is_new)
        second.wait_for("joined")
        second.signal(signal.SIGINT)
        outcome = second.finish()
    assert outcome.code == 130
    assert "its COMMAND or options were others" in outcome.err


def test_whoever_stops_reading_the_output_does_not_end_the_run(tmp_path: Path) -> None:
    for options in ((), ("--json",)):
        line = f"{RDZV} launch --nnodes 2 --rdzv-id r {' '.join([*options, *COMMAND])} -- "
        script = f"{line} sh -c 'sleep 1; echo done >> {tmp_path}/done' 2>&1 | head -n 1"
        subprocess.run(
            ["sh", "-c", script],
            env=environment(tmp_path),
            timeout=60,
            check=True,
            capture_output=True,
        )
        until(lambda: (tmp_path / "r" / "result.json").exists())
        result = json.loads((tmp_path / "r" / "result.json").read_text())
        assert result["status"] == "ok"
    assert (tmp_path / "done").read_text() == "done\n" * 4


def test_odd_words_of_a_scheduler_are_shown_and_harm_nothing(tmp_path: Path) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text('argv: ["no\\nsuch\\tprogram", <<COMMAND>>]\n')
    outcome = launch(
        tmp_path / "s", "--nnodes", "2", "--worker-spec", str(spec), *COMMAND, command=["true"]
    )
    assert outcome.code == 83
    assert "no?such?program" in outcome.last_line


def test_ctrl_c_after_a_failure_keeps_the_failures_exit_code(tmp_path: Path) -> None:
    """The other node's program ends only after the Ctrl-C, and the launcher after it."""
    fails = f"until [ -e {tmp_path}/ready-0 ]; do sleep 0.05; done; exit 3"
    waits = f"trap '' TERM; {ready(tmp_path)}; until [ -e {tmp_path}/end ]; do sleep 0.05; done"
    command = shell(f"if [ $NODE_RANK = 1 ]; then {fails}; fi; {waits}")
    options = ("--nnodes", "2", "--grace", "60", *COMMAND)
    with launching(tmp_path / "s", *options, command=command) as launched:
        launched.wait_for_phase("finished")
        launched.signal(signal.SIGINT)
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 3
    assert "SIGINT: ending the run" in outcome.err
    assert "exit code 3" in outcome.last_line


def test_a_run_that_was_started_with_nohup_outlives_the_terminal(tmp_path: Path) -> None:
    command = shell(f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo ended")
    options = ("--nnodes", "2", *COMMAND)
    with launching(tmp_path / "s", *options, command=command, by=("nohup",)) as launched:
        launched.wait_for_phase("running")
        launched.signal(signal.SIGHUP)
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == ["[0] ended", "[1] ended"]


def test_a_signal_ends_the_run_although_nobody_reads_what_is_said_of_it(tmp_path: Path) -> None:
    with launching(tmp_path, "--nnodes", "2", *COMMAND, command=shell(WAITING)) as launched:
        launched.wait_for_phase("running")
        assert launched.process.stderr is not None
        launched.process.stderr.close()
        launched.process.stderr = None
        launched.signal(signal.SIGHUP)
        outcome = launched.finish()
    assert outcome.code == 128 + signal.SIGHUP


def test_a_launch_without_any_standard_error_works(tmp_path: Path) -> None:
    line = f"{RDZV} launch --nnodes 2 --rdzv-id r {' '.join(COMMAND)} -- true 2>&-"
    done = subprocess.run(["sh", "-c", line], env=environment(tmp_path), timeout=60, check=False)
    assert done.returncode == 0


def test_a_symmetric_start_does_not_move_its_registry_to_another_port(tmp_path: Path) -> None:
    token = subprocess.run([RDZV, "token", "new"], capture_output=True, text=True, check=True)
    env = {
        "RDZV_TOKEN": token.stdout.strip(),
        "NUM_NODES": "2",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
    }
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        outcome = launch(tmp_path, "--port", port, *COMMAND, command=["true"], env=env)
    assert outcome.code == 2
    assert f"cannot listen on port {port}" in outcome.err


def test_the_reason_of_a_worker_that_cannot_join_is_in_the_last_line(tmp_path: Path) -> None:
    outcome = launch(
        tmp_path, "--nnodes", "2", "--nproc-per-node", "1,gpu", *COMMAND, command=["true"]
    )
    assert outcome.code == 2
    assert "slot 1 (" in outcome.last_line
    assert "cannot take part: --nproc-per-node gpu, and this node shows no GPU" in outcome.last_line


@pytest.mark.nightly
def test_a_signal_while_worker_runs_that_do_not_end_are_waited_for_ends_the_waiting(
    tmp_path: Path,
) -> None:
    """A scheduler that goes on to say that it runs would have it waited for over a minute."""
    profile = tmp_path / "deaf.toml"
    profile.write_text(DEAF_PROFILE)
    told = tmp_path / "told"
    (tmp_path / "spec.sh").write_text("RDZV_JOIN=<<RDZV_JOIN>> rdzv worker\n")
    scheduler = ("--scheduler-profile", str(profile), "--set", f"TOLD={told}")
    options = ("--nnodes", "2", "--join-timeout", "1", *scheduler)
    with launching(tmp_path / "s", *options, *COMMAND, command=["true"]) as launched:
        launched.wait_for_phase("finished")
        until(told.exists)
        launched.signal(signal.SIGINT)
        outcome = launched.finish()
    assert outcome.code == 80
    assert "SIGINT: ending everything at once" in outcome.err
    assert "slot 1, id 7) may still be there: it is running" in outcome.err


def test_what_a_program_leaves_running_is_named_and_ended(tmp_path: Path) -> None:
    command = shell(f"exec -a {tmp_path.name} sleep 300 & exit 0")
    outcome = launch(tmp_path / "s", *COMMAND, "--nnodes", "1", command=["bash", *command[1:]])
    assert outcome.code == 0, outcome.err
    assert "left 1 of its processes running" in outcome.err
    assert processes_with(tmp_path.name + " 300") == []
