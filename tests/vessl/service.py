"""A stand-in for VESSL's API that behaves: what is created is listed, read, logged and terminated.

With a `Cluster` it also starts the runs as processes. It reads specs as YAML 1.2 readers do, not as
PyYAML does: 12e4567 is a number here.
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
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.netlab import Host

TOKEN = "vessl-token-of-the-test"
ORGANIZATION, PROJECTS = "acme", ("llama", "other")
FIRST_ID = 369_367_263_402
ECHO = "This is no good:"
QUIET = {"VESSL_DATA_COLLECTION_OPT_OUT": "true", "ENABLE_SENTRY": "false"}
FINAL = ("completed", "failed", "terminated")
_STEP_SECONDS = 0.02


class _Reader(yaml.SafeLoader):
    """Numbers, truths and nulls as YAML 1.2 has them."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (as its base class has it)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.nan", "-+.0123456789"),
):
    _Reader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first)
    )
_Reader.add_constructor(
    "tag:yaml.org,2002:int", lambda _, node: int(node.value, 0 if node.value[1:2] in "ox" else 10)
)
_Reader.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(node.value.lstrip(".")))


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
    spec: dict[str, Any]
    status: str = "pending"
    reason: str = ""
    lines: list[tuple[float, str]] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    @property
    def name(self) -> str:
        """The name of the spec."""
        return str(self.spec.get("name"))

    def view(self) -> dict[str, Any]:
        """What the API shows of it."""
        cluster = (self.spec.get("resources") or {}).get("cluster", "")
        found: dict[str, Any] = {key: [] for key in ("command", "env_vars", "ports")}
        found |= {"service_account_name": "", "termination_protection": False}
        found = {"title": self.name, "type": "batch", "description": "", "spec": found}
        found = {"id": self.id, "run_spec": found | {"cluster": {"name": cluster}}}
        found |= {"status": self.status, "status_reason": self.reason, "message": ""}
        found |= {"organization": {"name": ORGANIZATION}, "histories": [], "tags": []}
        found |= {"immutable_slug": f"slug-{self.id}", "is_starred": False}
        return found | {"create_dt": "2026-09-05T12:30:45.123456Z"}


