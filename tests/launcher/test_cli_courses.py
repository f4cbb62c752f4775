"""What each command of `rdzv` asks of its function, prints and exits with is as in `cli.txt`.

The functions are stand-ins that end with another code each time, with which the command exits;
runs, ranks, numbers and places differ. Arguments that are as usual are left out, and an error that
was shown before is named by its first words. Who changes a command writes the file anew (`make
reference`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.shell_completion import ShellComplete

from launcher.cli import main, streams
from launcher.cli.completion import VARIABLE
from launcher.plan.plan import WorkerRun
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import ViewString, group_token_text
from rendezvous.wire.errors import RdzvError, Unauthorized, UsageError
from tests.launcher.commands import OF_FEATURES, PLACE, Course, join_text, registry_text, secret_of
from tests.support.courses import lines_in, write_down

KNOWN = Path(__file__).with_name("cli.txt")
GROUP = {
    "RDZV_TOKEN": group_token_text(secret_of(4)),
    "NUM_NODES": "5",
    "MASTER_ADDR": "10.4.0.9",
    "RDZV_ID": "sym-3",
}
"""A symmetric start."""


def shown(course: Course) -> None:
    """What is there is looked at, run by run and each in its own way; and is ended."""
    for line in (
        *("status", "status --all", "status vis-77 --matrix=net.svg", "status vis-77 --env 5"),
        *(f"status {run}" for run in ("llama-7b", "lla", "d0026d37", "k3f2a9c1xy", "x")),
        *(f"status 77 --{view}" for view in ("checks", "matrix", "epochs")),
        *("status --json", "status vis-77 --json", "status vis-77 --env 5 --json"),
        *(f"status vis-77 --{view} --json" for view in ("checks", "matrix", "epochs")),
    ):
        course.run(line)
    for view in ("checks", "matrix", "epochs", "env 3"):
        course.run(f"status --{view}")
    course.each(
        f"""
        status vis-77 --checks --matrix=net.svg --epochs --env 2
        status vis-77 --epochs --env 2
        status vis-77 --checks --env 2
        cancel vis-77
        cancel llama-7b --reason 'no more of it'
        cancel 77
        cancel lla
        restart vis-77
        restart llama-7b --reason again\x07
        restart 77 --reason x
        restart vis-77 --reason {"x" * 301}
        restart vis-77 --reason {"x" * 300}
        drain vis-77 3
        drain llama-7b 2 --in 120.5 --reason 'bad fan'
        drain vis-77 3 --in 86401
        drain vis-77 3 --in 86400
        drain vis-77 3 --in x
        drain vis-77 3 --in -1
        drain vis-77 x
        drain vis-77
        """
    )


def logs(course: Course) -> None:
    """Tell the words of the logs' command."""
    course.each(
        f"""
        logs llama-7b
        logs vis-77 --follow --registry
        logs vis-77 --node 3
        logs vis-77 --rank 5
        logs vis-77 --all --level error
        logs vis-77 --level warning --lines 0 --epoch 4
        logs vis-77 --grep loss --grep 'a b' --lines 7
        logs vis-77 --node 3 --rank 5
        logs vis-77 --all --rank 0
        logs vis-77 --node 0 --all
        logs vis-77 --since 90s
        logs vis-77 --since 1h30m --lines 20
        logs vis-77 --since 2d
        logs vis-77 --since 2026-09-01T14:30:00+02:00
        logs vis-77 --since 2026-09-01T14:30:00Z
        logs vis-77 --since 2027-09-01T14:30:00Z
        logs vis-77 --since soon
        logs vis-77 --epoch 0
        logs vis-77 {" ".join(f"--grep {n}" for n in range(8))}
        logs vis-77 {" ".join(f"--grep {n}" for n in range(9))}
        logs vis-77 --grep {"x" * 100}
        logs vis-77 --grep {"x" * 101}
        logs vis-77 --grep ''
        logs vis-77 --grep 'a\x1bb'
        logs d0026d37
        logs 77
        logs
        """
    )


