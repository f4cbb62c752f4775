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
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Job:
    """One job: what was posted, and its process."""

    key: str
    posted: dict[str, Any]
    log: Path
    process: subprocess.Popen[bytes]
    cancelled: bool = False

    def shown(self) -> dict[str, Any]:
        """What the API tells of it."""
        code = self.process.poll()
        state = "running" if code is None else "failed" if code else "done"
        return {"id": self.key, "name": self.posted["name"], "state": self._word(state)}

    def _word(self, state: str) -> str:
        return "cancelled" if self.cancelled and state != "running" else state


@dataclass
class BatchApi:
    """The service.

    Attributes:
        folder: For the jobs' output.
        environ: Environment of the jobs, under what is posted with each.
        lose: So many answers to a POST are lost: the job is made, and the connection closed.
        broken: Every request is answered with 500.
    """

    folder: Path
    environ: dict[str, str]
    jobs: dict[str, Job] = field(default_factory=dict)
    lose: int = 0
    broken: bool = False
    url: str = ""

    def post(self, posted: dict[str, Any]) -> Job:
        """Make a job, and start it."""
        key = f"j-{len(self.jobs) + 1}"
        log = self.folder / f"{key}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                posted["command"],
                env=self.environ | posted["env"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.jobs[key] = Job(key, posted, log, process)
        return self.jobs[key]

    def answer(self, method: str, path: str, query: dict[str, list[str]]) -> tuple[int, str]:
        """Status and body of a request without a body."""
        words = path.strip("/").split("/")
        if words == ["jobs"]:
            names = query.get("name", [])
            found = [job.shown() for job in self.jobs.values() if job.posted["name"] in names]
            return 200, json.dumps(found)
        job = self.jobs.get(words[1])
        if job is None:
            return 404, json.dumps({"error": "no such job"})
        if method == "DELETE":
            job.cancelled = True
            job.process.terminate()
        if words[2:] == ["logs"]:
            lines = job.log.read_text().splitlines(keepends=True)
            return 200, "".join(lines[-int(query["lines"][0]) :])
        return 200, json.dumps(job.shown())

    def close(self) -> None:
        """End what still runs."""
        for job in self.jobs.values():
            job.process.kill()
            job.process.wait()


def _handler(api: BatchApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _send(self, status: int, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _answer(self) -> None:
            if api.broken:
                self._send(500, json.dumps({"error": "the database is down"}))
                return
            parts = urlsplit(self.path)
            if self.command != "POST":
                self._send(*api.answer(self.command, parts.path, parse_qs(parts.query)))
                return
            job = api.post(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if api.lose:
                api.lose -= 1
                self.close_connection = True
                return
            self._send(201, json.dumps(job.shown()))

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def serving(folder: Path, **environ: str) -> Iterator[BatchApi]:
    """The service, on a port of its own; what it has started is ended at the end."""
    api = BatchApi(folder, {**os.environ, **environ})
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
        api.close()
