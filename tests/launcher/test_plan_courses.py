"""What a launch makes of what it was given is as in `planned.txt`: each value, note and refusal.

Nodes, spares, standbys, processes, slots, generations and times differ. Who changes a plan or a
sentence writes the file anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.endpoints import read_endpoint, without_program_port
from launcher.plan.host_entries import read_hostfile, read_hostlist
from launcher.plan.hostlist import notes_of, place, processes_of
from launcher.plan.losses import check_losses, loss_lines
from launcher.plan.named_hosts import working_folder
from launcher.plan.plan import Here, Plan, Site, Spec, check_run_id, parse_nnodes, run_name
from launcher.plan.set_variables import check_set
from launcher.plan.spec_command import without_rdzv
from launcher.plan.without_effect import without_effect
from rendezvous.wire.errors import UsageError
from tests.launcher.command import plan_of
from tests.support.courses import lines_in, one_line, text_of
from worker.counts import Processes

KNOWN = Path(__file__).with_name("planned.txt")
SCRIPT = "# <<NAME>> <<QUEUE>>\nrdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>\n"
FAR = Site(
    Spec("far.sh", SCRIPT),
    here=Here(Spec("here.yaml", "argv: [<<IMAGE>>]"), "/state/logs"),
    hosts=("n9", "ada@n7:2222", "n5", "n3", "n2", "n0"),
    cwd="/data/of mine",
    name_length=24,
)
NEAR = Site(Spec("near.yaml", SCRIPT), here=FAR.here, loopback=True, cwd="/work")
ALL: dict[str, Any] = {
    "nnodes": "2:4",
    "spares": 1,
    "standby": 1,
    "nproc_per_node": "8,5,2,7,3,6",
    "on_node_loss": "replace",
    "max_replacements": 9,
    "max_restarts": 4,
    "join_timeout": 601.0,
    "last_call": 11.5,
    "verify_timeout": 62.0,
    "arm_timeout": 63.0,
    "lease": 12.0,
    "grace": 7.5,
    "submit_retries": 13,
    "orphan_timeout": 150.0,
    "fence_timeout": 140.0,
    "master_port": 29_611,
    "probe_ports": "7100-7131",
    "address": ["10.4.0.9", "10.5.0.8"],
    "interface": ["eth3", "ib0"],
    "network": ["10.4.0.0/22"],
    "hosts": "require",
    "framework": "torchrun",
    "rdzv_backend": "c10d",
    "log_level": "debug",
    "set": ["QUEUE=a", "IMAGE=b c", "QUEUE=d=e"],
    "pass_env": ["LR", "BASH_FUNC_x%%"],
}
ENVIRON = {
    "LR": "0.1",
    "NCCL_DEBUG": "INFO",
    "OTHER": "x",
    "BASH_FUNC_x%%": "() { :; }",
    "LANG": "C",
}


class Told:
    """What came of each thing that was tried."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tries(self, words: str, step: Callable[..., object], *given: Any) -> None:
        """What comes of it, or why it is refused."""
        try:
            found = step(*given)
        except UsageError as exc:
            self.lines.append(one_line(f"{words} ! {exc.message} [{exc.hint}]"))
            return
        is_many = isinstance(found, list | tuple) and len(str(found)) > 150
        self.lines.append(one_line(f"{words} = {'' if is_many else found}").rstrip())
        if is_many and isinstance(found, Iterable):
            self.lines += [one_line(f"  {each}") for each in found]


def _plan(site: Site, given: dict[str, Any]) -> Plan:
    words = ("./train.py", "--max-restarts=1", "--nnodes", "two words")
    return plan_of(*words, site=site, environ=ENVIRON, **given)


def _values(plan: Plan, shown: dict[str, str]) -> list[str]:
    """Of three slots and of the run: what is not as it was shown last."""
    found = [
        (name, str(value))
        for slot, generation in ((0, 1), (2, 3), (5, 4))
        if slot < plan.slots
        for run in [plan.submission(slot, generation)]
        for name, value in {"source": run.source, **run.variables}.items()
    ]
    found += [(f"limit {name}", str(value)) for name, value in plan.limits() if value is not None]
    found += [("size", f"{plan.nnodes} {plan.slots} {plan.processes}")]
    found += [("passed", f"{plan.passed} {plan.not_passed}")]
    lines = []
    for name, value in found:
        if shown.get(name) != value:
            lines.append(f"{name} {value}")
        shown[name] = value
    return lines