def pruned(course: Course) -> None:
    """Old runs are removed, twice; those that live, may have worker runs or are damaged stay."""
    held = StateDir(course.root, "llama-7b")
    left, alone, damaged = (
        course.launched(run, number) for run, number in (("left-9", 9), ("own-8", 8), ("bad-7", 7))
    )
    left.ledger.begin(LedgerEntry(WorkerRun(2, 3, "rdzv-k7f2-2-3", {}, "w.sh"), "manual"))
    for state in (left, alone):
        (state.path / "own.txt").touch()
    damaged.write("launch.json", b"{")
    for number, state in enumerate((left, alone, damaged)):
        course.age(state, 40 + number)
    held.acquire()
    course.each(
        """
        prune --dry-run
        prune --dry-run --keep 0
        prune --older-than 2d --keep 1 --dry-run
        prune --older-than 3d --keep 0 --dry-run
        prune --older-than 259201s --keep 0 --dry-run
        prune --older-than 72h --keep 3 --dry-run
        prune --older-than 90
        prune --keep -1
        prune llama-7b
        prune left-9 --dry-run
        prune left-9
        prune bad-7
        prune 77
        prune own-8 --dry-run
        prune own-8
        prune own-8
        prune --older-than 30d --keep 0
        prune --older-than 30d --keep 0
        prune --older-than 2d --keep 0
        prune vis-77
        prune --older-than 1m --keep 0
        prune --older-than 0s --keep 0
        """
    )
    held.release()
    course.add(sorted(path.name for path in course.root.iterdir()))
    course.each("prune llama-7b\nprune")


def tokens(course: Course) -> None:
    """Each token is for whom it says, once and again."""
    token = {"RDZV_TOKEN": GROUP["RDZV_TOKEN"]}
    (course.folder / "registry").write_text(f"{registry_text()}\n")
    named = {"RDZV_REGISTRY_FILE": str(course.folder / "registry")}
    course.run("token new")
    for run in ("llama-7b", "77", "run-d0026d37"):
        course.each(f"token metrics {run}\ntoken view {run}")
    course.run("token metrics", named)
    course.run("token metrics vis-77", named)
    words = "--registry-address n1 --registry-address [fd00::7]:7000 --registry-address n2:29601"
    for line in (words, f"{words} --plain", "--registry-address n1", "", "--registry-address n1:x"):
        course.run(f"token registry {line}", token)
    course.run("token registry --registry-address n1")
    course.run("token registry --registry-address n1", {"RDZV_TOKEN": "no"})


def tenants(course: Course) -> None:
    """They are the operator's."""
    (course.folder / "registry").write_text(f"{registry_text()}\n")
    named = {"RDZV_REGISTRY_FILE": str(course.folder / "registry")}
    for given in (None, named, {"RDZV_REGISTRY": registry_text(7)}, {"RDZV_REGISTRY": "rdzv"}):
        course.run("tenant list --json", given)
    for line in f"""
        add vision --prefix vision- --max-runs 3 --max-nodes unlimited --creates-per-minute 7
        add vision --rotate --max-runs unlimited
        add vision
        add -x
        add 'a b'
        add vision --prefix vision
        add vision --prefix -
        add v --max-runs 0
        add v --max-runs 1000000
        add v --max-nodes 1000001
        add v --max-nodes x
        add v --creates-per-minute ٣
        list
        revoke vision
        revoke
        add {"v" * 63} --prefix {"p" * 61}-
        add {"v" * 64}
        add v --prefix {"p" * 62}-
        """.strip().splitlines():
        course.run(f"tenant {line.strip()}", named)


