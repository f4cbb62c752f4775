"""A stand-in for the API server: what is made can be listed, and pods come from their Jobs.

It keeps what it is sent, checks the permissions that a Role gives, and plays the parts of
Kubernetes that a launcher meets: names that are taken, selectors, the Job that stays until its pod
is gone. What becomes of a pod is for the test to say.
"""

from __future__ import annotations

import copy
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
KINDS = {
    "secrets": ("v1", "Secret"),
    "pods": ("v1", "Pod"),
    "events": ("v1", "Event"),
    "services": ("v1", "Service"),
    "jobs": ("batch/v1", "Job"),
}
VERBS = {"POST": "create", "DELETE": "delete"}
JOB_NAME = "batch.kubernetes.io/job-name"
NOW = "2026-01-01T00:00:00Z"
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
        }
    ],
}
QUOTA = 'pods "POD" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=8, used: 16'


class Refused(Exception):
    """An answer that is an error: its HTTP status, reason and words, and what is wrong where."""

    def __init__(self, status: int, reason: str, words: str, details: Object | None = None) -> None:
        super().__init__(words)
        self.status, self.reason, self.words, self.details = status, reason, words, details or {}


@dataclass
class Cluster:
    """A namespace.

    Attributes:
        rules: The rules of a Role; each request must be allowed by one.
        quota: How many pods there may be; one more is an event instead.
        why: What that event says.
        trouble: Called with each request's verb and resource; may raise Refused, or answer late.
        check: Called with each object before it is made; may raise Refused.
        asked: Verb and resource of all requests so far.
    """

    rules: list[Object]
    quota: float = math.inf
    why: str = QUOTA
    trouble: Callable[[str, str], None] = lambda verb, resource: None
    check: Callable[[Object], None] = lambda made: None
    lost: bool = False
    asked: set[tuple[str, str]] = field(default_factory=set)
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def allow(self, verb: str, resource: str) -> None:
        """Raise Refused unless a rule of the Role allows it."""
        self.asked.add((verb, resource))
        if not any(verb in r["verbs"] and resource in r["resources"] for r in self.rules):
            who = f'User "launcher" cannot {verb} resource "{resource}"'
            words = f"{_plural(resource)} is forbidden: {who}"
            raise Refused(403, "Forbidden", words)
        self.trouble(verb, resource)

    def create(self, resource: str, made: Object) -> Object:
        """Keep an object; a Job gets its pod."""
        name = made["metadata"]["name"]
        if (resource, name) in self.objects:
            raise Refused(409, "AlreadyExists", f'{_plural(resource)} "{name}" already exists')
        self.check(made)
        made["metadata"] |= {"namespace": "default", "uid": f"uid-{resource}-{name}"}
        self.objects[resource, name] = made
        if resource == "jobs":
            made["status"], made["made"] = {}, []
            made["spec"]["selector"] = {"matchLabels": {JOB_NAME: name}}
            self.make_pods()
        return made

    def make_pods(self) -> None:
        """Each Job gets the pods that it has none of yet, or an event that says why it does not."""
        for job in self.listed("jobs", {}):
            name, count = job["metadata"]["name"], job["spec"].get("completions")
            indices = [f"-{index}" for index in range(count)] if count else [""]
            for pod in [f"{name}{index}-x7k2p" for index in indices]:
                if pod in job["made"] or "deletionTimestamp" in job["metadata"]:
                    continue
                if len(self.names("pods")) < self.quota:
                    job["made"].append(pod)
                    self._make_pod(job, pod)
                else:
                    self._say_why(job, pod)

    def _say_why(self, job: Object, pod: str) -> None:
        name = job["metadata"]["name"]
        self.objects["events", f"{pod}.1"] = {
            "metadata": {"name": f"{pod}.1", "namespace": "default"},
            "involvedObject": {"kind": "Job", "name": name},
            "reason": "FailedCreate",
            "message": "Error creating: " + self.why.replace("POD", pod),
        }

    def _make_pod(self, job: Object, pod: str) -> None:
        name, template = job["metadata"]["name"], job["spec"]["template"]
        labels = template.get("metadata", {}).get("labels", {}) | {JOB_NAME: name}
        self.objects["pods", pod] = {
            "metadata": {
                "name": pod,
                "namespace": "default",
                "labels": labels,
                "ownerReferences": [{"uid": job["metadata"]["uid"]}],
            },
            "spec": copy.deepcopy(template["spec"]),
            "status": UNSCHEDULABLE,
        }

    def delete(self, resource: str, name: str) -> None:
        """Take an object away: a Job not before its pods."""
        found = self.get(resource, name)
        for pod in self._pods_of(found):
            pod["metadata"]["deletionTimestamp"] = NOW
            if pod["status"]["phase"] != "Running":
                del self.objects["pods", pod["metadata"]["name"]]
        found["metadata"]["deletionTimestamp"] = NOW
        if not self._pods_of(found):
            del self.objects[resource, name]

    def _pods_of(self, owner: Object) -> list[Object]:
        reference = {"uid": owner["metadata"]["uid"]}
        pods = self.listed("pods", {})
        return [pod for pod in pods if reference in pod["metadata"]["ownerReferences"]]

    def end_grace(self, name: str) -> None:
        """A pod that is being deleted has ended, and its Job goes with it."""
        with self.lock:
            del self.objects["pods", name]
            for job in self.listed("jobs", {}):
                if "deletionTimestamp" in job["metadata"] and not self._pods_of(job):
                    del self.objects["jobs", job["metadata"]["name"]]

    def get(self, resource: str, name: str) -> Object:
        """An object by its name."""
        if (resource, name) not in self.objects:
            raise Refused(404, "NotFound", f'{_plural(resource)} "{name}" not found')
        return self.objects[resource, name]

    def listed(self, resource: str, query: Mapping[str, list[str]]) -> list[Object]:
        """What the label and field selectors of a query choose."""
        labels, fields = (
            [term.split("=") for term in query.get(key, [""])[0].split(",") if term]
            for key in ("labelSelector", "fieldSelector")
        )
        return [
            found
            for (kind, _), found in self.objects.items()
            if kind == resource
            and all(found["metadata"].get("labels", {}).get(key) == value for key, value in labels)
            and all(_field(found, key) == value for key, value in fields)
        ]

    def names(self, resource: str) -> list[str]:
        """The names of what there is."""
        with self.lock:
            return [name for kind, name in self.objects if kind == resource]

    def pod(self, **status: Any) -> None:
        """Let the one pod that there is be in this state."""
        with self.lock:
            (pod,) = (found for (kind, _), found in self.objects.items() if kind == "pods")
            pod["status"] = status
            pod["spec"]["nodeName"] = "gpu-17"