@dataclass
class Cluster:
    """Starts each run on the next emulated host; `mounts` says where what a spec imports lies."""

    folder: Path
    environ: dict[str, str]
    mounts: dict[str, str]
    hosts: list[Host]
    _taken: Any = field(default_factory=itertools.count)

    def start(self, run: Run, account: dict[str, str]) -> subprocess.Popen[str]:
        """Start the run's command, as the platform does: a file that `sh` reads."""
        home = self.folder / str(run.id)
        home.mkdir()
        config, script, command = home / "config.toml", home / "run.sh", str(run.spec["run"])
        lines = [f"{key} = {json.dumps(value)}" for key, value in account.items()]
        config.write_text("\n".join(["[user]", *lines, ""]))
        for mount, place in self.mounts.items():
            command = re.sub(rf"(?<!\S){mount}", place, command)
        script.write_text(command + "\n")
        own = {"HOME": str(home), "VESSL_RUN_INITIAL_CONFIG": str(config)}
        return subprocess.Popen(
            self.hosts[next(self._taken) % len(self.hosts)].command(["sh", str(script)]),
            env=self.environ | own | environment_of(run.spec),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class Vessl:
    """The service; a context manager that serves. Without a cluster a test sets the statuses.

    Attributes:
        pages: The most runs of one list.
        errors: Statuses for the next creations, which make nothing; ECHO repeats what it was sent.
        lose_answers: So many creations are served, and the connection is closed.
        lose_reads: So many reads of one run fail.
        stuck: While it is set, nothing is answered.
        hidden: So many lists do not show anything.
    """

    def __init__(
        self, *, cluster: Cluster | None = None, listener: socket.socket | None = None
    ) -> None:
        self.clusters: tuple[str, ...] = ("gpu-cluster",)
        self.cluster = cluster
        self.runs: dict[int, Run] = {}
        self.requests: list[str] = []
        self.pages = 1000
        self.knows_pages = True
        self.errors: list[Any] = []
        self.lose_answers = self.lose_reads = self.hidden = 0
        self.stuck = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._server = _Server(self, listener)

    @property
    def host(self) -> str:
        """What VESSL_API_HOST is to be."""
        address, port = self._server.server_address[:2]
        return f"http://{address!s}:{port}"

    def account(self, project: str = "llama") -> dict[str, str]:
        """What a configuration file of the client holds."""
        found = {"access_token": TOKEN, "default_organization": ORGANIZATION}
        return found | {"default_project": project}

    def environ(self) -> dict[str, str]:
        """The variables of a person with an account."""
        account = {f"VESSL_{key.upper()}": value for key, value in self.account().items()}
        return account | {"VESSL_API_HOST": self.host}

    def posts(self) -> list[str]:
        """The creations that were asked for."""
        return [line for line in self.requests if line.endswith("create_from_yaml")]

    def __enter__(self) -> Vessl:
        self._in_thread(self._server.serve_forever, _STEP_SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        self.stuck.clear()
        for run in list(self.runs.values()):
            if run.process is not None and run.process.poll() is None:
                _signal(run.process, signal.SIGKILL)
        self._server.shutdown()
        for thread in self._threads:
            thread.join(20)
        self._server.server_close()

    def _in_thread(self, target: Any, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def create(self, project: str, text: str) -> Run:
        """Make a run; raises ValueError for what is no spec."""
        spec = read_spec(text)
        if not isinstance(spec, dict) or "image" not in spec:
            raise ValueError("image is required")
        with self._lock:
            run = Run(FIRST_ID + len(self.runs), project, spec)
            run.lines.append((time.time(), f"Run {run.name} was created."))
            self.runs[run.id] = run
        if self.cluster is not None:
            self._in_thread(self._live, run, self.cluster)
        return run

    def terminate(self, run: Run) -> None:
        """End a run; one that never started is over at once."""
        with self._lock:  # else the end of its process may come in between, and be forgotten
            run.status = "terminated" if run.process is None else "stopping"
            if run.process is not None:
                _signal(run.process, signal.SIGTERM)

    def _live(self, run: Run, cluster: Cluster) -> None:
        """A run's life on the cluster."""
        with self._lock:
            if run.status != "pending":
                return
            run.process = process = cluster.start(run, self.account(run.project))
            run.status = "running"
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                run.lines.append((time.time(), line.rstrip("\n")))
        code = process.wait()
        _signal(process, signal.SIGKILL)  # a pod's other processes go with its first
        with self._lock:
            ended = "completed" if code == 0 else "failed"
            run.status = "terminated" if run.status == "stopping" else ended
            run.reason = f"Exit code {code}" if code else ""


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


# --- the wire ---------------------------------------------------------------------------------

_PATH = re.compile(r"/api/v1/organizations/([^/]+)(?:/(projects|clusters)(?:/([^/]+)/(.+))?)?$")
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

    def _do(self) -> None:
        vessl, place = self.server.vessl, urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        vessl.requests.append(f"{self.command} {place.path}")
        while vessl.stuck.is_set():
            time.sleep(_STEP_SECONDS)
        query = {key: values[0] for key, values in parse_qs(place.query).items()}
        status, answer = 200, None
        try:
            if self.headers.get("Authorization") != f"Token {TOKEN}":
                raise _Refusal(401, "Unauthorized", "Invalid token.")
            answer = _answer(vessl, place.path, query, body)
        except _Refusal as refusal:
            status, answer = refusal.status, refusal.body
        except ConnectionAbortedError:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _do


def _answer(vessl: Vessl, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
    if path == "/api/v1/accounts/me":
        return {"username": "person", "email": "person@example.com"}
    found = _PATH.match(path)
    if found is None or found[1] != ORGANIZATION or found[3] not in (None, *PROJECTS):
        raise _Refusal(404, "NotFound", "There is no such organization or project.")
    _, what, project, rest = found.groups()
    if project is None:
        names = vessl.clusters if what == "clusters" else PROJECTS
        rows = [{"id": 1, "name": name} for name in names]
        return {"id": 1, "name": ORGANIZATION, "results": rows, "clusters": rows}
    if rest == "run/spec/create_from_yaml":
        return _created(vessl, project, body)
    if rest == "run_executions":
        return _listed(vessl, project, query)
    of_run = _RUN_PATH.match(rest)
    run = vessl.runs.get(int(of_run[1])) if of_run else None
    if of_run is None or run is None or run.project != project:
        raise _Refusal(404, "NotFound", "There is no such run.")
    return _of_run(vessl, run, of_run[2], query)


def _created(vessl: Vessl, project: str, body: dict[str, Any]) -> Any:
    if vessl.errors == [ECHO]:
        raise _Refusal(422, "InvalidSpec", f"{vessl.errors.pop()} {body['yaml_spec']}")
    if vessl.errors:
        raise _Refusal(vessl.errors.pop(0), "InternalServerError", "Something went wrong.")
    run = vessl.create(project, body["yaml_spec"])
    if vessl.lose_answers:
        vessl.lose_answers -= 1
        raise ConnectionAbortedError
    return {"run_execution": {"id": run.id}, "run_spec": {"title": run.name}}


def _listed(vessl: Vessl, project: str, query: dict[str, str]) -> Any:
    vessl.hidden -= bool(hidden := vessl.hidden)
    runs = [run for run in reversed(vessl.runs.values()) if run.project == project and not hidden]
    start = int(query.get("offset", 0)) if vessl.knows_pages else 0
    size = min(int(query.get("limit", vessl.pages)), vessl.pages)
    return {"results": [run.view() for run in runs[start : start + size]]}


def _of_run(vessl: Vessl, run: Run, what: str | None, query: dict[str, str]) -> Any:
    if what == "terminate":
        if run.status in FINAL:
            raise _Refusal(409, "Conflict", "The run is over.")
        vessl.terminate(run)
    elif what == "logs":
        rows = [row for row in run.lines if row[0] >= float(query.get("log_start") or 0)]
        told = {"entity": "", "metadata": {}, "source": "container", "stream": "stdout"}
        limit = int(query.get("log_limit") or 0)
        told |= {"type": "log"}
        return {"logs": [told | {"timestamp": at, "message": line} for at, line in rows[-limit:]]}
    elif vessl.lose_reads:
        vessl.lose_reads -= 1
        raise _Refusal(500, "InternalServerError", "Something went wrong.")
    return run.view()