def pages(course: Course) -> None:
    """The page: of all runs, of one, of one elsewhere, in a file."""
    keys = RunKeys(secret_of(8), "far-8", "k9f2a9c1xy")
    view = ViewString(PLACE, "far-8", "k9f2a9c1xy", keys.read, keys.logs).text()
    elsewhere, key = {"RDZV_VIEW": view}, {"RDZV_UI_KEY": " the-key\n"}
    course.run("ui")
    course.run("ui", key)
    course.run("ui vis-77 --ui-actions --ui-port 29617 --ui-host a.b --ui-host c.d", key)
    course.run("ui llama-7b --ui-listen 0.0.0.0 --ui-behind-ingress --parent 4711")
    for line in ("ui", "ui far-8 --url https://localhost:7 --ui-actions", "ui llama-7b"):
        course.run(line, elsewhere)
    course.run("ui --save all.html", elsewhere)
    course.each(
        """
        ui --save all.html
        ui 77 --save one.html --ui-actions
        ui --url https://x:7
        ui --ui-port 0
        ui --ui-port 65536
        """
    )
    course.run("ui", {"RDZV_VIEW": "rdzvv1-no"})
    course.run("ui", {"RDZV_UI_KEY_FILE": str(course.folder / "none")})
    course.raises["check"] = UsageError("no such address", hint="another")
    course.run("ui")


def launches(course: Course) -> None:
    """A launch, a bench and a registry."""
    course.each(
        """
        launch --nnodes 2:3 --nproc-per-node 4,2,1 --spares 1 --state-dir s -- train.py --lr 3
        launch --nnodes 2 --dry-run --prefix --no-local-node --log-level debug -- -m train x
        launch --nnodes 2 --hostlist n3,n1 -- torchrun --nproc-per-node 7 train.py
        launch --nnodes 2 train.py --dry-run
        launch --nnodes 2 train.py --dry-run --lr 3 --nproc-per-node=8 -- --json
        launch --nnodes 2 -- --json --max-restarts=3 --dry-run train.py
        launch --nnodes 2 --framework torchrun -- --role x --strict train.py
        launch --nnodes 2 --framework command -- --strict train.py
        launch --nnodes 2
        launch --nnodes x -- t.py
        launch --nnode 2 -- t.py
        launch --nnodes 2 --frob 3 -- t.py
        launch --nnodes -- t.py
        launch --nnodes 2 --orphan-timeout nan -- t.py
        launch --nnodes 2 -- bash x
        launch --nnodes 2 --orpan-timeout 3 -- t.py
        bench --nnodes 2 --hostlist n1,n2 --plot net.svg
        bench --nnodes 3 --json
        bench --nnodes 2 -- t.py
        serve --registry-address r.example.com --port 29611
        serve --behind-ingress --journal /tmp/j.sqlite --frob
        """
    )
    course.run("serve --advertise n1", {"RDZV_TOKEN": "the-token"})
    course.run("launch --nnodes 2 -- t.py", {"RDZV_REGISTRY": registry_text()})
    worker = {"RDZV_JOIN": join_text(4), "ROLE": "worker", "NUM_NODES": "5", "GPUS_PER_NODE": "7"}
    course.run("launch -- t.py --lr 3", worker)
    course.run("launch --nnodes 2 -- t.py", worker | {"ROLE": "launcher"})


