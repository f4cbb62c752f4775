"""The registry's certificate: made once per launch, trusted by its bytes alone.

Needs `cryptography` (the launcher's extra). A worker that carries the certificate in its join
string does not import this module.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from rendezvous.talk.credentials import SERVER_NAME, hkdf

_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# Our client looks at no date; for others the dates are far away.
_NOT_BEFORE = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
_NOT_AFTER = datetime.datetime(2099, 12, 31, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key pair with its self-signed certificate."""

    key_pem: bytes = field(repr=False)
    pem: bytes
    der: bytes


def key_from_secret(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """The P-256 key that belongs to a secret: every holder of the secret finds the same one."""
    # 48 bytes reduced modulo the order: the bias is below 2^-128 (FIPS 186-5, A.2.1).
    number = int.from_bytes(hkdf(secret, "registry key", 48), "big")
    return ec.derive_private_key(number % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def _pin(key: CertificatePublicKeyTypes) -> bytes:
    """SHA-256 of the SPKI."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).digest()


def public_key_pin(secret: bytes) -> bytes:
    """What a symmetric node expects to meet: the pin of the secret's key."""
    return _pin(key_from_secret(secret).public_key())


def pin_of_certificate(der: bytes) -> bytes:
    """The pin of a certificate's key; raises ValueError when it is none."""
    return _pin(x509.load_der_x509_certificate(der).public_key())


def make_certificate(secret: bytes) -> Certificate:
    """A self-signed server certificate for `SERVER_NAME` on the secret's key."""
    return _signed(key_from_secret(secret), x509.random_serial_number(), hashes.SHA256())


def make_shared_certificate(secret: bytes) -> Certificate:
    """The certificate of all replicas that hold the secret: the same bytes wherever it is made.

    Ed25519 has no random number in its signatures (RFC 8032), as those of ECDSA do. Nodes trust
    these bytes: they need not read a certificate for it, and so no package for that.
    """
    key = ed25519.Ed25519PrivateKey.from_private_bytes(hkdf(secret, "shared registry key"))
    serial = int.from_bytes(hkdf(secret, "shared registry serial", 16), "big") | 1
    return _signed(key, serial, None)


def _signed(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey,
    serial: int,
    algorithm: hashes.SHA256 | None,
) -> Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, SERVER_NAME)])
    usage = x509.KeyUsage(True, *[False] * 8)  # digital_signature, and nothing else
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, algorithm)
    )
    return Certificate(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate.public_bytes(Encoding.PEM),
        certificate.public_bytes(Encoding.DER),
    )
