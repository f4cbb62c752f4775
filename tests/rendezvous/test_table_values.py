"""What a row and a table say of themselves, of nodes of which none is like another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rendezvous.registry.postgres_trouble import trouble_of
from rendezvous.talk.certificate import make_shared_certificate
from rendezvous.talk.secret_words import is_secret, text_without_secrets
from rendezvous.wire.checks import Check
from rendezvous.wire.run import Result
from rendezvous.wire.table import EndpointTable
from tests.support.driver import OF_RANKS, RANKS, skewed


def table() -> EndpointTable:
    return skewed().table


def test_the_first_process_of_a_node_comes_after_those_of_lower_ranks() -> None:
    made = table()
    for slot, ranks in OF_RANKS.items():
        assert made.first_process(RANKS[slot]) == ranks.start
        row = made.row_of_slot(slot)
        assert row is not None
        assert (row.slot, row.node) == (slot, RANKS[slot])
    assert made.row_of_slot(9) is None
    again = made.renewed(7, 29_999)
    assert (again.epoch, again.master_port, again.rows) == (7, 29_999, made.rows)
    assert again.digest() != made.digest()


@pytest.mark.parametrize(
    ("address", "prefix_length", "family", "subnet", "is_loopback"),
    [
        ("10.0.3.7", 24, "IPv4", "10.0.3.0/24", False),
        ("10.0.3.7", 32, "IPv4", "10.0.3.7/32", False),
        ("fd00:1::7", 64, "IPv6", "fd00:1::/64", False),
        ("127.0.0.9", 8, "IPv4", "127.0.0.0/8", True),
        ("::1", 128, "IPv6", "::1/128", True),
    ],
)
def test_the_network_of_a_row(
    address: str, prefix_length: int, family: str, subnet: str, is_loopback: bool
) -> None:
    row = replace(table().rows[1], address=address, prefix_length=prefix_length)
    assert (row.family, row.subnet, row.is_loopback) == (family, subnet, is_loopback)


def test_the_slot_of_the_first_cause_alone_is_marked() -> None:
    result = Result(status="failed", message="it failed", exit_code=7, slot=3)
    assert [result.mark_of(slot) for slot in (2, 3)] == ["", "first cause"]
    unsure = result.model_copy(update={"certain": False})
    assert [unsure.mark_of(slot) for slot in (2, 3)] == ["", "failed first"]
    assert result.model_copy(update={"status": "cancelled"}).mark_of(3) == ""


def test_the_certificate_of_all_replicas_is_the_same_bytes_and_that_of_others_is_not() -> None:
    one, same, other = (make_shared_certificate(bytes([n]) * 32) for n in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python train.py --lr 3", "python train.py --lr 3"),
        ("HF_TOKEN=abc python", "HF_TOKEN=(hidden) python"),
        ("A.key=abc;B=c", "A.key=(hidden);B=c"),
        ("keys=abc monkey=x", "keys=abc monkey=x"),
        ("--env=HF_TOKEN=abc x=y", "--env=HF_TOKEN=(hidden) x=y"),
        ("A=B=TOKEN=abc=d e", "A=B=TOKEN=(hidden) e"),
        ("url=http://h/?token=abc", "url=http://h/?token=(hidden)"),
        ("postgres://me:pw@host/db", "postgres://me:(hidden)@host/db"),
        ("hf_abcdefgh1 hf_abc", "(hidden) hf_abc"),
    ],
)
def test_what_may_be_a_secret_is_hidden(text: str, shown: str) -> None:
    assert text_without_secrets(text) == shown


def test_what_has_the_name_of_a_secret_is_one() -> None:
    for name in ("API_KEY", "my-token", "db.password", "Secret"):
        assert is_secret(name)
    for name in ("KEYS_PER", "tokenizer", "", "monkey"):
        assert not is_secret(name)


def test_a_check_has_its_own_id_kind_title_and_level() -> None:
    assert (Check.CLOCKS.id, Check.CLOCKS.title, Check.CLOCKS.worst) == ("M03", "clocks", "warn")


def test_trouble_that_time_does_not_mend_lasts() -> None:
    dsn = "postgresql://user@host/db?sslmode=verify-full&sslrootcert=/no/such/file"
    found = trouble_of(OSError("no"), dsn)
    assert found.lasts
    assert found.words.startswith("the file of sslrootcert cannot be read")
    assert not trouble_of(TimeoutError(), "postgresql://user@host/db").lasts
