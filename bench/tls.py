"""A TLS connection read in large pieces: `ssl.SSLSocket` makes two system calls for a record."""

from __future__ import annotations

import socket
import ssl

_CIPHERED = memoryview(bytearray(64 * 1024))


class TlsSocket:
    """The client's end, over a socket that does not block; raises BlockingIOError as that does."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    def fileno(self) -> int:
        """The number of the socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket, without a word."""
        self._socket.close()

    def shake_hands(self) -> None:
        """Go on with the handshake until it is done; raises BlockingIOError."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._take_in()
            else:
                self._flush()
                return

    def send(self, data: bytes) -> int:
        """Send all of it, for which a socket with nothing to send has room."""
        count = self._tls.write(data)
        self._flush()
        return count

    def recv_into(self, buffer: memoryview) -> int:
        """What has come, as far as it is complete; 0 at the end."""
        filled = 0
        while not filled:
            if not self._take_in():
                return 0
            try:
                while filled < len(buffer):
                    count: int = self._tls.read(  # type: ignore[assignment]
                        len(buffer) - filled, buffer[filled:]
                    )
                    if not count:
                        break
                    filled += count
            except ssl.SSLWantReadError:
                pass
        return filled

    def _take_in(self) -> int:
        count = self._socket.recv_into(_CIPHERED)
        self._incoming.write(_CIPHERED[:count])
        return count

    def _flush(self) -> None:
        data = self._outgoing.read()
        sent = self._socket.send(data) if data else 0
        assert sent == len(data), "what a node sends fits into an empty socket"
