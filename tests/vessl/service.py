"""A stand-in for VESSL's API that behaves: what is created is listed, read, logged and terminated.

It answers what VESSL's published client needs, on a socket of this machine or of an emulated host.
With a `Cluster` it also starts the runs: the `run:` of the spec as a process, with the `env:` of
the spec, and the statuses follow the process.

It reads specs as YAML 1.2 readers do, not as PyYAML does: 12e4567 is a number here.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.netlab import Host

TOKEN = "vessl-token-of-the-test"
ORGANIZATION = "acme"
FIRST_ID = 369_367_263_402
ECHO = "This is no good:"
FINAL = ("completed", "failed", "terminated")
_GRACE_SECONDS = 20.0
_STEP_SECONDS = 0.02


class _Reader(yaml.SafeLoader):
    """Numbers, truths and nulls as YAML 1.2 has them."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (as its base class has it)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)",
        "-+.0123456789",
    ),
):
    _Reader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first)
    )


def _int(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(node.value)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _float(_: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(str(node.value).replace(".inf", "inf").replace(".nan", "nan"))


_Reader.add_constructor("tag:yaml.org,2002:int", _int)
_Reader.add_constructor("tag:yaml.org,2002:float", _float)


def read_spec(text: str) -> Any:
    """A spec as the service takes it."""
    return yaml.load(text, Loader=_Reader)


def environment_of(spec: dict[str, Any]) -> dict[str, str]:
    """The variables of a spec, as its process gets them."""
    found = {}
    for name, value in (spec.get("env") or {}).items():
        plain = value.get("value") if isinstance(value, dict) else value
        found[str(name)] = str(plain).lower() if isinstance(plain, bool) else str(plain)
    return found


@dataclass
class Run:
    """One run execution."""

    id: int
    project: str
    text: str
    spec: dict[str, Any]
    status: str = "pending"
    reason: str = ""
    lines: list[tuple[float, str]] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    told_to_end: bool = False

    @property
    def name(self) -> str:
        """The name of the spec."""
        return str(self.spec.get("name"))

    def view(self) -> dict[str, Any]:
        """What the API shows of it."""
        return {
            "id": self.id,
            "status": self.status,
            "status_reason": self.reason,
            "message": str(self.spec.get("description", "")),
            "create_dt": "2026-09-05T12:30:45.123456Z",
            "immutable_slug": f"slug-{self.id}",
            "is_starred": False,
            "histories": [],
            "tags": [],
            "organization": {"name": ORGANIZATION},
            "run_spec": {
                "title": self.name,
                "type": "batch",
                "description": "",
                "cluster": {"name": (self.spec.get("resources") or {}).get("cluster", "")},
                "spec": {
                    "command": [],
                    "env_vars": [],
                    "ports": [],
                    "service_account_name": "",
                    "termination_protection": False,
                },
            },
        }


@dataclass
class Cluster:
    """What runs are started on: each on a host of its own, where there are any.

    Attributes:
        folder: Of the runs' logs and configuration files.
        environ: What every run has in its environment, beside the variables of its spec.
        mounts: Where the folders that a spec imports lie on this machine.
        hosts: Emulated hosts, taken in turn.
    """

    folder: Path
    environ: dict[str, str]
    mounts: dict[str, str] = field(default_factory=dict)
    hosts: list[Host] = field(default_factory=list)
    _taken: Any = field(default_factory=itertools.count)

    def start(self, run: Run, account: dict[str, str]) -> subprocess.Popen[str]:
        """Start the run's command, as the platform does: a file that `sh` reads."""
        home = self.folder / str(run.id)
        home.mkdir()
        config = home / "config.toml"
        lines = [f"{key} = {json.dumps(value)}" for key, value in account.items()]
        config.write_text("\n".join(["[user]", *lines, ""]))
        command = str(run.spec["run"])
        for mount, place in self.mounts.items():
            command = re.sub(rf"(?<!\S){mount}", place, command)
        script = home / "run.sh"
        script.write_text(command + "\n")
        argv = ["sh", str(script)]
        if self.hosts:
            argv = self.hosts[next(self._taken) % len(self.hosts)].command(argv)
        return subprocess.Popen(
            argv,
            env={
                **self.environ,
                "HOME": str(home),
                "VESSL_RUN_INITIAL_CONFIG": str(config),
                **environment_of(run.spec),
            },
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class Vessl:
    """The service; a context manager that serves.

    Args:
        projects: Those of the one organization.
        cluster: What starts the runs; without one their statuses stay what a test sets.
        listener: A socket to serve on.

    Attributes:
        runs: By id, in the order of their creation.
        requests: Method and path of each request.
        told: Each request that was answered with an error, for a test to look at.
    """

    def __init__(
        self,
        *,
        projects: tuple[str, ...] = ("llama", "other"),
        clusters: tuple[str, ...] = ("gpu-cluster",),
        cluster: Cluster | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self.projects, self.clusters, self.cluster = projects, clusters, cluster
        self.runs: dict[int, Run] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.pages = 1000
        """The most runs of one list."""
        self.knows_pages = True
        self.errors: list[Any] = []
        """Statuses for the next creations, which make nothing; ECHO repeats what it was sent."""
        self.lose_answers = 0
        """So many creations are served, and the connection is closed."""
        self.lose_reads = 0
        """So many reads of one run fail."""
        self.stuck = threading.Event()
        """While it is set, nothing is answered."""
        self.hidden = 0
        """So many lists do not show anything."""
        self.pending: Callable[[Run], bool] = lambda run: False
        """Runs that stay pending."""
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._server = _Server(self, listener)

    @property
    def host(self) -> str:
        """What VESSL_API_HOST is to be."""
        address, port = self._server.server_address[:2]
        return f"http://{address!s}:{port}"

    def account(self, project: str = "llama") -> dict[str, str]:
        """What a configuration file of the client holds."""
        return {
            "access_token": TOKEN,
            "default_organization": ORGANIZATION,
            "default_project": project,
        }

    def environ(self, project: str = "llama", **more: str) -> dict[str, str]:
        """The variables of a person with an account."""
        return {
            "VESSL_API_HOST": self.host,
            "VESSL_ACCESS_TOKEN": TOKEN,
            "VESSL_DEFAULT_ORGANIZATION": ORGANIZATION,
            "VESSL_DEFAULT_PROJECT": project,
            **more,
        }

    def named(self, part: str) -> list[Run]:
        """The runs with this in their name."""
        return [run for run in list(self.runs.values()) if part in run.name]

    def posts(self) -> list[str]:
        """The creations that were asked for."""
        return [line for line in self.requests if line.endswith("create_from_yaml")]

    def __enter__(self) -> Vessl:
        self._serve(self._server.serve_forever, _STEP_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        self.stuck.clear()
        for run in list(self.runs.values()):
            if run.process is not None and run.process.poll() is None:
                _signal(run.process, signal.SIGKILL)
        self._server.shutdown()
        for thread in self._threads:
            thread.join(20)
        self._server.server_close()

    def _serve(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- what requests do ---------------------------------------------------------------------

    def create(self, project: str, text: str) -> Run:
        """Make a run; raises ValueError for what is no spec."""
        spec = read_spec(text)
        if not isinstance(spec, dict) or "image" not in spec:
            raise ValueError("image is required")
        with self._lock:
            run = Run(FIRST_ID + len(self.runs), project, text, spec)
            run.lines.append((time.time(), f"Run {run.name} was created."))
            self.runs[run.id] = run
        if self.cluster is not None:
            self._serve(self._live, run)
        return run

    def terminate(self, run: Run) -> None:
        """End a run; one that never started is over at once."""
        run.told_to_end = True
        with self._lock:  # else the end of its process may come in between, and be forgotten
            process = run.process
            if run.status in FINAL:
                return
            run.status = "terminated" if process is None else "stopping"
        if process is not None:
            _signal(process, signal.SIGTERM)

    def evict(self, run: Run) -> None:
        """Take a run's node away, as for a spot instance."""
        assert run.process is not None
        run.reason = "Preempted: the node was reclaimed"
        _signal(run.process, signal.SIGKILL)

    def _live(self, run: Run) -> None:
        """A run's life on the cluster."""
        assert self.cluster is not None
        while self.pending(run) and run.status == "pending":
            if self._closing.wait(_STEP_SECONDS):
                return
        if run.status != "pending":
            return
        run.status = "initializing"
        run.process = process = self.cluster.start(run, self.account(run.project))
        if run.told_to_end:
            _signal(process, signal.SIGTERM)
        run.status = "stopping" if run.told_to_end else "running"
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                run.lines.append((time.time(), line.rstrip("\n")))
        code = process.wait()
        _signal(process, signal.SIGKILL)  # a pod's other processes go with its first
        with self._lock:
            if run.told_to_end:
                run.status = "terminated"
            else:
                run.status = "completed" if code == 0 else "failed"
                run.reason = run.reason or (f"Exit code {code}" if code else "")


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


# --- the wire ---------------------------------------------------------------------------------

_ORGANIZATION_PATH = re.compile(r"/api/v1/organizations/([^/]+)(?:/(projects|clusters))?$")
_PROJECT_PATH = re.compile(r"/api/v1/organizations/([^/]+)/projects/([^/]+)/(.+)$")
_RUN_PATH = re.compile(r"run_executions/(\d+)(?:/(terminate|logs))?$")


class _Refusal(Exception):
    """An answer that says no."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(status)
        self.status, self.body = status, {"code": code, "message": message}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, vessl: Vessl, listener: socket.socket | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=listener is None)
        self.vessl = vessl
        if listener is not None:
            self.socket.close()
            self.socket = listener
            self.server_address = listener.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        """See the base class."""
        self._do("GET")

    def do_POST(self) -> None:
        """See the base class."""
        self._do("POST")

    def do_DELETE(self) -> None:
        """See the base class."""
        self._do("DELETE")

    def _do(self, method: str) -> None:
        vessl = self.server.vessl
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}") if size else {}
        place = urlsplit(self.path)
        vessl.requests.append(f"{method} {place.path}")
        vessl.headers.append(dict(self.headers.items()))
        while vessl.stuck.is_set():
            time.sleep(_STEP_SECONDS)
        query = {key: values[0] for key, values in parse_qs(place.query).items()}
        try:
            if self.headers.get("Authorization") != f"Token {TOKEN}":
                raise _Refusal(401, "Unauthorized", "Invalid token.")
            answer = self._answer(vessl, method, place.path, query, body)
        except _Refusal as refusal:
            self._send(refusal.status, refusal.body)
        except ConnectionAbortedError:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._send(200, answer)

    def _answer(
        self, vessl: Vessl, method: str, path: str, query: dict[str, str], body: dict[str, Any]
    ) -> Any:
        if path == "/api/v1/accounts/me":
            return {"username": "person", "email": "person@example.com"}
        if of_organization := _ORGANIZATION_PATH.match(path):
            return _of_organization(vessl, *of_organization.groups())
        of_project = _PROJECT_PATH.match(path)
        if of_project is None:
            raise _Refusal(404, "NotFound")
        organization, project, rest = of_project.groups()
        if organization != ORGANIZATION or project not in vessl.projects:
            raise _Refusal(404, "NotFound", "There is no such project.")
        if (method, rest) == ("POST", "run/spec/create_from_yaml"):
            return _created(vessl, project, body)
        if rest == "run_executions":
            return _listed(vessl, project, query)
        of_run = _RUN_PATH.match(rest)
        run = vessl.runs.get(int(of_run[1])) if of_run else None
        if of_run is None or run is None or run.project != project:
            raise _Refusal(404, "NotFound", "There is no such run.")
        return _of_run(vessl, run, of_run[2], query)

    def _send(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _of_organization(vessl: Vessl, organization: str, what: str | None) -> Any:
    if organization != ORGANIZATION:
        raise _Refusal(404, "NotFound", "There is no such organization.")
    if what == "projects":
        return {"results": [{"id": 1, "name": name} for name in vessl.projects]}
    if what == "clusters":
        return {"clusters": [{"id": 1, "name": name} for name in vessl.clusters]}
    return {"id": 1, "name": ORGANIZATION}


def _created(vessl: Vessl, project: str, body: dict[str, Any]) -> Any:
    if vessl.errors == [ECHO]:
        raise _Refusal(422, "InvalidSpec", f"{vessl.errors.pop()} {body['yaml_spec']}")
    if vessl.errors:
        raise _Refusal(vessl.errors.pop(0), "InternalServerError", "Something went wrong.")
    try:
        run = vessl.create(project, body["yaml_spec"])
    except (ValueError, yaml.YAMLError) as exc:
        raise _Refusal(400, "InvalidSpec", str(exc)) from exc
    if vessl.lose_answers:
        vessl.lose_answers -= 1
        raise ConnectionAbortedError
    return {"run_execution": {"id": run.id}, "run_spec": {"title": run.name}}


def _listed(vessl: Vessl, project: str, query: dict[str, str]) -> Any:
    if vessl.hidden:
        vessl.hidden -= 1
        return {"results": []}
    runs = [run for run in reversed(vessl.runs.values()) if run.project == project]
    start = int(query.get("offset", 0)) if vessl.knows_pages else 0
    size = min(int(query.get("limit", vessl.pages)), vessl.pages)
    return {"results": [run.view() for run in runs[start : start + size]]}


def _of_run(vessl: Vessl, run: Run, what: str | None, query: dict[str, str]) -> Any:
    if what == "terminate":
        if run.status in FINAL:
            raise _Refusal(409, "Conflict", "The run is over.")
        vessl.terminate(run)
        return run.view()
    if what == "logs":
        after = float(query.get("log_start") or 0)
        rows = [row for row in run.lines if row[0] >= after]
        limit = int(query.get("log_limit") or 0)
        rows = rows[-limit:] if limit else rows
        return {"logs": [_log_row(*row) for row in rows]}
    if vessl.lose_reads:
        vessl.lose_reads -= 1
        raise _Refusal(500, "InternalServerError", "Something went wrong.")
    return run.view()


def _log_row(at: float, line: str) -> dict[str, Any]:
    return {
        "timestamp": at,
        "message": line,
        "entity": "",
        "metadata": {},
        "source": "container",
        "stream": "stdout",
        "type": "log",
    }
