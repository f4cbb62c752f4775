"""In what pieces an answer is encrypted: for as long as a connection is open, OpenSSL keeps a
buffer that has held its largest one.

In larger pieces a table of 512 nodes goes out in two thirds of the time; one of 2,000 nodes in one
piece would cost 240 MB.
"""

from __future__ import annotations

from collections.abc import Iterator

BUFFERS_BYTES = 12 << 20
"""What the pieces of all connections may have together, above `LEAST_BYTES` each."""
LEAST_BYTES = 8 * 1024
MOST_BYTES = 256 * 1024

_RECORDS_BYTES = 64
"""More than what TLS adds to one piece beyond what it adds to the first."""


def pieces(length: int, connections: int) -> Iterator[slice]:
    """An answer of `length` bytes, on one of so many connections.

    OpenSSL's buffer grows to a third more than it has to hold. Where many connections are, and a
    piece is one record, a first one of three quarters makes it as large as the others need it.
    """
    piece = min(MOST_BYTES, max(LEAST_BYTES, BUFFERS_BYTES // connections))
    at, end = 0, piece * 3 // 4 + _RECORDS_BYTES
    while at < length:
        yield slice(at, end)
        at, end = end, end + piece
