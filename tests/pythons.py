"""The other Pythons that rdzv supports: where they are, and the core of the tests on each of them.

    python -m tests.pythons [--all | --install] 3.10 3.13

runs a few real launches on each version in an environment of its own below build/pythons, and on
the first one, which should be the oldest, a tenth of the tests that no clock and no network
disturbs: `make test` has run all of them. The oldest Python that pyproject.toml allows has the
oldest packages that it allows. What starts a torchrun needs torch, and is left out.
With `--all` it is the everyday suite, without what needs torch; with `--install` the environments
are made, and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support.venvs import install

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "pythons"
PACKAGES = (
    *("asyncpg", "hypothesis", "matplotlib", "nvidia-ml-py", "prometheus-client", "psutil"),
    "pytest",
    *("pyyaml", "uv"),
)
"""Of the extras `test` and `test-all`, those whose names begin so."""
PURE = {
    "tests/features/machines": ("node", "page_usage", "view"),
    "tests/features/metrics": ("node", "page_curves", "page_ranks", "page_series", "view"),
    "tests/features/hang": (
        *(
            "blame",
            "calls",
            "children",
            "judge",
            "no_false_stall",
            "node",
            "quiet",
            "sentences",
            "silences",
            "stacks",
            "stalls",
        ),
        "watch",
    ),
    "tests/features/hang/ranks": (
        *("fitting", "held_back", "process_groups", "recorder", "signalling", "stacks"),
    ),
    "tests/launcher": (
        *(
            "adopt",
            "avoiding",
            "bench_command",
            "dry_run",
            "endpoints",
            "given",
            "given_variables",
            "hostlist",
            "losses",
            "options",
        ),
        "plan",
        *("run_course", "run_ending", "run_ground", "run_hosts", "run_replacing", "run_slots"),
        *("run_names", "set_variables", "specs", "spec_command", "symmetric"),
        *("run_file", "run_file_advice", "template", "ui_prometheus"),
    ),
    "tests/rendezvous": (
        *("admission", "before_the_go", "blame", "certificate", "clock", "compare"),
        *(
            "commits",
            "credentials",
            "sealed_variables",
            "membership",
            "moving",
            "other_program",
            "postgres_members",
            "quotas",
        ),
        *("departures", "errors", "first_cause", "fold", "join_string", "last_words"),
        *("head", "hostnames", "last_resort", "origins", "refusals", "second_time", "skewed"),
        *(
            "leases",
            "networks",
            "path_findings",
            "placement",
            "prometheus",
            "protocol",
            "messages",
            "protocol_number",
            "refusals",
        ),
        *(
            "replacing",
            "replay",
            "request_head",
            "restarts",
            "schema",
        ),
        *("cold", "explaining", "mixed", "verdict", "verifying", "views", "worlds"),
    ),
    "tests/rendezvous/cause": (
        *("clues", "collectives", "corpus", "judge", "lines", "ours", "ports"),
        *("public", "second_corpus", "sentences"),
        *("table", "telling", "tracebacks"),
    ),
    "tests/ui": ("door", "page", "phases", "save", "sessions", "slot_rows", "told"),
    "tests/worker": (
        *("accelerate", "address", "choice", "contracts", "family", "frameworks", "frameworks_mpi"),
        *("frameworks_page", "grace", "hosts", "hosts_plan", "hosts_text", "launcher_lines"),
        *("nccl", "needs", "outer"),
        *(
            "own_environment",
            "own_restarts",
            "prefixed",
            "probe_packets",
            "probe_ports",
            "python_call",
        ),
        *("rsh_command_line", "settings", "table", "telling", "terminal_rows", "variables"),
        *("wanted", "warm_contract"),
    ),
    "tests/worker/agent": (
        *(
            "attempt",
            "cold",
            "departing",
            "evidence",
            "fencing",
            "following",
            "held_watch",
            "joining",
        ),
        *("last_words", "leaving", "node", "publishing", "questions", "reports"),
        *("restarting", "secrets", "standing_by", "viewing", "watching", "worlds"),
    ),
    "tests/worker/evidence": ("groups", "kernel_log", "places", "rank_processes"),
    "tests/worker/look": ("answer", "worlds"),
}
WHOLE = (
    "tests/launcher/test_processes.py",
    "tests/launcher/test_rdzv_command.py",
    "tests/path/test_frameworks.py",
)
"""Entry point and launches, as on the version that everything else is tested on."""
LONG = (
    *("test_a_hang_after_a_checkpoint_of_20_minutes_is_named_in_the_end", "TestMachine"),
    *("test_no_silence_of_two_hours_is_a_stall", "test_no_slow_start_is_ended"),
    *("test_the_cause_is_named_in_any_order_of_arrival", "test_the_largest_run_is_judged_soon"),
)
"""Half of the time of what is pure: many cases of what others run as well, and not counted."""
OLDEST = (
    *("tests/launcher/test_dry_run.py", "tests/launcher/test_options.py"),
    "tests/launcher/test_specs.py",
    *("tests/rendezvous/cause/test_tracebacks.py", "tests/features/hang/test_stacks.py"),
    *("tests/rendezvous/test_replay.py", "tests/rendezvous/test_schema.py"),
    *("tests/worker/agent/test_node.py", "tests/features/hang/ranks/test_stacks.py"),
    *("tests/worker/test_hosts_text.py", "tests/worker/test_python_call.py"),
    "tests/worker/test_settings.py",
)
"""Where Pythons differ: enums, models and their errors, TOML, tracebacks, calls."""
ALL = ("tests", "--ignore=tests/simulation")
"""Simulated machines share a context, which tasks cannot before Python 3.11."""
NOT_HERE = (
    "browser or netns or torch or faults or frameworks or fuzz or page or schedulers or wheel or "
    "nightly"
)


def interpreter(version: str) -> Path | None:
    """The Python of this version: on PATH, or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    found = [Path(on_path)] if on_path else []
    found += sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    return next((path for path in found if _is(path, version)), None)


