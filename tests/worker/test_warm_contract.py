"""What is forked in place of torchrun's processes, by value."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import NO_RESTARTS, RestartFacts
from tests.worker.test_table import join, table
from worker.contracts import Contract, make_contract
from worker.contracts.framework import Paths
from worker.contracts.variables import ProgramOptions
from worker.contracts.warm import in_the_way, threads, warm_words
from worker.settings import WorkerSettings


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train.py --lr 3", "train.py --lr 3"),
        ("-m package.module --lr 3", "-m package.module --lr 3"),
        ("--module package.module", "-m package.module"),
        ("torchrun train.py", "train.py"),
        ("/opt/bin/torchrun -m module", "-m module"),
        ("train.py --max-restarts 3", "train.py --max-restarts 3"),
    ],
)
def test_what_each_process_executes(command: str, words: str) -> None:
    assert warm_words(command.split(), "torchrun", "static") == words.split()


@pytest.mark.parametrize(
    ("command", "framework", "backend", "why"),
    [
        ("train.py", "env", "static", "--framework env does not start its processes by torchrun"),
        ("train.py", "torchrun", "c10d", "--rdzv-backend c10d is served by torchrun itself"),
        ("--max-restarts 3 train.py", "torchrun", "static", "gives torchrun --max-restarts"),
        ("torchrun --no-python run.sh", "torchrun", "static", "gives torchrun --no-python"),
        ("run.sh", "torchrun", "static", "'run.sh' is not a Python file (.py)"),
        ("folder/", "torchrun", "static", "is not a Python file (.py)"),
        (
            "python -m torch.distributed.run train.py",
            "torchrun",
            "static",
            "COMMAND starts torchrun as a module: python -m torch.distributed.run",
        ),
        (
            "python train.py",
            "torchrun",
            "static",
            "--warm on forks processes of torchrun's own Python, but COMMAND names 'python'",
        ),
    ],
)
def test_what_cannot_be_forked_is_refused(
    command: str, framework: str, backend: str, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        warm_words(command.split(), framework, backend)
    assert why in caught.value.message
    assert "--warm on" in caught.value.hint


def contract(
    warm: str, environ: dict[str, str] | None = None, restarts: RestartFacts = NO_RESTARTS
) -> Contract:
    options = ProgramOptions.of({"framework": "torchrun", "warm": warm})
    words = ["train.py", "--lr", "3"]
    return make_contract(
        words, table(), join().slot, environ or {}, options, paths=Paths(), restarts=restarts
    )


def test_each_process_has_the_variables_that_torchrun_gives() -> None:
    """Those that a worker of torch 2.13 has beside its torchrun's; its error file is made there."""
    sealed = table()
    row = sealed.row_of_slot(join().slot)
    assert row is not None
    forks = contract("on", restarts=RestartFacts(restarts=2, max_restarts=5)).forks
    assert forks is not None
    assert forks.words == ["train.py", "--lr", "3"]
    first, world = sealed.first_process(row.node), sealed.world_size
    assert forks.ranks == [
        {
            "RANK": f"{first + local}",
            "LOCAL_RANK": f"{local}",
            "ROLE_RANK": f"{first + local}",
            "ROLE_NAME": "default",
            "ROLE_WORLD_SIZE": f"{world}",
            "WORLD_SIZE": f"{world}",
            "LOCAL_WORLD_SIZE": f"{row.nproc_per_node}",
            "GROUP_RANK": f"{row.node}",
            "GROUP_WORLD_SIZE": f"{len(sealed.rows)}",
            "TORCHELASTIC_RUN_ID": sealed.run,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "TORCHELASTIC_MAX_RESTARTS": "5",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        }
        for local in range(row.nproc_per_node)
    ]
    assert contract("off").forks is None


def test_what_the_user_has_set_is_kept() -> None:
    forks = contract("on", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}).forks
    assert forks is not None
    assert all("TORCH_NCCL_ASYNC_ERROR_HANDLING" not in rank for rank in forks.ranks)
    assert threads(1, {}) == {}
    assert threads(2, {}) == threads("gpu", {}) == {"OMP_NUM_THREADS": "1"}
    assert threads(2, {"OMP_NUM_THREADS": "4"}) == {}


def test_a_variable_that_only_torchrun_can_follow_is_in_the_way() -> None:
    assert in_the_way({"PET_NNODES": "2", "MASTER_ADDR": "a"}) == ""  # the table's
    for name in ("PET_LOG_DIR", "PYTHON_EXEC", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"):
        assert in_the_way({"PATH": "/bin", name: "x"}) == name


def test_the_modules_to_import_are_names() -> None:
    given = WorkerSettings(warm="on", warm_import="numpy, transformers.models")
    assert given.warm_import == "numpy,transformers.models"
    for text in ("a b", "import x", "a,,b", "a.", "-m"):
        with pytest.raises(ValidationError, match="is not the name of a module"):
            WorkerSettings(warm_import=text)
