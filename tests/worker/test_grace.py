"""How long torchrun, and what is forked in its place, wait for a rank that is told to end."""

from __future__ import annotations

import pytest

from tests.worker.agent.test_arming import Bench
from tests.worker.test_contracts import contract, table
from worker.agent.early import order_of
from worker.agent.notices import text_of
from worker.contracts import FRAMEWORKS
from worker.contracts.torchrun import SHUTDOWN, why_killed_early
from worker.machine.user_python import UserPython
from worker.programs.warm.starter import GRACE_SECONDS, grace_of

BY_TORCHRUN = ("torchrun", "torch.distributed.launch", "accelerate", "bench")


def shutdown(grace: float, framework: str = "torchrun", **environ: str) -> str | None:
    sealed = table(nproc=(2, 2))
    made = contract("x.py", framework=framework, grace=grace, environ=environ, sealed=sealed)
    return made.environment(environ).get(SHUTDOWN)


@pytest.mark.parametrize(
    ("grace", "seconds"), [(10.0, None), (30.0, None), (30.5, "31"), (45.0, "45"), (600.0, "600")]
)
@pytest.mark.parametrize("framework", BY_TORCHRUN)
def test_torchrun_waits_for_its_workers_as_long_as_rdzv(
    framework: str, grace: float, seconds: str | None
) -> None:
    assert shutdown(grace, framework) == seconds


def test_the_users_own_time_is_kept() -> None:
    assert shutdown(45.0, **{SHUTDOWN: "90"}) == "90"


@pytest.mark.parametrize("framework", ["env", "jax", "lightning", "command"])
def test_who_starts_no_torchrun_is_not_told(framework: str) -> None:
    assert shutdown(45.0, framework) is None


def test_a_torchrun_that_was_begun_early_is_told_at_the_go() -> None:
    given = {"PATH": "/bin"}
    assert order_of(["torchrun"], given, given | {SHUTDOWN: "45"}) is not None


@pytest.mark.parametrize(
    ("version", "waits"),
    [
        ("2.12.0", True),
        ("2.13.0+cpu", True),
        ("3.0", True),
        ("", True),
        ("2.x", True),
        ("2.11.1+cu128", False),
        ("1.13.1", False),
    ],
)
def test_an_older_torch_is_named(version: str, waits: bool) -> None:
    words = why_killed_early(version)
    assert (words == "") == waits
    assert waits or words.startswith(f"torchrun of torch {version} kills its workers 30 s after a ")


@pytest.mark.parametrize(
    ("grace", "version", "framework", "said"),
    [
        (45.0, "2.11.0", "torchrun", 1),
        (45.0, "2.13.0", "torchrun", 0),
        (20.0, "2.11.0", "torchrun", 0),
        (45.0, "2.11.0", "env", 0),
    ],
)
def test_a_node_says_that_30_s_is_all_there_is(
    grace: float, version: str, framework: str, said: int
) -> None:
    world = {"look_python": lambda program, environ: UserPython(torch=version)}
    node = Bench(world, framework=framework, grace=grace, command=["x.py"])
    notices = [one for one in node.arm().notices if "30 s after a stop" in text_of(one)]
    assert len(notices) == said


def test_forked_processes_have_as_long() -> None:
    assert grace_of({}) == GRACE_SECONDS
    assert grace_of({SHUTDOWN: "45"}) == 45.0
    assert grace_of({SHUTDOWN: "soon"}) == GRACE_SECONDS
    assert SHUTDOWN not in FRAMEWORKS["torchrun"].removes