def symmetric(course: Course) -> None:
    """What each node of a symmetric start is, and whom it tells that it cannot."""
    for rank in ("0", "3", "3"):
        course.addresses = ("127.0.0.1", "10.4.0.9" if rank == "0" else "10.4.0.7")
        course.run("launch -- t.py --lr 3", GROUP | {"NODE_RANK": rank})
    course.run("bench --port 29612", GROUP | {"NODE_RANK": "2"})
    course.run("launch --dry-run --port 29612 -- t.py", GROUP | {"NODE_RANK": "3"})
    more: dict[str, str]
    for more in ({"NODE_RANK": "5"}, {"NODE_RANK": "x"}, {}, {"NODE_RANK": "1", "RDZV_ID": "a/b"}):
        course.run("launch --spares 1 -- t.py", GROUP | more)
    at_rank = GROUP | {"NODE_RANK": "4"}
    course.run("launch --frob -- t.py", at_rank)
    course.run("launch -- bash t.py", at_rank)
    course.run("launch --dry-run -- bash t.py", at_rank)
    course.run("launch --port 29612 --standby 2 --spares 3 --nnodes 3 -- bash t.py", at_rank)
    course.run("launch -- bash t.py", at_rank | {"RDZV_REGISTRY": registry_text()})
    course.run("launch -- bash t.py", at_rank | {"RDZV_TOKEN": "no"})
    course.raises["launch"] = Unauthorized("who?")
    course.raises["run_agent"] = Unauthorized("the registry has no such slot", hint="see why")
    for rank in ("2", "0"):
        course.addresses = ("127.0.0.1", "10.4.0.9" if rank == "0" else "10.4.0.7")
        course.run("launch -- t.py", GROUP | {"NODE_RANK": rank})
    course.run("launch --nnodes 2 -- t.py")
    course.addresses = ("10.4.0.9",)
    course.raises["launch"] = UsageError("no such scheduler", hint="another")
    course.run("launch -- t.py", GROUP | {"NODE_RANK": "0"})


def workers(course: Course) -> None:
    """A worker, with its join string from each place; and what it cannot start."""
    join = {"RDZV_JOIN": join_text(4)}
    (course.folder / "join").write_text(f"{join_text(6)}\n")
    (course.folder / "empty").write_text(" \n")
    (course.folder / "joins").mkdir()
    for name in ("join", "empty", "none", "joins"):
        of_file = {"RDZV_JOIN_FILE": str(course.folder / name)}
        course.run(f"worker --nnodes 5 --join-timeout 77 -- {name}.py --nnodes 3", of_file)
        course.run(f"worker --nnodes 5 -- {name}.py", of_file | join)
    for text in ("rdzv1-x", join_text(4)[:-3], join_text(4)[:-3] + "abc", registry_text()):
        course.run("worker --nnodes 5 -- t.py", {"RDZV_JOIN": text})
    course.run("worker --nnodes 5 --parent 4711 --log-level error --log-dir logs -- t.py", join)
    course.run("worker --nnodes 5 -- bash t.py", join)
    course.run("worker --nnodes 5 -- bash t.py", {"RDZV_JOIN": "rdzv1-x"})
    course.run("worker --framework command --nnodes 5 -- bash t.py", join)
    course.each(
        """
        worker --nnodes 5 -- bash t.py
        worker --nnodes 5 -- t.py
        worker --nnodes 5
        worker t.py --nnodes 5
        """
    )
    course.raises["run_agent"] = OSError(24, "Too many open files")
    course.run("worker --nnodes 5 -- t.py", join)
    course.raises["refuse_alone"] = RdzvError("nobody there")
    course.run("worker --nnodes 5 -- t.py", join)


def others(course: Course) -> None:
    """Machines, schedulers, pages, journals, and what other programs call."""
    (course.folder / "own.toml").write_text("x")
    course.each(
        """
        replay llama-7b
        replay ./llama-7b
        replay ./own.toml --json
        replay ./own.toml --nosuch
        replay own.toml
        replay ./none
        replay x
        replay postgres://a:b@c/d
        replay d0026d37
        """
    )
    (course.root / "llama-7b" / "journal.sqlite").write_text("x")
    course.each("replay lla --json\nreplay vis-77 --json")
    (course.folder / "llama-7b").write_text("x")
    course.each(
        """
        replay llama-7b
        replay ./llama-7b
        schedulers check
        schedulers check slurm --scheduler-profile own.toml
        schedulers check slurm --set A=1 --set B=2 --timeout 7 --worker-spec w.sh
        schedulers check --scheduler-profile own.toml --state-dir s
        schedulers chek slurm
        doctor
        doctor --json --strict --skip L06 --skip A01
        doctor --env --json
        docs nowhere
        docs chekcs
        rsh node-1 nvidia-smi --x -l
        completion tcsh
        frob
        stauts
        --frob
        token nwe
        status --jsn
        """
    )
    course.run("doctor --env", {"NODE_RANK": "3", "RDZV_TOKEN": "no"})
    for line in ("schedulers", "docs", "docs checks", "", "token", "completion bash"):
        course.run(line, brief=True)
    (course.folder / "afile").write_text("")
    for line in ("status", "cancel x", "prune"):
        course.run(f"{line} --state-dir afile")
        course.run(f"{line} --state-dir nowhere/at/all")


