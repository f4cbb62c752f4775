"""The whole path on this machine: launcher, registry and agents as real processes."""

from __future__ import annotations

import contextlib
import json
import os
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
    rdzv,
    shell,
)
from tests.support.waiting import until
from worker.offer.ports import find_free

COMMAND = ("--framework", "command")
TWO = ("--nnodes", "2", *COMMAND)
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


def until_end(folder: Path) -> str:
    """In a program: it runs until the folder has the file `end`."""
    return f"while [ ! -e {folder}/end ]; do sleep 0.05; done"


def result(state: Path) -> dict[str, object]:
    """The result that a launch has left."""
    return dict(json.loads((state / "r" / "result.json").read_text()))


def test_every_node_gets_one_table_its_own_rank_and_the_words_of_command(tmp_path: Path) -> None:
    """In a folder with a space, a quote and modules that have the names of ours."""
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    for name in ("worker", "launcher", "rendezvous", "typing", "logging"):
        (folder / f"{name}.py").write_text("raise SystemExit('the user\\'s own module')\n")
    script = folder / "my script.sh"
    script.write_text('#!/bin/sh\nenv -0 > env-$NODE_RANK; printf "%s\\0" "$@" > argv-$NODE_RANK\n')
    script.chmod(0o755)
    words = ["a b", "it's", 'say "hi"', "$HOME `id`", "two\nlines", "", "--nnodes", "ü", "<<N>>"]
    options = ("--nnodes", "3", "--nproc-per-node", "2,1,1", *COMMAND)
    command = ["./my script.sh", *words]
    env = {"PYTHONPATH": "."}
    outcome = launch(folder / "s", *options, command=command, cwd=folder, env=env)
    assert outcome.code == 0, outcome.err
    assert "run 'r' ok: all 3 nodes ended with exit code 0" in outcome.last_line
    texts = [(folder / f"env-{rank}").read_text().split("\0") for rank in range(3)]
    seen = [dict(line.split("=", 1) for line in text if line) for text in texts]
    assert [s["NODE_RANK"] for s in seen] == ["0", "1", "2"]
    assert [s["NPROC_PER_NODE"] for s in seen] == ["2", "1", "1"]
    same = {(s["MASTER_ADDR"], s["NNODES"], s["RDZV_ID"], s["PYTHONPATH"]) for s in seen}
    assert same == {("127.0.0.1", "3", "r", ".")}
    assert len({s["MASTER_PORT"] for s in seen}) == 1
    assert not any(name in s for s in seen for name in ("RDZV_JOIN", "RDZV_JOIN_FILE", "RANK"))
    for rank in range(3):
        assert (folder / f"argv-{rank}").read_text().split("\0")[:-1] == words


def test_a_failing_node_stops_the_others_and_is_named_and_all_can_be_replayed(
    tmp_path: Path,
) -> None:
    mark = f"left-{tmp_path}"
    fails = "if [ $NODE_RANK = 1 ]; then echo starting; echo it broke >&2; exit 7; fi"
    script = f"{fails}; : {mark}; {WAITING}"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]  # the registry goes on to the next one
        options = ("--nnodes", "3", "--port", str(port), "--record", *COMMAND)
        outcome = launch(tmp_path, *options, command=shell(script))
    assert outcome.code == 7
    assert json.loads((tmp_path / "r" / "launch.json").read_text())["place"]["p"] > port
    log = tmp_path / "r" / "logs" / "node-1.log"
    node = f"node 1 ({socket.gethostname()}, slot 1)"
    for words in (f"run 'r' failed: {node} failed", "exit code 7", "'it broke'", f"log: {log}"):
        assert words in outcome.last_line
    assert log.read_text() == "starting\nit broke\n"
    assert "rdzv:   | it broke" in outcome.err
    assert not processes_with(mark)
    nodes = [log.parent / f"recording-slot-{slot}-1.jsonl" for slot in range(3)]
    for path in (tmp_path / "r" / "recording.jsonl", *nodes):
        *_, end, said = rdzv(tmp_path, "replay", str(path)).splitlines()
        assert said.endswith(" replayed, which lead where they led")
        assert ": End(" in end


