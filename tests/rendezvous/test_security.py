"""Keys, credentials, join strings, and the certificate that a worker trusts."""

from __future__ import annotations

import base64
import datetime
import json
import re
import ssl
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import example, given
from hypothesis import strategies as st

from rendezvous.certificate import (
    Certificate,
    key_from_secret,
    make_certificate,
    pin_of_certificate,
    public_key_pin,
)
from rendezvous.errors import UsageError
from rendezvous.schema import MOST_COMMAND_WORDS, TableRow
from rendezvous.security import (
    SERVER_NAME,
    Credential,
    JoinString,
    RegistryPlace,
    RegistryString,
    RunKeys,
    client_context,
    group_token_text,
    hkdf,
    new_secret,
    node_credential,
    parse_credential,
    parse_group_token,
    registry_credential,
    row_is_genuine,
    sign_join,
    without_secrets,
    word_macs,
)
from tests.rendezvous.driver import FEW, make_candidate, make_join

SECRET = bytes(range(32))
KEYS = RunKeys(SECRET, "r", "launch")
CERTIFICATE = make_certificate(SECRET)
PLACE = RegistryPlace(
    ("10.0.0.1", "fd00:10:20::1", "rank0.example.org"), 29_600, "certificate", CERTIFICATE.der
)
JOIN = JoinString(PLACE, "r", "launch", 3, 2, KEYS.join_token(3, 2), KEYS.row_key, KEYS.probe_key)
REGISTRY = RegistryString(PLACE, registry_credential(SECRET))
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


# --- keys -----------------------------------------------------------------------------------------


def test_hkdf_gives_the_published_bytes() -> None:
    """RFC 5869, A.3: SHA-256, no salt, no info."""
    assert hkdf(b"\x0b" * 22, "", 42) == bytes.fromhex(
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


@FEW
@given(st.binary(min_size=1, max_size=64), st.text(max_size=40), st.integers(1, 200))
def test_hkdf_is_that_of_another_implementation(secret: bytes, label: str, length: int) -> None:
    label = label.encode("utf-8", "replace").decode()
    other = HKDF(hashes.SHA256(), length, salt=None, info=label.encode())
    assert hkdf(secret, label, length) == other.derive(secret)


def test_every_use_has_a_key_of_its_own() -> None:
    runs = [KEYS, RunKeys(SECRET, "other", "launch"), RunKeys(SECRET, "r", "other"),
            RunKeys(bytes(32), "r", "launch")]  # fmt: skip
    secrets = [
        secret
        for keys in runs
        for secret in (
            keys.read.secret,
            keys.admin.secret,
            keys.row_key,
            keys.probe_key,
            *(keys.join_token(slot, gen).secret for slot in (1, 11) for gen in (1, 11)),
            *(
                node_credential(keys.secret, keys.run, keys.launch_id, slot, number).secret
                for slot in (1, 11)
                for number in (1, 11)
            ),
        )
    ]
    secrets.append(registry_credential(SECRET).secret)
    assert len(set(secrets)) == len(secrets) == 49
    assert {len(secret) for secret in secrets} == {32}


def test_keys_are_the_same_each_time_they_are_derived() -> None:
    again = RunKeys(SECRET, "r", "launch")
    assert again.join_token(1, 1) == KEYS.join_token(1, 1)
    assert (again.row_key, again.read) == (KEYS.row_key, KEYS.read)


def test_what_is_derived_from_a_secret_is_the_same_in_every_version() -> None:
    """An operator's string and a journal outlive the version that wrote them."""
    credentials = [
        KEYS.join_token(0, 1),
        node_credential(SECRET, "r", "launch", 3, 2),
        KEYS.read,
        KEYS.admin,
        registry_credential(SECRET),
    ]
    assert [credential.text() for credential in credentials] == [
        "j.0.1.Aq6GEFU8WSsht89EqeSGOLNj4NpilHtYDAqgbp3wEPw",
        "n.3.2.42tmK5us8u89ucd9HWfdpNGY2E7w4jAyWOiwUNv7pOo",
        "r._H10aGuvmIHFfZm_IcoC_cvy9ClJRYMMyTNrZMoIdUg",
        "a.wehuy8wyti4oXqRwK9QW76MW7IV15WIP1Sps_PR7_Oo",
        "g.IWBfVATKzZj8cJ3kxQpGFlPdJohGfOzrYILPsD3mqF4",
    ]
    assert [KEYS.row_key.hex(), KEYS.probe_key.hex()] == [
        "50160274b8a87da3defd647fca3776972072d4e96cca2133df6099238bc2ec16",
        "4e448375122f65a82ae4acb1802203f5ddcdf550f0632ad43826d9d6b1874dd2",
    ]


def test_a_new_secret_has_256_bits_and_is_new() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(secret) for secret in secrets} == {32}


