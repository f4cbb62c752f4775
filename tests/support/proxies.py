"""A reverse proxy that serves a page below a prefix, as notebooks' hubs do."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from typing import Any
from urllib.parse import urlsplit

_HOPS = ("connection", "transfer-encoding", "content-length", "keep-alive")
_LOOK_SECONDS = 0.1


class Proxy(ThreadingHTTPServer):
    """One between a browser and a page.

    Args:
        base: The page's address.
        prefix: Below which it is served.
        strips: Take the prefix out of paths.
        own_host: Ask under the page's own host name, and not under that of the browser.
        holds_back: Pass an answer on once it has ended.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        base: str,
        prefix: str,
        *,
        strips: bool = False,
        own_host: bool = False,
        holds_back: bool = False,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to = urlsplit(base).netloc
        self.prefix = prefix
        self.strips = strips
        self.own_host = own_host
        self.holds_back = holds_back
        self.asked: list[str] = []

    @property
    def base(self) -> str:
        """The page's address for a browser."""
        return f"http://127.0.0.1:{self.server_port}{self.prefix}/"

    def asked_for(self, words: str, times: int) -> bool:
        """Whether so many paths with these words were asked for."""
        return sum(words in path for path in self.asked) >= times


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        proxy = self.server
        proxy.asked.append(self.path)
        if not self.path.startswith(f"{proxy.prefix}/"):
            self.send_error(404)
            return
        path = self.path[len(proxy.prefix) :] if proxy.strips else self.path
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOPS}
        if proxy.own_host:
            headers["Host"] = proxy.to
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        there = http.client.HTTPConnection(proxy.to)
        try:
            with suppress(OSError, http.client.HTTPException):
                there.request(self.command, path, body or None, headers)
                self._pass_on(there)
        finally:
            there.close()

    do_POST = do_GET

    def _pass_on(self, there: http.client.HTTPConnection) -> None:
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(there.sock, over), daemon=True)
        watcher.start()
        held, begun = list[bytes](), False
        try:
            answer = there.getresponse()
            while data := answer.read1(65_536):
                held.append(data)
                if not self.server.holds_back:
                    self._send(answer, held, begun=begun)
                    held, begun = [], True
            self._send(answer, held, begun=begun)
        finally:
            over.set()
            watcher.join()  # the browser's connection is closed when this returns

    def _watch(self, there: socket.socket, over: threading.Event) -> None:
        """Ask no longer once the browser has left."""
        while not over.wait(_LOOK_SECONDS):
            if select([self.connection], [], [], 0)[0]:
                with suppress(OSError):
                    there.shutdown(socket.SHUT_RDWR)
                return

    def _send(self, answer: http.client.HTTPResponse, held: list[bytes], *, begun: bool) -> None:
        if not begun:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOPS:
                    self.send_header(name, value)
            self.end_headers()
        self.wfile.write(b"".join(held))
        self.wfile.flush()


@contextmanager
def proxy(base: str, prefix: str, **how: bool) -> Iterator[Proxy]:
    """Serve one for a while."""
    with Proxy(base, prefix, **how) as made:
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield made
        finally:
            made.shutdown()
