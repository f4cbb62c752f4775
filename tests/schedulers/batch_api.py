"""A batch service with a JSON API, as docs/schedulers.md supposes it; its jobs are processes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Job:
    """One job: its name and its process."""

    key: str
    name: str
    process: subprocess.Popen[bytes]

    def shown(self) -> dict[str, Any]:
        """What the API tells of it."""
        code = self.process.poll()
        state = "running" if code is None else "failed" if code else "done"
        return {"id": self.key, "name": self.name, "state": state}


@dataclass
class BatchApi:
    """The service.

    Attributes:
        environ: Environment of the jobs, under what is posted with each.
        lose: The answer to the next POST is lost: the job is made, and the connection closed.
    """

    environ: dict[str, str]
    jobs: dict[str, Job] = field(default_factory=dict)
    lose: bool = False
    url: str = ""

    def post(self, posted: dict[str, Any]) -> Job:
        """Make a job, and start it."""
        key = f"j-{len(self.jobs) + 1}"
        process = subprocess.Popen(posted["command"], env=self.environ | posted["env"])
        self.jobs[key] = Job(key, posted["name"], process)
        return self.jobs[key]

    def answer(self, method: str, target: str) -> tuple[int, str]:
        """Status and body of a request without a body."""
        parts = urlsplit(target)
        words, query = parts.path.strip("/").split("/"), parse_qs(parts.query)
        if words == ["jobs"]:
            named = [job for job in self.jobs.values() if job.name in query.get("name", [])]
            return 200, json.dumps([job.shown() for job in named])
        job = self.jobs.get(words[1])
        if job is None:
            return 404, json.dumps({"error": "no such job"})
        if method == "DELETE":
            job.process.terminate()
        return 200, json.dumps(job.shown())


def _handler(api: BatchApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            if self.command == "POST":
                posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = 201, json.dumps(api.post(posted).shown())
            else:
                status, body = api.answer(self.command, self.path)
            if api.lose and self.command == "POST":
                api.lose, self.close_connection = False, True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def serving(**environ: str) -> Iterator[BatchApi]:
    """The service, on a port of its own; what it has started is ended at the end."""
    api = BatchApi({**os.environ, **environ})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for job in api.jobs.values():
            job.process.kill()
            job.process.wait()