# --- credentials ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credential", "form"),
    [
        (KEYS.join_token(3, 2), r"j\.3\.2\.[A-Za-z0-9_-]{43}"),
        (node_credential(SECRET, "r", "l", 19_999, 7), r"n\.19999\.7\.[A-Za-z0-9_-]{43}"),
        (KEYS.read, r"r\.[A-Za-z0-9_-]{43}"),
        (KEYS.admin, r"a\.[A-Za-z0-9_-]{43}"),
        (registry_credential(SECRET), r"g\.[A-Za-z0-9_-]{43}"),
    ],
)
def test_a_credential_is_read_back_from_its_text(credential: Credential, form: str) -> None:
    assert re.fullmatch(form, credential.text())
    assert parse_credential(credential.text()) == credential


@pytest.mark.parametrize(
    "text",
    [
        "",
        "...",
        "j.1.2.",
        f"x.{'A' * 43}",
        f"j.{'A' * 43}",
        f"r.1.2.{'A' * 43}",
        f"j.1.{'A' * 43}",
        f"j.1.2.3.{'A' * 43}",
        f"j.-1.2.{'A' * 43}",
        f"j.+1.2.{'A' * 43}",
        f"j..2.{'A' * 43}",
        f"j.1.99999999.{'A' * 43}",
        f"j.\u0661.2.{'A' * 43}",
        f"j.²2.2.{'A' * 43}",
        f"r.{'A' * 42}",
        f"r.{'A' * 44}",
        f"r.{'A' * 42}=",
        f"r.{'A' * 42}ü",
        f"r.{'A' * 42}\n",
        f"r.{'A' * 42} ",
        f"R.{'A' * 43}",
        f"r.{'A' * 42}B",
        f"n.0.01.{'A' * 43}",
        f"j.00.1.{'A' * 43}",
    ],
)
def test_what_is_no_credential_is_none(text: str) -> None:
    assert parse_credential(text) is None


@FEW
@given(
    st.text()
    | st.text("jnrag.0129A_-=", max_size=70)
    | st.tuples(
        st.sampled_from("jnragx"),
        st.text("0123456789٣²-", max_size=9),
        st.text(min_size=43, max_size=43),
    ).map(lambda parts: f"{parts[0]}.{parts[1]}.1.{parts[2]}")
)
@example("j.1.1." + "\x00" * 43)
def test_reading_a_credential_never_raises(text: str) -> None:
    found = parse_credential(text)
    assert found is None or len(found.secret) == 32


def test_a_credential_matches_its_own_hash_alone() -> None:
    assert KEYS.read.matches(KEYS.read.sha256())
    assert not KEYS.read.matches(KEYS.admin.sha256())
    assert not KEYS.read.matches("")
    assert not KEYS.read.matches("ü")


# --- signed rows ----------------------------------------------------------------------------------


