"""PyTorch's own tests of its elastic agent, with rdzv's rendezvous: `make test-torch`.

The files are those of the installed torch's version, fetched one by one into build/torch-tests;
nothing of them is kept in this repository. TORCH_TESTS=FOLDER names a checkout of PyTorch instead.
`JUDGED` says of each body whether it passes; docs/torchrun.md has their number, and `test_judge.py`
compares the two.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import tempfile
import unittest
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BASE = "https://raw.githubusercontent.com/pytorch/pytorch"
AGENT = "test/distributed/elastic/agent/server/test/local_elastic_agent_test.py"
LAUNCH = "test/distributed/launcher/api_test.py"
SCRIPTS = ("test_script.py", "test_script.sh")
FILES = (AGENT, LAUNCH, *(f"test/distributed/launcher/bin/{name}" for name in SCRIPTS))

PASSES = "passes"
JUDGED: dict[str, dict[str, str]] = {
    "LocalElasticAgentTest": {
        "dummy_compute": PASSES,
        "run_happy_function": PASSES,
        "check_master_addr_port_override": PASSES,
        "run_check_env_function": PASSES,
        "run_check_nccl_async_error_handling_env": PASSES,
        "run_check_nccl_async_error_handling_env_default": PASSES,
        "run_agent_local_watchdog_setup_enabled": PASSES,
        "run_agent_local_watchdog_setup_disabled": PASSES,
        "run_function_with_return_value": PASSES,
        "simple_dist_sum": PASSES,
        "run_distributed_sum_homogeneous": PASSES,
        "run_distributed_sum_heterogeneous": PASSES,
        "run_sad_function": PASSES,
        "run_bipolar_function": PASSES,
        "correct_rank_assignment_heterogeneous": PASSES,
        "correct_rank_assignment_homogeneous": PASSES,
        "double_agent_fault_tolerance": PASSES,
        "double_agent_elastic": PASSES,
        "no_exit_barrier_on_failure": PASSES,
        "torch_rpc": PASSES,
        "workers_drift_success": PASSES,
        "workers_drift_fail": PASSES,
        "barrier_failed": PASSES,
        "shutdown_called": PASSES,
    },
    "ElasticLaunchTest": {
        "test_launch_script_python": PASSES,
        "test_launch_script_python_local_rank_transfer": PASSES,
        "test_launch_script_bash": PASSES,
        "test_launch_function": PASSES,
        "test_launch_dist_sum_with_static_rdzv": PASSES,
        "test_launch_elastic": PASSES,
        "test_launch_elastic_worker_raise_exception": PASSES,
        "test_launch_elastic_agent_raise_exception": PASSES,
        "test_launch_elastic_multiple_agents": PASSES,
        "test_launch_shutdown": PASSES,
        "test_rdzv_handler_shutdown_on_agent_signal": PASSES,
        "test_rdzv_handler_shutdown_on_agent_error": PASSES,
    },
}
"""By class and body: that it passes, or why it cannot."""
_LAST_CALL_SECONDS = "3"
_ETCD, _RDZV = 'rdzv_backend: str = "etcd"', 'rdzv_backend: str = "rdzv"'


def fetched(version: str) -> Path:
    """The folder of PyTorch's files of this version."""
    if given := os.environ.get("TORCH_TESTS"):
        return Path(given).resolve()
    folder = Path("build/torch-tests").resolve() / version
    for name in FILES:
        file = folder / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(f"{BASE}/v{version}/{name}") as answer:
                file.write_bytes(answer.read())
            file.chmod(0o755)
    return folder


def _module(file: Path, name: str, folder: Path) -> Any:
    """A file of PyTorch's, as a module that its processes find by this name as well."""
    text = file.read_text().replace(_ETCD, _RDZV)
    (folder / f"{name}.py").write_text(text)
    return importlib.import_module(name)


class _Judged:
    """What replaces etcd: a registry of each test's own, and the token, where a node looks."""

    @classmethod
    def setUpClass(cls) -> None:
        """No etcd."""

    @classmethod
    def tearDownClass(cls) -> None:
        """No etcd."""

    def setUp(self) -> None:
        """A free port; the handler takes the variable away."""
        os.environ["RDZV_TOKEN_FILE"] = os.environ["JUDGE_TOKEN_FILE"]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._etcd_endpoint = f"localhost:{free.getsockname()[1]}"
        super().setUp()  # type: ignore[misc]


def _agent_tests(module: Any) -> Iterator[unittest.TestCase]:
    class Judged(_Judged, module.LocalElasticAgentTest):  # type: ignore[misc]
        def __init__(self, body: str) -> None:
            super().__init__("judge")
            self.body = body

        def __str__(self) -> str:
            return self.body

        def judge(self) -> None:
            self.run_test_with_backend("rdzv", getattr(self, self.body))

    yield from map(Judged, JUDGED["LocalElasticAgentTest"])


def _launch_tests(module: Any) -> Iterator[unittest.TestCase]:
    judged = type("Judged", (_Judged, module.ElasticLaunchTest), {})
    yield from map(judged, JUDGED["ElasticLaunchTest"])


class _Verdict(unittest.TextTestResult):
    """One line for each body."""

    def startTest(self, test: unittest.TestCase) -> None:
        """See the base class."""
        super().startTest(test)
        print(f"{test} ...", flush=True)


def main(words: list[str]) -> int:
    """Judge all bodies, or those that are named; 0 where all is as `JUDGED` says."""
    import torch

    version = torch.__version__.partition("+")[0]
    source = fetched(version)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sys.path.insert(0, place)
        os.environ["PYTHONPATH"] = place
        (folder / "bin").symlink_to(source / "test/distributed/launcher/bin")
        _write_environment(folder)
        agents = _module(source / AGENT, "judged_agent", folder)
        launches = _module(source / LAUNCH, "judged_launch", folder)
        tests = [*_agent_tests(agents), *_launch_tests(launches)]
        chosen = [test for test in tests if not words or any(w in str(test) for w in words)]
        runner: Any = unittest.TextTestRunner
        runner = runner(resultclass=_Verdict, stream=sys.stdout, verbosity=2)
        result = runner.run(unittest.TestSuite(chosen))
    print(f"torch {version}: {result.testsRun} bodies")
    return int(not result.wasSuccessful())


def _write_environment(folder: Path) -> None:
    from rendezvous.talk.credentials import new_secret
    from rendezvous.talk.join_string import group_token_text

    token = folder / "token"
    token.write_text(group_token_text(new_secret()))
    os.environ["JUDGE_TOKEN_FILE"] = str(token)
    os.environ["RDZV_LAST_CALL"] = _LAST_CALL_SECONDS
    os.environ["RDZV_STATE_DIR"] = str(folder / "state")
    os.environ["RDZV_LOG_LEVEL"] = "warning"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
