"""The registry's certificate, and what a worker that was given it trusts."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509

from rendezvous.talk import certificate
from rendezvous.talk.certificate import (
    Certificate,
    make_certificate,
    pin_of_certificate,
    public_key_pin,
)
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.talk.http_network import client_context
from tests.attack.server import tls

SECRET = bytes(range(32))
CERTIFICATE = make_certificate(SECRET)


# --- the certificate ------------------------------------------------------------------------------


def test_the_certificate_is_a_servers_for_the_one_name_and_its_dates_never_bite() -> None:
    made = x509.load_der_x509_certificate(CERTIFICATE.der)
    assert made == x509.load_pem_x509_certificate(CERTIFICATE.pem)
    assert made.subject == made.issuer
    assert made.subject.rfc4514_string() == f"CN={SERVER_NAME}"
    utc = datetime.timezone.utc
    assert made.not_valid_before_utc <= datetime.datetime(2000, 1, 1, tzinfo=utc)
    assert made.not_valid_after_utc >= datetime.datetime(2099, 12, 31, tzinfo=utc)
    extensions = made.extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basic.critical, basic.value.ca) == (True, False)
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    keys = extensions.get_extension_for_class(x509.KeyUsage).value
    assert (keys.digital_signature, keys.key_cert_sign) == (True, False)


def test_the_same_secret_has_the_same_public_key_and_another_secret_another() -> None:
    again = make_certificate(SECRET)
    assert again.der != CERTIFICATE.der  # serial number and signature differ
    pins = [public_key_pin(SECRET), *map(pin_of_certificate, (CERTIFICATE.der, again.der))]
    assert len(set(pins)) == 1
    assert public_key_pin(bytes(32)) not in pins


def test_what_is_no_certificate_has_no_pin() -> None:
    with pytest.raises(ValueError, match=r"ASN\.1|parsing"):
        pin_of_certificate(b"no certificate")


# --- the handshake --------------------------------------------------------------------------------


def handshake(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = SERVER_NAME
) -> str | None:
    """The TLS version that the two agree on; raises what the client raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        waiting = 0
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return one.version()
    raise AssertionError("the handshake does not end")


@pytest.mark.parametrize("years", [(2000, 2099), (2000, 2001), (2098, 2099)])
def test_the_registrys_own_certificate_is_trusted_whatever_the_date(
    monkeypatch: pytest.MonkeyPatch, years: tuple[int, int]
) -> None:
    """A machine without a battery begins at 1970; the trust lies in the bytes."""
    for name, year in zip(("_NOT_BEFORE", "_NOT_AFTER"), years, strict=True):
        date = datetime.datetime(year, 1, 1, tzinfo=datetime.timezone.utc)
        monkeypatch.setattr(certificate, name, date)
    made = make_certificate(SECRET)
    assert handshake(client_context(made.der), tls(made)) == "TLSv1.3"


NOT_TRUSTED = ssl.SSLCertVerificationError


@pytest.mark.parametrize(
    ("made", "name", "newest", "error", "words"),
    [
        (make_certificate(bytes(32)), SERVER_NAME, "TLSv1_3", NOT_TRUSTED, "verify failed"),
        (make_certificate(SECRET), SERVER_NAME, "TLSv1_3", NOT_TRUSTED, "verify failed"),
        (CERTIFICATE, "example.org", "TLSv1_3", NOT_TRUSTED, "Hostname mismatch"),
        (CERTIFICATE, SERVER_NAME, "TLSv1_2", ssl.SSLError, "(?i)protocol"),
    ],
    ids=["another key", "another one on the same key", "another name", "an old TLS"],
)
def test_a_server_that_is_not_what_was_shipped_is_refused(
    made: Certificate, name: str, newest: str, error: type[Exception], words: str
) -> None:
    server = tls(made, ssl.TLSVersion[newest])
    with pytest.raises(error, match=words):
        handshake(client_context(CERTIFICATE.der), server, name)


def test_the_shipped_certificate_is_the_only_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", "/nowhere/keys.log")
    context = client_context(CERTIFICATE.der)
    assert context.get_ca_certs(binary_form=True) in ([], [CERTIFICATE.der])
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 0}
    assert context.keylog_filename is None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_the_certificate_is_read_by_an_openssl_that_cannot_tell_cpython_where_der_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenSSL 3.5.7 with CPython 3.11, for one; see python/cpython#151504."""
    real = ssl.SSLContext.load_verify_locations

    def load(context: ssl.SSLContext, *, cadata: str | bytes) -> None:
        if isinstance(cadata, bytes):
            raise ssl.SSLError("[ASN1: NOT_ENOUGH_DATA] not enough data")
        real(context, cadata=cadata)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load)
    assert client_context(CERTIFICATE.der).cert_store_stats()["x509"] == 1