def _plural(resource: str) -> str:
    return f"{resource}.batch" if resource == "jobs" else resource


def _field(found: Object, path: str) -> Any:
    value: Any = found
    for key in path.split("."):
        value = value.get(key, {})
    return value


class _Handler(BaseHTTPRequestHandler):
    """HTTP around the cluster."""

    protocol_version = "HTTP/1.1"
    cluster: ClassVar[Cluster]

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *args: Any) -> None:
        """Silent."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        try:
            with self.cluster.lock:
                answer = self._found(url.path.strip("/").split("/"), parse_qs(url.query), body)
        except Refused as exc:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": exc.status}
            words = {"reason": exc.reason, "message": exc.words, "details": exc.details}
            self._send(exc.status, status | words)
            return
        if self.command == "POST" and self.cluster.lost:
            self.close_connection = True  # done, and nobody is told
            return
        self._send(201 if self.command == "POST" else 200, answer)

    def _found(self, path: list[str], query: Mapping[str, list[str]], body: Object) -> Object | str:
        if "namespaces" not in path:
            return _discovery(path)
        resource, *rest = path[path.index("namespaces") + 2 :]
        if len(rest) == 2:
            self.cluster.allow("get", f"{resource}/{rest[1]}")
            return _log(rest[0], query)
        verb = VERBS.get(self.command, "get" if rest else "list")
        self.cluster.allow(verb, resource)
        version, kind = KINDS[resource]
        if verb == "create":
            return self.cluster.create(resource, body)
        if verb == "delete":
            self.cluster.delete(resource, rest[0])
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if verb == "get":
            return {"apiVersion": version, "kind": kind} | self.cluster.get(resource, rest[0])
        items = self.cluster.listed(resource, query)
        return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}

    def _send(self, status: int, answer: Object | str) -> None:
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        kind = "text/plain" if isinstance(answer, str) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _log(pod: str, query: Mapping[str, list[str]]) -> str:
    lines = [f"line {number} of {pod}\n" for number in range(5)]
    return "".join(lines[-int(query["tailLines"][0]) :])


def _discovery(path: list[str]) -> Object | str:
    """What there is, as kubectl asks before anything else."""
    match path:
        case ["openapi", "v2"]:
            return ""  # a document without definitions, in protobuf: kubectl then checks nothing
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            version = {"groupVersion": "batch/v1", "version": "v1"}
            group = {"name": "batch", "versions": [version], "preferredVersion": version}
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
        case ["api", "v1"] | ["apis", "batch", "v1"]:
            version_of = "/".join(path[1:])
            resources = [
                {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind}
                | {"verbs": ["create", "delete", "get", "list", "watch"]}
                for name, (version, kind) in KINDS.items()
                if version == version_of
            ]
            kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version_of}
            return kind | {"resources": resources}
    raise Refused(404, "NotFound", "the server could not find the requested resource")


@contextmanager
def serving(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Serve the cluster on loopback; gives the kubeconfig that names it."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [
            {"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": ""}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield path
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
