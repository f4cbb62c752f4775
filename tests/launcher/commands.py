"""Commands of `rdzv` in a state folder with skewed runs, whose functions are stand-ins."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import StateDir
from rendezvous.feature import declared
from rendezvous.talk.credentials import RunKeys, metrics_credential, registry_credential
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    ViewString,
    parse_group_token,
)
from rendezvous.wire.run import Result
from tests.launcher.command import rdzv
from tests.support.courses import one_line

PLACE = RegistryPlace(("10.4.0.9", "fd00::7"), 29_607)
NOW = 1_790_000_000.0
OF_FEATURES = [str(one.load().name) for feature in declared() for one in feature.commands.values()]
"""Names of their commands."""
ASYNC = (
    *("launcher.run.command.launch", "launcher.run.bench.bench", "worker.agent.run_agent"),
    *("launcher.show.checks.show_checks", "launcher.show.checks.show_matrix"),
    *("launcher.show.epochs.show_epochs",),
    *("launcher.show.variables.show_environment", "launcher.show.run_list.show_runs"),
    *("launcher.show.status.show_status",),
    *("launcher.show.logs.show_logs", "launcher.run.cancel.cancel_run"),
    "launcher.run.requests.restart_run",
    *("launcher.run.requests.drain_node", "launcher.run.try_scheduler.check_scheduler"),
    *("launcher.run.tenants.add_tenant", "launcher.run.tenants.list_tenants"),
    *("launcher.run.tenants.revoke_tenant", "worker.offer.refusal.refuse_alone"),
)
PLAIN = (
    *("launcher.run.serve.serve", "launcher.show.machine.show_node", "worker.programs.rsh.main"),
    "launcher.symmetric.report.show_environment",
    *("launcher.ui.process.save", "launcher.ui.process.check", "launcher.ui.process.serve"),
    *("launcher.run.group_refusal.tell_group", "worker.program.hidden.hide_memory"),
    *("worker.program.process.die_with_parent", "launcher.cli.endure_closed_streams"),
    *("launcher.cli.log_to_stderr", "launcher.cli.log_to_file", "launcher.cli.ui.begin_work"),
    *("launcher.cli.process.begin_work", "os.execv", "signal.pthread_sigmask"),
)
SILENT = {
    *("hide_memory", "pthread_sigmask", "log_to_file", "die_with_parent", "begin_work"),
    *("endure_closed_streams", "log_to_stderr", "check", "save", "tell_group", "execv"),
}
"""Those whose result is None."""
UNTOLD = {
    *("hide_memory", "pthread_sigmask", "log_to_file", "log_to_stderr", "begin_work", "check"),
    "endure_closed_streams",
}
"""Those that are no part of what a command asks for; each has tests of its own."""
SECRET = {"run_agent", "launch"}
"""Those before which the process hides its memory."""
USUAL = ("environ", "world", "given")
"""Arguments that are the same each time, or have a test of their own."""


def secret_of(number: int) -> bytes:
    """Another one for each run."""
    return bytes(range(number, number + 32))


def registry_text(number: int = 9) -> str:
    """What the operator of a standing registry has."""
    return RegistryString(PLACE, registry_credential(secret_of(number))).text()


class Course:
    """A state folder with skewed runs, and commands that are called in it.

    Attributes:
        lines: Each command line, what it asked of whom, what it printed, and its exit code where
            that is not the one of whom it asked.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.root = folder, folder / "state"
        self.lines: list[str] = []
        self._codes = itertools.count(101)
        self._asked: list[str] = []
        self._code = 0
        self._shown: set[tuple[str, ...]] = set()
        self.raises: dict[str, Exception] = {}
        monkeypatch.chdir(folder)
        monkeypatch.setenv("RDZV_STATE_DIR", str(self.root))
        monkeypatch.setattr(time, "time", lambda: NOW)
        for name in ASYNC:
            self._stand_in(monkeypatch, name, is_async=True)
        for name in PLAIN:
            self._stand_in(monkeypatch, name, is_async=False)
        ground = contextlib.contextmanager(self._ground)
        monkeypatch.setattr("launcher.ui.ground.ground", ground)
        monkeypatch.setattr("rendezvous.talk.credentials.new_secret", lambda: secret_of(5))
        for number, (run, owns) in enumerate(
            {"llama-7b": True, "run-d0026d37": False, "mpt-d0026d37": True, "vis-77": True}.items()
        ):
            self.launched(run, number, owns=owns)

    def launched(self, run: str, number: int, *, owns: bool = True) -> StateDir:
        """A run whose launcher is gone; each has its own place, secret and age."""
        state = StateDir(self.root, run)
        state.acquire()
        state.secret(lambda: secret_of(number))
        place = RegistryPlace((f"10.4.0.{number + 3}",), 29_600 + number).to_json()
        record = LaunchRecord(
            run=run,
            launch_id=f"k{number}f2a9c1xy",
            scheduler="slurm",
            place=place,
            owns_registry=owns,
        )
        state.write_record(record)
        if number != 1:
            state.write_result(Result(status="failed", exit_code=number, message="x"))
        state.release()
        self.age(state, number)
        return state

    def age(self, state: StateDir, days: int) -> None:
        """Let it be so old."""
        for path in (*state.path.rglob("*"), state.path):
            os.utime(path, (NOW - 100.0, NOW - 86_400.0 * days))

    def _stand_in(self, monkeypatch: pytest.MonkeyPatch, where: str, *, is_async: bool) -> None:
        of, _, name = where.rpartition(".")
        module = importlib.import_module(of)  # not what its package has of that name
        real = getattr(module, name)
        signature = inspect.signature(real) if inspect.isfunction(real) else None

        def called(*args: Any, **kwargs: Any) -> Any:
            given: Any = dict(enumerate(args))
            if name == "execv":  # the place of this installation is its own
                given = {"words": args[1][args[1].index("_replay") :]}
            if signature is not None:
                given = signature.bind(*args, **kwargs).arguments
            assert given.get("environ", os.environ) is os.environ
            said = {key: self._said(value) for key, value in given.items() if key not in USUAL}
            words = " ".join(f"{key}={one}" for key, one in said.items() if one)
            if name in SECRET and "launch" not in self._asked:
                assert "hide_memory" in self._asked
            self._asked.append(name)
            if name not in UNTOLD:
                self.add(f"  {name} {words}".rstrip())
            if name in self.raises:
                raise self.raises[name]
            return None if name in SILENT else self._answer(name)

        async def later(*args: Any, **kwargs: Any) -> Any:
            return called(*args, **kwargs)

        monkeypatch.setattr(module, name, later if is_async else called)

    def _answer(self, name: str) -> Any:
        self._code = next(self._codes)
        return self._code

    def _ground(self, root: Path, view: object, url: object, *, acts: bool) -> Iterator[str]:
        self.add(f"  ground {self._said(view)} {url or ''} {'acts' * acts}".rstrip())
        yield "the ground"

    def _said(self, value: Any) -> str:
        """Nothing of what is as usual."""
        if value in (None, False, "", {}, (), self.root) or callable(value):
            return ""
        if isinstance(value, dict):
            said = {name: self._said(value[name]) for name in sorted(value)}
            return ", ".join(f"{name}={one}" for name, one in said.items() if one)
        if isinstance(value, ViewString):
            return f"view({value.place.port} {value.run})"
        if isinstance(value, Exception):
            return type(value).__name__
        if isinstance(value, RegistryString):
            return f"registry({value.place.port})"
        if isinstance(value, StateDir):
            return value.run
        if isinstance(value, BaseModel):
            given = value.model_dump(exclude_defaults=True)
            return str({name: one for name, one in given.items() if name != "state_dir"})
        if is_dataclass(value) and not isinstance(value, JoinString):
            usual = {one.name: one.default for one in fields(value)}
            given = {name: getattr(value, name) for name in usual}
            return str({name: one for name, one in given.items() if one != usual[name]})
        if isinstance(value, JoinString):
            return f"join({value.place.port} {value.run} {value.slot}.{value.generation})"
        return f"{value!r}"

    def add(self, words: object) -> None:
        """One line; the folder has one name, and a secret word is what can be read in it."""
        text = _WORD.sub(_read, one_line(words).replace(str(self.folder), "/f"))
        text = _METRICS.sub(_whose, text)
        text = re.sub(r"\d{3} characters", "many characters", text)  # as it is compressed
        self.lines.append(re.sub(r" at 0x[0-9a-f]+", "", text))

    def run(self, line: str, env: dict[str, str] | None = None, *, brief: bool = False) -> None:
        """Call it, and tell all that came of it."""
        told = {key: value.replace(str(self.folder), "/f") for key, value in (env or {}).items()}
        given = "".join(f"{key}={value} " for key, value in told.items() if len(value) < 60)
        self.add(f"$ {given}rdzv {line}")
        self._asked, self._code = [], 0
        defaults = {"RDZV_STATE_DIR": str(self.root)}
        result = rdzv(*shlex.split(line), env=defaults | (env or {}))
        assert isinstance(result.exception, SystemExit | None), result.output
        for name, text in (("out", result.stdout), ("err", result.stderr)):
            shown = [each for each in text.splitlines() if each.strip() and not _SEE.search(each)]
            if name == "err" and shown and tuple(shown) in self._shown:
                shown = [" ".join(shown[0].split()[:4]) + " ... (as above)"]
            elif name == "err":
                self._shown.add(tuple(shown))
            for each in shown[:2] if brief else shown:
                self.add(f"  {name}: {each}")
        if result.exit_code != self._code:
            self.add(f"  exit {result.exit_code}")

    def each(self, lines: str) -> None:
        """Each of them."""
        for line in lines.strip().splitlines():
            self.run(line.strip())


