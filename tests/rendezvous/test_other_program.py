"""Programs that answer where a registry should be: known by their first bytes."""

from __future__ import annotations

import pytest

from rendezvous.talk.other_program import OtherProgram, recognise


@pytest.mark.parametrize(
    ("first", "name", "is_firm"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "an SSH server (SSH-2.0-OpenSSH_9.2p1 Debian)", True),
        (b"RFB 003.008\n", "a VNC server (RFB 003.008)", True),
        (b"220 mx.a ESMTP Postfix\r\n", "a mail server (220 mx.a ESMTP Postfix)", True),
        (b"220 (vsFTPd 3.0)\r\n", "an FTP or mail server (220 (vsFTPd 3.0))", True),
        (b"-ERR unknown\r\n", "a Redis or POP3 server (-ERR unknown)", True),
        (b"J\x00\x00\x00\x0a8.0.36\x00abc", "a MySQL server", True),
        (b"* OK IMAP4\r\n", "an IMAP server (* OK IMAP4)", True),
        (b"HTTP/1.0 404 No\r\nServer: SimpleHTTP/0.6\r\n", "an HTTP server (SimpleHTTP/0.6)", True),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server (status 400)", True),
        (b"HTTP/1.1 502 Bad\r\nserver: nginx\r\n", "an HTTP server (nginx)", False),
        (b"HTTP/1.1 404 No\r\nserver: istio-envoy\r\n", "an HTTP server (istio-envoy)", False),
        (b"HTTP/1.1 200 OK\r\nVia: 1.1 squid\r\n", "an HTTP server (status 200)", False),
        (b"HTTP/1.1 404 No\r\nX-Rdzv: 1\r\n", "an rdzv registry without TLS", False),
        (b"\x15\x03\x01", "a program whose first words are '???'", False),
        (b"\n", "a program whose first words are ''", False),
        (b"hello\x1b[2J world\nx", "a program whose first words are 'hello?[2J world'", False),
    ],
)
def test_a_program_is_known_by_its_first_bytes(first: bytes, name: str, is_firm: bool) -> None:
    assert recognise(first) == OtherProgram(name, is_firm)


def test_who_says_nothing_is_not_known() -> None:
    assert recognise(b"") is None
