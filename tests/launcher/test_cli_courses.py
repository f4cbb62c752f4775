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
from typing import Any

import pytest

from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import ViewString, group_token_text
from rendezvous.wire.errors import UsageError
from tests.launcher.commands import PLACE, Course, join_text, registry_text, secret_of
from tests.support.courses import lines_in, write_down

KNOWN = Path(__file__).with_name("cli.txt")


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


def tokens(course: Course) -> None:
    """Each token is for whom it says, once and again."""
    token = {"RDZV_TOKEN": group_token_text(secret_of(4))}
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


COURSES: dict[str, Callable[[Course], None]] = {
    one.__name__: one for one in (shown, logs, tokens, pages, launches, others, denied)
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