def odd_slot(folder: Path, slot: int, script: str) -> tuple[str, str]:
    """An option: before this slot's worker run something else happens."""
    spec = folder / "worker.yaml"
    spec.write_text(
        f"argv: [sh, -c, 'test <<SLOT>> = {slot} && {script}; exec rdzv worker \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    return "--worker-spec", str(spec)


@pytest.mark.parametrize(
    ("script", "options", "codes", "words"),
    [
        ("exec sleep 60", ("--nnodes", "2:3", "--last-call", "1"), (0,), "run 'r' ok: all 2 nodes"),
        ("ulimit -n 16", ("--nnodes", "3"), (1, 70), "Too many open files"),
    ],
)
def test_a_worker_run_that_is_not_as_the_others(
    tmp_path: Path, script: str, options: tuple[str, ...], codes: tuple[int, ...], words: str
) -> None:
    command = shell("sleep 1" if codes == (0,) else "sleep 60")
    spec = odd_slot(tmp_path, 2, script)
    outcome = launch(tmp_path / "s", *options, *spec, *COMMAND, command=command)
    assert outcome.code in codes, outcome.err
    assert words in outcome.last_line
    assert result(tmp_path / "s")["slot"] == (None if codes == (0,) else 2)


def test_two_nodes_that_differ_in_a_word_of_command_are_named_and_each_shows_its_own(
    tmp_path: Path,
) -> None:
    spec = tmp_path / "worker.yaml"
    spec.write_text(
        "argv: [rdzv, worker, <<WORKER_OPTIONS>>, --, <<COMMAND>>, --lr, <<SLOT>>]\n"
        "env: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    outcome = launch(tmp_path / "s", *TWO, "--worker-spec", str(spec), command=["true"])
    assert outcome.code == 77
    found = result(tmp_path / "s")
    assert (found["code"], found["command_word"], found["slot"]) == ("mismatch", 3, None)
    for slot in (0, 1):
        assert f"rdzv[slot {slot}]: word 3 of 3 of COMMAND is '{slot}' here" in outcome.err


def test_a_node_that_could_not_train_ends_the_run_before_a_program_starts(tmp_path: Path) -> None:
    env = {"GLOO_SOCKET_IFNAME": "ib7"}
    outcome = launch(tmp_path, *TWO, command=["echo", "started"], env=env)
    assert (outcome.code, outcome.out) == (87, "")
    assert "GLOO_SOCKET_IFNAME ib7" in outcome.last_line


# Signals


def test_a_signal_ends_everything_in_order(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    script = f": {mark}; trap 'echo bye; exit 0' TERM; : > {tmp_path}/ready-$NODE_RANK; {WAIT}"
    with launching(tmp_path / "s", *TWO, command=shell(script)) as launched:
        until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
        launched.signal(signal.SIGTERM)
        outcome = launched.finish()
    assert outcome.code == 143
    assert sorted(outcome.out.splitlines()) == ["[0] bye", "[1] bye"]
    assert "SIGTERM at the launcher" in outcome.last_line
    assert not processes_with(mark)


def test_ctrl_c_before_anything_is_up_ends_the_launch(tmp_path: Path) -> None:
    with launching(tmp_path, *TWO, command=shell("sleep 600")) as launched:
        until(lambda: (tmp_path / "r" / "launch.json").exists())
        time.sleep(0.05)
        launched.signal(signal.SIGINT)
        outcome = launched.finish()
    assert outcome.code == 130


def test_a_second_ctrl_c_ends_a_deaf_program_and_a_failure_keeps_its_exit_code(
    tmp_path: Path,
) -> None:
    mark = f"mark-{tmp_path}"
    fails = f"until [ -e {tmp_path}/deaf ]; do sleep 0.05; done; exit 3"
    script = f"if [ $NODE_RANK = 1 ]; then {fails}; fi; trap '' TERM INT; : > {tmp_path}/deaf"
    options = (*TWO, "--grace", "60")
    with launching(tmp_path / "s", *options, command=shell(f": {mark}; {script}; {WAIT}")) as run:
        run.wait_for_phase("finished")
        run.signal(signal.SIGINT)
        time.sleep(0.2)  # two at once are one
        run.signal(signal.SIGINT)
        outcome = run.finish()  # long before the grace is over
    assert outcome.code == 3
    assert "SIGINT: ending the run" in outcome.err
    assert "SIGINT again: ending everything at once" in outcome.err
    until(lambda: not processes_with(mark))


def test_a_launcher_told_to_end_because_a_node_has_died_names_the_node(tmp_path: Path) -> None:
    """As docker compose does it, and other platforms that end all when one has ended."""
    with launching(tmp_path, *TWO, command=shell(WAIT)) as launched:
        launched.wait_for_phase("running")
        agent = launched.child("worker", "127.0.0.2")
        agent.kill()
        # A zombie may have threads, and its sockets.
        until(lambda: not psutil.pid_exists(agent.pid))
        launched.signal(signal.SIGTERM)
        outcome = launched.finish()
    assert outcome.code == 86, outcome.err
    assert result(tmp_path)["slot"] == 1


def test_a_run_that_was_started_with_nohup_outlives_the_terminal(tmp_path: Path) -> None:
    command = shell(f"{until_end(tmp_path)}; echo ended")
    with launching(tmp_path / "s", *TWO, command=command, by=("nohup",)) as launched:
        launched.wait_for_phase("running")
        launched.signal(signal.SIGHUP)
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err


# The registry


def test_a_registry_killed_while_training_comes_back_and_disturbs_nobody(tmp_path: Path) -> None:
    script = f"echo start; {until_end(tmp_path)}; echo end"
    with launching(tmp_path / "s", *TWO, "--json", command=shell(script)) as launched:
        launched.wait_for_phase("running")
        launched.child("rendezvous.server").kill()
        launched.wait_for("restarted")
        (tmp_path / "end").touch()
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    said = [line for line in outcome.err.splitlines() if line.startswith("[")]
    assert sorted(said) == ["[0] end", "[0] start", "[1] end", "[1] start"]
    for events in (launched.events(), [json.loads(line) for line in outcome.out.splitlines()]):
        kinds = [event["kind"] for event in events]
        assert [kinds.count(k) for k in ("joined", "acked", "restarted", "left")] == [2, 2, 1, 2]


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


def test_a_standing_registry_serves_launches_at_once_and_says_when_it_takes_no_more(
    tmp_path: Path,
) -> None:
    with standing_registry(tmp_path / "serve", "--max-runs", "2") as env:

        def start(run: str, nodes: str) -> contextlib.AbstractContextManager[Launched]:
            command = shell(f"{until_end(tmp_path)}; echo $RDZV_ID")
            options = ("--nnodes", nodes, *COMMAND)
            return launching(tmp_path / run, *options, command=command, run=run, env=env)

        with start("one", "2") as one, start("two", "1") as two:
            for held in (one, two):
                until((held.folder / "status.json").exists)
            with start("three", "1") as three:
                refused = three.finish()
            (tmp_path / "end").touch()
            first, second = one.finish(), two.finish()
        with start("three", "1") as three:
            assert three.finish().code == 0
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert sorted(first.out.splitlines()) == ["[0] one", "[1] one"]
    assert refused.code == 1
    assert "takes no further run" in refused.last_line
    assert "has not created the run yet" not in refused.err


@pytest.mark.parametrize(
    ("words", "needed"),
    [(("launch", "--nnodes", "3", "--", "true"), "67 for 3 nodes"), (("serve",), "65 for 1 node")],
)
def test_a_limit_of_open_files_that_is_too_low_is_refused_with_what_is_needed(
    tmp_path: Path, words: tuple[str, ...], needed: str
) -> None:
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -n 12; exec "$@"', "sh", RDZV, *words],
        capture_output=True,
        text=True,
        env=environment(tmp_path, RDZV_FRAMEWORK="command"),
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == (
        f"rdzv: this process may open 12 files (ulimit -n), and a registry needs {needed}"
    )


# What is said, and to whom


def test_events_that_are_late_are_shown_before_the_result(tmp_path: Path) -> None:
    late = (sys.executable, "-c", LATE_EVENTS)
    options = ("--nnodes", "1", "--json", *COMMAND)
    outcome = launch(tmp_path, *options, command=["echo", "hi"], by=late)
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert (kinds.count("joined"), kinds.count("left"), kinds[-1]) == (1, 1, "result")
    assert lines[-1]["status"] == "ok"
    assert "hi" in outcome.err


def test_status_cancel_and_logs_find_a_run_by_its_state(tmp_path: Path) -> None:
    with launching(tmp_path, *TWO, command=shell(f"echo hi; {WAITING}")) as run:
        run.wait_for_phase("running")
        status = rdzv(tmp_path, "status", "r")
        assert "running on 2 nodes" in status
        assert "127.0.0.2" in status
        until(lambda: "hi" in rdzv(tmp_path, "logs", "r", "--node", "1"))
        assert "enough" in rdzv(tmp_path, "cancel", "r", "--reason", "enough")
        outcome = run.finish()
    assert outcome.code == 84
    assert "was cancelled: enough" in outcome.last_line
    assert "was cancelled: enough" in rdzv(tmp_path, "status", "r")


@pytest.mark.parametrize(("option", "error"), [("--json", "2>&-"), ("", "2>&1")])
def test_whoever_stops_reading_the_output_does_not_end_the_run(
    tmp_path: Path, option: str, error: str
) -> None:
    """Nor does it need a standard error."""
    line = f"{RDZV} launch --nnodes 1 --rdzv-id r {option} {' '.join(COMMAND)} -- "
    script = f"{line} sh -c 'sleep 1; echo done > {tmp_path}/done' {error} | head -n 1"
    env, pipe = environment(tmp_path), subprocess.PIPE
    subprocess.run(["sh", "-c", script], env=env, timeout=60, check=True, stdout=pipe)
    until(lambda: (tmp_path / "r" / "result.json").exists())
    assert result(tmp_path)["status"] == "ok"
    assert (tmp_path / "done").exists()


def test_a_signal_ends_the_run_although_nobody_reads_what_is_said_of_it(tmp_path: Path) -> None:
    with launching(tmp_path, *TWO, command=shell(WAITING)) as launched:
        launched.wait_for_phase("running")
        assert launched.process.stderr is not None
        launched.process.stderr.close()
        launched.process.stderr = None
        launched.signal(signal.SIGHUP)
        outcome = launched.finish()
    assert outcome.code == 128 + signal.SIGHUP