def signed_row() -> TableRow:
    offered = [make_candidate("10.0.0.1"), make_candidate("10.0.0.2", "ib0", 16)]
    join = make_join(1, hostname="host1", nproc_per_node=8, candidates=offered)
    signed = sign_join(join, KEYS.row_key, run="r", launch_id="launch")
    return signed.row(signed.candidates[1], rank=5)


def test_what_a_node_signs_is_the_same_in_every_version() -> None:
    row = signed_row()
    text = b'["row","r","launch",1,"host1","ib0","10.0.0.2",16,8]'
    assert row.signed_text("r", "launch") == text
    assert row.mac == "27fa45545f3b0cdd4476b8c46ae7a0837e26ade3889930816ab4643e1bca1e6d"


def test_a_row_that_its_node_signed_is_genuine_whatever_rank_it_got() -> None:
    row = signed_row()
    assert row_is_genuine(row, KEYS.row_key, run="r", launch_id="launch")
    moved = row.model_copy(update={"rank": 0})
    assert row_is_genuine(moved, KEYS.row_key, run="r", launch_id="launch")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slot", 2),
        ("hostname", "host2"),
        ("address", "10.0.0.3"),
        ("interface", "eth0"),
        ("prefix_length", 24),
        ("nproc_per_node", 4),
        ("mac", ""),
        ("mac", "0" * 64),
        ("mac", "\ud800"),
    ],
)
def test_a_row_that_somebody_changed_is_not_genuine(field: str, value: object) -> None:
    row = signed_row().model_copy(update={field: value})
    assert not row_is_genuine(row, KEYS.row_key, run="r", launch_id="launch")


def test_a_row_of_another_run_launch_or_key_is_not_genuine() -> None:
    row = signed_row()
    assert not row_is_genuine(row, KEYS.row_key, run="other", launch_id="launch")
    assert not row_is_genuine(row, KEYS.row_key, run="r", launch_id="other")
    assert not row_is_genuine(row, KEYS.probe_key, run="r", launch_id="launch")


# --- words that carry everything ------------------------------------------------------------------

WORDS: list[tuple[str, Callable[[], str], Callable[[str], Any], object]] = [
    ("RDZV_JOIN", JOIN.text, JoinString.parse, JOIN),
    ("RDZV_REGISTRY", REGISTRY.text, RegistryString.parse, REGISTRY),
    ("RDZV_TOKEN", lambda: group_token_text(SECRET), parse_group_token, SECRET),
]
each_word = pytest.mark.parametrize(("variable", "write", "parse", "meant"), WORDS,
                                    ids=[w[0] for w in WORDS])  # fmt: skip


@each_word
def test_a_word_is_read_back(
    variable: str, write: Callable[[], str], parse: Callable[[str], Any], meant: object
) -> None:
    text = write()
    assert parse(text) == meant
    assert parse(f"  {text}\n") == meant


@each_word
def test_a_word_is_one_that_neither_yaml_nor_a_shell_touches(
    variable: str, write: Callable[[], str], parse: Callable[[str], Any], meant: object
) -> None:
    assert WORD.match(write())


def test_a_join_string_with_a_certificate_and_three_addresses_is_below_a_kilobyte() -> None:
    assert len(JOIN.text()) < 1_024


@pytest.mark.parametrize(
    "place",
    [
        RegistryPlace(("127.0.0.1",), 29_600),
        RegistryPlace(("10.0.0.1", "::1"), 1, "public_key", public_key_pin(SECRET)),
        RegistryPlace(("::1",), 1, "certificate", b"\x00\x00\x17"),  # AAAX
        PLACE,
    ],
)
def test_a_place_is_read_back_from_json(place: RegistryPlace) -> None:
    assert RegistryPlace.from_json(json.loads(json.dumps(place.to_json()))) == place