def denied(course: Course) -> None:
    """Runs of another user, whose folder cannot be looked into."""
    real = os.stat

    def stat(path: Any, *given: Any, **more: Any) -> os.stat_result:
        if str(path).endswith("7b/."):
            raise PermissionError(13, "Permission denied")
        return real(path, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", stat)
        for command in ("status", "cancel", "prune", "ui", "replay", "logs", "restart"):
            course.run(f"{command} llama-7b")
        for run in ("ma-7b", "vis-77"):
            course.run(f"status {run}")


def completed(course: Course) -> None:
    """What a shell completes: words, runs by their age, schedulers, frameworks, pages, files."""
    shell = ShellComplete(main, {}, "rdzv", VARIABLE)
    for line in (
        *("", "s", "status ", "status v", "cancel ", "logs ", "replay ", "ui ", "drain "),
        *("launch --sch", "launch --scheduler ", "launch --scheduler s", "launch --framework "),
        *("launch -- ", "launch --nnodes 2 ", "schedulers check ", "docs c", "token "),
        *("status --state-dir nowhere ", "prune ", "tenant ", "logs x --level ", "completion "),
        *("token view ", "restart ", "token metrics l"),
    ):
        *words, last = line.split(" ")
        found = shell.get_completions(words, last)
        hidden = () if words else OF_FEATURES
        shown = [f"{one.type}:{one.value}" for one in found if one.value not in hidden]
        course.add(f"{line!r} {shown}")


class _Full:
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fd", [1, 2])
@pytest.mark.parametrize("raises", [True, False])
def test_a_standard_stream_that_fails_leads_to_nowhere(
    monkeypatch: pytest.MonkeyPatch, fd: int, *, raises: bool
) -> None:
    """A launch goes on and says so where it can; other commands end with the stream's name."""
    calls: list[Any] = []

    def noted(name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            calls.append((name, *given))
            return 9

        return call

    for name in ("open", "dup2", "close", "write"):
        monkeypatch.setattr(os, name, noted(name))
    kind = streams._NamedStream if raises else streams._EnduringStream
    stream = kind(cast(Any, _Full()), fd)
    if raises:
        with pytest.raises(OSError, match="No space left on device: 'standard output'"):
            stream.write("no")
    else:
        assert stream.write("no") == 2
    assert calls[:3] == [("open", os.devnull, os.O_WRONLY), ("dup2", 9, fd), ("close", 9)]
    words = b"rdzv: standard output cannot be written: No space left on device; the run continues\n"
    assert calls[3:] == ([("write", 2, words)] if fd == 1 and not raises else [])


COURSES: dict[str, Callable[[Course], None]] = {
    one.__name__: one
    for one in (
        *(shown, logs, pruned, tokens, tenants, pages),
        *(launches, symmetric, workers, others, denied, completed),
    )
}


def _course(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    for variable in [*os.environ]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TMPDIR", str(folder))
    course = Course(folder, monkeypatch)
    COURSES[name](course)
    return course


@pytest.mark.parametrize("name", COURSES)
def test_each_command_does_as_it_was_written_down(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _course(name, tmp_path, monkeypatch).lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    write_down(KNOWN, COURSES, _course)