def _is(path: Path, version: str) -> bool:
    """Whether it is one; pyenv puts a command of each version on PATH that may not run."""
    test = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", test], capture_output=True, text=True)
    return done.stdout.strip() == version


def environment(version: str, python: Path) -> Path:
    """The interpreter of an environment with rdzv and what its tests need."""
    home = FOLDER / version
    own, mark = home / "bin" / "python", home / "installed"
    project = ROOT / "pyproject.toml"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{version}.lock").open("w") as lock:  # CI makes it beside other steps
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.stat().st_mtime < project.stat().st_mtime:
            subprocess.run([python, "-m", "venv", "--clear", home], check=True)
            text = project.read_text(encoding="utf-8")
            extras = re.findall(r"\ntest(?:-all)? = \[\n(.*?)\n\]", text, re.S)
            words = re.findall(r'"([^"]+)"', "\n".join(extras))
            wanted = [word for word in words if word.startswith(PACKAGES)]
            oldest = f'requires-python = ">={version}"' in text
            resolution = "lowest-direct" if oldest else "highest"
            install(own, "--editable", f"{ROOT}[launcher]", UV_RESOLUTION=resolution)
            install(own, *wanted)  # tests are as new as elsewhere
            mark.touch()
    return own


def test(own: Path, workers: int, *words: str) -> int:
    """Run these tests on it; returns pytest's exit code."""
    pytest_options = ("-q", "-n", f"{workers}", "-p", "no:cacheprovider", "-m")
    return subprocess.run([own, "-m", "pytest", *pytest_options, *words], cwd=ROOT).returncode


def pure() -> list[str]:
    """The files of what is pure, and decides."""
    return [f"{folder}/test_{name}.py" for folder, names in PURE.items() for name in names]


def main(words: list[str]) -> int:
    """Test each version; returns how many failed or are not here."""
    failed = 0
    for version in (word for word in words if not word.startswith("--")):
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not on PATH and not among pyenv's")
            failed += os.environ.get("RDZV_CI") == "1"
            continue
        began = time.monotonic()
        own = environment(version, python)
        if "--install" in words:
            continue
        made = time.monotonic()
        workers = int(os.environ.get("WORKERS", "3"))
        few = (*WHOLE, *OLDEST) if version == words[0] else WHOLE
        code = test(own, workers, f"not ({NOT_HERE})", *(ALL if "--all" in words else few))
        failed += code != 0
        spent = f"{made - began:.0f} s to install, {time.monotonic() - made:.0f} s of tests"
        print(f"Python {version}: {'failed' if code else 'ok'}, {spent}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