def refused_quietly(parse: Callable[[str], Any], text: str) -> str:
    """The refusal of a word; neither it nor its cause may show a key."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    shown = str(caught.value) + repr(caught.value) + str(caught.value.__cause__)
    for key in (SECRET, JOIN.token.secret, JOIN.row_key, JOIN.probe_key):
        assert _b64(key) not in shown
        assert repr(key) not in shown
    return str(caught.value)


@each_word
def test_a_word_that_was_cut_is_refused(
    variable: str, write: Callable[[], str], parse: Callable[[str], Any], meant: object
) -> None:
    text = write()
    for length in {0, 1, 6, 8, 9, 10, 13, 20, len(text) // 2, len(text) - 2, len(text) - 1}:
        assert variable in refused_quietly(parse, text[:length])


@each_word
def test_a_word_that_was_altered_is_refused(
    variable: str, write: Callable[[], str], parse: Callable[[str], Any], meant: object
) -> None:
    text = write()
    start = text.index("-") + 1
    for place in range(start, len(text) - 1, 7):
        other = "B" if text[place] == "A" else "A"
        altered = text[:place] + other + text[place + 1 :]
        words = refused_quietly(parse, altered)
        assert f"{variable} is damaged" in words
        assert f"pass it as a file ({variable}_FILE)" in words


@each_word
@pytest.mark.parametrize("spoil", ["{} {}", "{}\n{}", '"{}{}"', "{}ü{}", "{}%{}"])
def test_a_word_that_was_quoted_or_folded_is_refused(
    variable: str, write: Callable[[], str], parse: Callable[[str], Any], meant: object, spoil: str
) -> None:
    text = write()
    assert variable in refused_quietly(parse, spoil.format(text[:40], text[40:]))


@each_word
def test_another_word_is_refused_with_what_it_should_begin_with(
    variable: str, write: Callable[[], str], parse: Callable[[str], Any], meant: object
) -> None:
    for name, other, _, _ in WORDS:
        if name != variable:
            words = refused_quietly(parse, other())
            assert f"{variable} does not begin with 'rdzv" in words
            assert f"{variable}, or its file in {variable}_FILE" in words


@FEW
@given(
    st.text()
    | st.text(max_size=60).map(lambda t: f"rdzv1-{t}")
    | st.binary().map(lambda data: _word("rdzv1-", data))
)
def test_garbage_is_refused_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(UsageError):
        JoinString.parse(text)


PARTS = json.loads(zlib.decompress(base64.urlsafe_b64decode(JOIN.text()[6:] + "==")[:-4]))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in PARTS),
        {"s": "three"},
        {"g": []},
        {"s": float("inf")},
        {"g": 1.5},
        {"s": -1},
        {"s": True},
        {"w": {"a": ["10.0.0.1"], "p": 1e400, "t": "plain", "c": ""}},
        {"w": {"a": ["10.0.0.1"], "p": 70_000, "t": "plain", "c": ""}},
        {"r": "../../etc"},
        {"r": "a\n[31mb"},
        {"r": 5},
        {"j": "AAAA"},
        {"k": "not base64!"},
        {"w": {"a": ["10.0.0.1"], "p": 1, "t": "blindly", "c": ""}},
        {"w": {"a": ["10.0.0.1"], "p": 1, "t": "plain"}},
        {"w": []},
    ],
    ids=str,
)
def test_a_join_string_with_a_part_missing_or_odd_is_refused(changes: dict[str, object]) -> None:
    value = {key: part for key, part in (PARTS | changes).items() if part is not None}
    words = refused_quietly(JoinString.parse, _pack("rdzv1-", value))
    assert words.startswith("RDZV_JOIN is whole, but a part of it is missing")


def test_the_numbers_of_a_join_string_are_taken_up_to_their_bounds() -> None:
    def parse(slot: int, port: int) -> JoinString:
        place = {"a": ["10.0.0.1"], "p": port, "t": "plain", "c": ""}
        return JoinString.parse(_pack("rdzv1-", PARTS | {"s": slot, "w": place}))

    read = [parse(slot, port) for slot, port in ((0, 0), (1_000_000, 65_535))]
    assert [(join.slot, join.place.port) for join in read] == [(0, 0), (1_000_000, 65_535)]
    for slot, port in ((1_000_001, 1), (1, 65_536)):
        with pytest.raises(UsageError, match="a part of it is missing"):
            parse(slot, port)


@pytest.mark.parametrize("data", ["[]", "7", "[" * 50_000, '{"a": ' + "1" * 2_000_000 + "}"])
def test_a_word_that_holds_no_object_or_a_bomb_is_refused(data: str) -> None:
    refused_quietly(JoinString.parse, _word("rdzv1-", zlib.compress(data.encode())))


@pytest.mark.parametrize(("size", "found"), [(1_000_000, "is whole"), (1_000_001, "is damaged")])
def test_a_word_is_unpacked_up_to_a_million_bytes(size: int, found: str) -> None:
    packed = zlib.compress(b"{" + b" " * (size - 2) + b"}")
    assert f"RDZV_JOIN {found}" in refused_quietly(JoinString.parse, _word("rdzv1-", packed))


@pytest.mark.parametrize(
    ("variable", "prefix", "parse"),
    [
        ("RDZV_REGISTRY", "rdzvreg1-", RegistryString.parse),
        ("RDZV_TOKEN", "rdzvtok1-", parse_group_token),
    ],
)
@pytest.mark.parametrize("value", [{}, {"s": "AAAA", "g": "AAAA"}], ids=str)
def test_the_other_words_need_their_parts_too(
    variable: str, prefix: str, parse: Callable[[str], Any], value: object
) -> None:
    words = refused_quietly(parse, _pack(prefix, value))
    assert words.startswith(f"{variable} is whole, but a part of it is missing")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _word(prefix: str, packed: bytes) -> str:
    return prefix + _b64(packed + zlib.crc32(packed).to_bytes(4, "big"))


def _pack(prefix: str, value: object) -> str:
    return _word(prefix, zlib.compress(json.dumps(value).encode()))


# --- nothing secret is shown ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing", [KEYS, KEYS.read, KEYS.join_token(1, 1), JOIN, REGISTRY, CERTIFICATE], ids=type
)
def test_no_secret_is_shown_by_repr(thing: object) -> None:
    shown = repr(thing) + str(thing)
    private = key_from_secret(SECRET).private_numbers().private_value
    for secret in (SECRET, KEYS.read.secret, KEYS.join_token(1, 1).secret, JOIN.token.secret,
                   KEYS.row_key, KEYS.probe_key, REGISTRY.credential.secret):  # fmt: skip
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
        assert _b64(secret) not in shown
    assert "PRIVATE KEY" not in shown
    assert str(private) not in shown


# --- the certificate ------------------------------------------------------------------------------


def test_the_certificate_is_a_servers_for_the_one_name_and_its_dates_never_bite() -> None:
    certificate = x509.load_der_x509_certificate(CERTIFICATE.der)
    assert certificate == x509.load_pem_x509_certificate(CERTIFICATE.pem)
    assert certificate.subject == certificate.issuer
    assert certificate.subject.rfc4514_string() == f"CN={SERVER_NAME}"
    utc = datetime.timezone.utc
    assert certificate.not_valid_before_utc <= datetime.datetime(2000, 1, 1, tzinfo=utc)
    assert certificate.not_valid_after_utc >= datetime.datetime(2099, 12, 31, tzinfo=utc)
    extensions = certificate.extensions
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
    pins = [
        public_key_pin(SECRET),
        pin_of_certificate(CERTIFICATE.der),
        pin_of_certificate(again.der),
    ]
    assert len(set(pins)) == 1
    assert public_key_pin(bytes(32)) not in pins


def test_what_is_no_certificate_has_no_pin() -> None:
    with pytest.raises(ValueError, match=r"ASN\.1|parsing"):
        pin_of_certificate(b"no certificate")


# --- the handshake --------------------------------------------------------------------------------


def server_context(
    certificate: Certificate, folder: Path, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    pem = folder / "server.pem"
    pem.write_bytes(certificate.key_pem + certificate.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = newest
    context.load_cert_chain(pem)
    return context


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


def test_the_registrys_own_certificate_is_trusted(tmp_path: Path) -> None:
    server = server_context(CERTIFICATE, tmp_path)
    assert handshake(client_context(CERTIFICATE.der), server) == "TLSv1.3"


def test_another_certificate_with_the_same_name_is_not_trusted(tmp_path: Path) -> None:
    server = server_context(make_certificate(bytes(32)), tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client_context(CERTIFICATE.der), server)


def test_another_certificate_on_the_same_key_is_not_the_one_that_was_shipped(
    tmp_path: Path,
) -> None:
    server = server_context(make_certificate(SECRET), tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client_context(CERTIFICATE.der), server)


def test_the_right_certificate_under_another_name_is_not_trusted(tmp_path: Path) -> None:
    server = server_context(CERTIFICATE, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(client_context(CERTIFICATE.der), server, "example.org")


def test_a_server_that_speaks_only_tls_1_2_is_refused(tmp_path: Path) -> None:
    server = server_context(CERTIFICATE, tmp_path, newest=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        handshake(client_context(CERTIFICATE.der), server)


def test_the_shipped_certificate_is_the_only_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", "/nowhere/keys.log")
    context = client_context(CERTIFICATE.der)
    assert context.get_ca_certs(binary_form=True) in ([], [CERTIFICATE.der])
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 0}
    assert context.keylog_filename is None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    usual = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).verify_flags
    assert context.verify_flags == usual | 0x200000  # and no date is looked at


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


def test_what_a_stranger_repeats_has_none_of_our_secret_words() -> None:
    keys = RunKeys(b"s" * 32, "llama", "k7f2a9c1xy")
    place = RegistryPlace(("10.0.0.1",), 29600)
    token = keys.join_token(1, 1)
    words = [
        JoinString(place, "llama", "k7", 1, 1, token, keys.row_key, keys.probe_key).text(),
        RegistryString(place, registry_credential(b"s" * 32)).text(),
        group_token_text(b"s" * 32),
    ]
    for word in words:
        assert without_secrets(f'env: "{word}" is odd') == 'env: "(hidden)" is odd'
        assert without_secrets(f"RDZV_JOIN={word[:40]}") == "RDZV_JOIN=(hidden)"
    harmless = "rdzv-k7f2a9c1xy-1-1 of rdzv 1-2, rdzv1 and myrdzv1-x"
    assert without_secrets(harmless) == harmless


def test_words_of_a_command_are_told_apart_by_place_and_value_under_the_runs_key() -> None:
    here = {"run": "r", "launch_id": "launch"}
    made = word_macs(KEYS.row_key, ["a", "b", "a", "\udcff"], **here)
    assert made == word_macs(KEYS.row_key, ("a", "b", "a", "\udcff"), **here)
    assert len({*made}) == 4
    others = [
        word_macs(bytes(32), ["a"], **here),
        word_macs(KEYS.row_key, ["a"], run="other", launch_id="launch"),
        word_macs(KEYS.row_key, ["a"], run="r", launch_id="other"),
        word_macs(KEYS.row_key, ["a "], **here),
    ]
    assert len({made[0], *(other[0] for other in others)}) == 5
    assert word_macs(KEYS.row_key, [], **here) == []


def test_of_a_long_command_what_lies_behind_is_one_mac() -> None:
    here = {"run": "r", "launch_id": "launch"}
    words = ["x"] * 300
    made = word_macs(KEYS.row_key, words, **here)
    assert len(made) == MOST_COMMAND_WORDS + 1
    changed = word_macs(KEYS.row_key, [*words[:-1], "y"], **here)
    assert made[:128] == changed[:128]
    assert made[128] != changed[128]
    assert word_macs(KEYS.row_key, words[:128], **here) == made[:128]
