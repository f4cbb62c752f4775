"""What OpenSSL keeps of a connection over which large answers went, for as long as it is open."""

from __future__ import annotations

import ctypes
import ssl

import pytest

from rendezvous.serving.tls_pieces import LEAST_BYTES, MOST_BYTES, pieces
from rendezvous.talk.credentials import SERVER_NAME
from tests.support.guarded import body_of, contexts, read_answer, request, say, serve

CONNECTIONS = 16
MEGABYTE = 2**20
_COUNTS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
    *("fordblks", "keepcost"),
)

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="memory is counted by glibc 2.33"
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _COUNTS)


def allocated() -> int:
    """Bytes of the C library that are in use: OpenSSL's are among them."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo2
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)


class Pair:
    """The two ends of a TLS connection, in memory; the server's is to be measured."""

    def __init__(self) -> None:
        to_server, self._from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        to_client, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        of_server, of_client = contexts()
        self._end = of_server.wrap_bio(to_server, self._from_server, server_side=True)
        client = of_client.wrap_bio(to_client, from_client, server_hostname=SERVER_NAME)
        for end in (client, self._end, client, self._end):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                assert end is not self._end or self._from_server.pending
            to_server.write(from_client.read())
            to_client.write(self._from_server.read())

    def send(self, data: bytes) -> None:
        """Encrypt this, and send it."""
        assert self._end.write(data) == len(data)
        self._from_server.read()


@pytest.mark.parametrize("connections", [1_000, 5_000])
def test_openssl_keeps_no_more_than_a_piece(connections: int) -> None:
    pairs = [Pair() for _ in range(CONNECTIONS)]
    data = bytes(MEGABYTE)
    before = allocated()
    for pair in pairs:
        for part in pieces(len(data), connections):
            pair.send(data[part])
    kept = (allocated() - before) / CONNECTIONS
    largest = max(len(data[part]) for part in pieces(len(data), connections))
    assert largest >= LEAST_BYTES
    assert largest / 2 < kept < 1.05 * largest


def test_what_waits_for_a_slow_reader_is_not_encrypted_yet() -> None:
    with serve(tls=True) as served:
        clients = [served.connect(tls=True) for _ in range(CONNECTIONS)]
        for client in clients:
            say(client, request("/early", close=False))
        before = allocated()
        for client in clients:
            client.sendall(request("/wide", close=False))
            assert len(body_of(read_answer(client))) == 8 * MEGABYTE
        kept = (allocated() - before) / CONNECTIONS
        for client in clients:
            client.close()
    # A piece of more than one record may leave a buffer that is larger by a third.
    assert MOST_BYTES / 2 < kept < 1.5 * MOST_BYTES