def plans() -> Told:
    """Each value of a worker run, here and elsewhere, with all options and with none."""
    told, shown = Told(), dict[str, str]()
    for name, site, changes in (
        ("far, all", FAR, {}),
        ("far, no local node, shrinks", FAR, {"local_node": False, "on_node_loss": "shrink"}),
        ("near, all", NEAR, {"log_level": "info", "hosts": "auto", "prefix": False}),
        ("far, fails", FAR, {"on_node_loss": "fail"}),
        ("near, least", NEAR, {"nnodes": "1"}),
        ("far, least", FAR, {"nnodes": "3"}),
    ):
        plan = _plan(site, changes if "least" in name else ALL | changes)
        told.tries(name, _values, plan, shown)
        told.tries("without effect", without_effect, plan)
        told.tries("on a loss", lambda of: list(loss_lines(of)), plan)
        told.tries("on a loss", lambda of: list(loss_lines(of, owns_registry=False)), plan)
        told.tries("set", check_set, plan, ["IMAGE", "HOST"], "/x/far.toml")
    return told


WRONG: tuple[dict[str, Any], ...] = (
    {"nnodes": None},
    {"nnodes": "19995:19996", "spares": 2, "standby": 3},
    {"nnodes": "19995", "spares": 2, "standby": 3},
    {"nnodes": "3", "spares": 1, "nproc_per_node": "2,3,4"},
    {"nnodes": "3", "nproc_per_node": "2,3,4"},
    {"nnodes": "3", "pass_env": ["LT"]},
    {"nnodes": "3", "pass_env": ["ZZZZZZ"]},
    {"nnodes": "3", "set": ["image=x"]},
    {"nnodes": "3", "set": ["NAME=x"]},
)
LOSSES: tuple[dict[str, Any], ...] = (
    {"on_node_loss": "fail", "standby": 2},
    {"on_node_loss": "fail", "max_replacements": 3},
    {"on_node_loss": "fail", "fence_timeout": 31.5},
    {"on_node_loss": "fail", "standby": 0},
    {"on_node_loss": "replace", "fence_timeout": 301.0, "orphan_timeout": 300.0},
    {"on_node_loss": "replace", "fence_timeout": 300.0, "orphan_timeout": 300.0},
    {"on_node_loss": "replace", "fence_timeout": 9.0, "grace": 6.0, "lease": 15.0},
    {"on_node_loss": "replace", "orphan_timeout": 9.5, "grace": 20.0, "lease": 15.0},
    {"on_node_loss": "shrink"},
)


def refusals() -> Told:
    """What cannot be is refused, each in its own words; and what is next to it is not."""
    told = Told()
    for given in WRONG:
        told.tries(f"{given}", lambda of: plan_of("./t", environ=ENVIRON, **of).nnodes, given)
    settings: tuple[list[str], ...] = (["QUEUF=y"], ["OTHER=y", "QUEUE=3", "QUEUE=4"], [])
    for words in settings:
        for spec in (FAR.spec, Spec("n.yaml", "a: 1")):
            plan = plan_of("./t", site=Site(spec), nnodes="3", set=words)
            told.tries(f"{spec.source} {words}", check_set, plan, ["IMAGE"], "a/b")
    none = plan_of("./t", site=Site(Spec("n.yaml", "a: 1")), nnodes="3", set=["A=1"])
    told.tries("n.yaml", check_set, none, [], "b")
    for text in (None, "0", "4:2", "x", "3", "2:4"):
        for command in ((), ("./t", "--nnodes", "4", "x"), ("./t", "--nnodes=4", "x")):
            told.tries(f"nodes {text} {command}", parse_nnodes, text, command, "NUM_NODES")
    for text in ("a b", "-x", "", "r" * 80, "läuft", "ok-1", "a/b c"):
        told.tries(f"run id {text!r}", check_run_id, text, "RDZV_ID")
    for length in (15, 24, 63):
        told.tries(f"{length}", run_name, "k7f2a9c1xy" * 3, 4_095, 17, length)
    mpi = ["mpirun", "-q", "--mca", "a", "b", "-np", "8", "./t"]
    for loss in LOSSES:
        given_settings = plan_of("./t", nnodes="3", **loss).settings
        for size in ((3, 3), (2, 3), (1, 1)):
            told.tries(f"{loss} {size}", check_losses, given_settings, size, mpi)
    return told