_SEE = re.compile(r" see rdzv [a-z ]+ --help$")
"""What stands below every wrong command line."""
_WORD = re.compile(r"rdzv(?:tok|reg|view)?1-[\w-]{60,}")


_METRICS = re.compile(r"\bm\.[\w-]{43}")


def _whose(found: re.Match[str]) -> str:
    """Name whose registry a credential for /metrics is of: a run's, or the standing one's."""
    admins = {number: registry_credential(secret_of(number)).sha256() for number in range(10)}
    known = {metrics_credential(admin).text(): number for number, admin in admins.items()}
    return f"metrics of registry {known[found[0]]}"


def _read(found: re.Match[str]) -> str:
    """What is in a word for a variable: its bytes are those of one build of zlib."""
    word = found[0]
    if word.startswith("rdzvtok1-"):
        return f"token({parse_group_token(word).hex()})"
    if word.startswith("rdzvview1-"):
        view = ViewString.parse(word)
        keys = RunKeys(secret_of(int(view.launch_id[1])), view.run, view.launch_id)
        assert (view.read.text(), view.logs.text()) == (keys.read.text(), keys.logs.text())
        return f"view({view.place.port} {view.run})"
    if word.startswith("rdzvreg1-"):
        registry = RegistryString.parse(word)
        known = {registry_credential(secret_of(number)).text() for number in (4, 7, 9)}
        assert registry.credential.text() in known
        place = registry.place
        return f"registry({place.addresses} {place.trust} replicas={place.replicas})"
    return "join"


def join_text(slot: int) -> str:
    """What the worker of a slot gets."""
    return JoinString.of(RunKeys(secret_of(2), "llama-7b", "k0f2a9c1xy"), PLACE, slot, 3).text()