LISTS = (
    ["n1:8,ada@n2 slots=5 port=2222", "[fd00::7]:3"],
    ["gpu[01-03,7]-ib[0-1]:2 user=bo"],
    ["n1,n2,N1.,n3,n1"],
    ["n1:2,n1:3,n2"],
    ["n1 slots = 4 max_slots=3"],
    ["n1 max-slots=5 slots=4"],
    *(["n1 max_slots="], ["n1 port=0"], ["n1 port=70000"], ["n1 port=65535"], ["n1 frob=2"]),
    *(["n1:2222222"], ["fe80::1"], ["fe80::1%eth0"], [",n1"], ["n1,,n2"], [" , "], ["ssh://n1"]),
    *(["@file"], ["n{1,2}"], ["n1*8"], ["n1;n2"], ["nö1"], ["1.2.3"], ["17"], ["a..b"], ["-n"]),
    *(["x" * 63], ["x" * 64], [f"{'x' * 62}." * 5 + "y"], ["n[3-1]"], ["n1 2 user="]),
)
FILES = (
    "\ufeff# all\nn1 8 all.q@n1 UNDEFINED\nn2 4 all.q@n2 UNDEFINED\n\n",
    "n1 slots=2\nn2 slots=3 # two\nn1\n",
    "n1\nn2 n3\n",
    "n1 n2 n3\n",
    "n1,n2\nn3\n",
    "# none\n",
    "n1 slots\n",
    "n1:9\n" * 1_000,
)
PLACED: tuple[dict[str, Any], ...] = (
    {"nnodes": None, "local_node": True},
    {"nnodes": "3", "local_node": False},
    {"nnodes": "4", "local_node": True, "own_names": ["n9", "localhost"]},
    {"nnodes": "3", "local_node": True, "own_names": ["n9"]},
    {"nnodes": "2", "local_node": True, "spares": 1},
    {"nnodes": "2", "local_node": True, "spares": 1, "standby": 1, "given_by": "NUM_NODES"},
    {"nnodes": "2", "local_node": False},
    {"nnodes": None, "local_node": False, "spares": 1, "standby": 2},
    {"nnodes": None, "local_node": True, "own_names": ["n2", "n3"]},
)


def machines() -> Told:
    """Hosts in the forms of the field, which slot each gets, and what is refused."""
    told = Told()
    for items in LISTS:
        told.tries(f"{items}"[:90], read_hostlist, items)
    for text in FILES:
        told.tries(f"{text!r}"[:90], read_hostfile, text, "hosts")
    three = read_hostlist(["n1:8,n2:5,n3:22"])
    own = {"own_names": ["n2.site", "localhost", "10.0.0.9"]}
    for given in PLACED:
        told.tries(f"{given}", lambda of: place(three, **of), own | given)
    mixed = read_hostlist(["n1:8,n4:65,n1:3"])
    for hosts in (three, mixed, read_hostlist(["n1:6,n2:6"]), read_hostlist(["a,b:3"])):
        told.tries("processes", processes_of, hosts)
        for counts in (None, Processes((8,)), Processes((8, 5, 9))):
            told.tries(f"notes {counts}", notes_of, hosts, "--hostfile", counts)
    return told


ADDRESSES = (
    *(" 10.0.0.4 ", "[fd00::7]", "fd00:0:0::7", "[fd00::7]:29601", "login:29602", "", "0.0.0.0"),
    *("::", "login:0", "login:70000", "https://me@login:29603/x?y", "http://[fd00::7]:29604/"),
    *("me@login", "a,b", "a b", "10.0.0", "-x", "https://", "https://a..b/"),
)
SPECS = (
    SCRIPT,
    "#!/bin/sh\n# rdzv worker\ntorchrun --nnodes 2 train.py\n",
    "argv: ['python3', '-m', 'x']\n",
    "kind: Job\nspec:\n  command:\n  - train\n",
    "kind: Job\n",
    'args = ["accelerate", "launch", "x"]\n',
    "exec $RDZV worker --x\n",
    "/opt/start.sh worker\n",
)


def endpoints() -> Told:
    """Addresses to dial, and what is meant by those that are none; specs that start no node."""
    told = Told()
    for text in ADDRESSES:
        told.tries(repr(text), read_endpoint, text, "--advertise")
    for text in ("n1:29500,n2:29600", "[fd00::7]:29500", "n1 ,x y:29500", "n1:29501"):
        told.tries(repr(text), without_program_port, text, [" 29500", "1"])
    for text in SPECS:
        told.tries(repr(text), without_rdzv, Spec("s.sh", text))
    return told


def test_a_working_folder_that_was_deleted_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def deleted() -> str:
        raise FileNotFoundError

    assert working_folder() == os.getcwd()
    monkeypatch.setattr(os, "getcwd", deleted)
    assert working_folder() == ""


COURSES = (plans, refusals, machines, endpoints)


@pytest.mark.parametrize("course", COURSES, ids=lambda course: course.__name__)
def test_what_is_planned(course: Callable[[], Told]) -> None:
    assert course().lines == lines_in(KNOWN, course.__name__)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of({one.__name__: one for one in COURSES})) == 0)
