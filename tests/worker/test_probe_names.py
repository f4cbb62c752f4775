"""What a node tells of its hosts file: only hostnames of peers that lead elsewhere than planned."""

from __future__ import annotations

from pathlib import Path

from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from worker.hosts.file import known_names
from worker.probe.names import with_names

HOSTS = """\
127.0.0.1 localhost
127.0.1.1 h0
10.0.0.2 h1 h1.example # as planned
10.9.9.9 H2
fe80::1%eth0 h3
# 10.8.8.8 h4
"""


def plan(*hostnames: str) -> ProbePlan:
    peers = [
        ProbePeer(
            slot=slot,
            hostname=name,
            address=f"10.0.0.{slot + 1}",
            interface="eth0",
            probe_port=2000 + slot,
        )
        for slot, name in enumerate(hostnames)
    ]
    return ProbePlan(network="eth0", peers=peers)


def told(hosts: str, tmp_path: Path, *hostnames: str) -> dict[int, str]:
    """Of the peers of slot 0, where its hosts file leads to."""
    file = tmp_path / "hosts"
    file.write_text(hosts)
    pairs = [PairProbe(slot=slot, outcome="ok") for slot in range(1, len(hostnames))]
    found = with_names(pairs, plan(*hostnames), 0, known_names(file, "r1"))
    return {pair.slot: pair.resolved for pair in found}


def test_a_name_that_leads_elsewhere_is_told_and_no_other(tmp_path: Path) -> None:
    seen = told(HOSTS, tmp_path, "h0", "h1", "h2", "h3", "h4")
    assert seen == {1: "", 2: "10.9.9.9", 3: "fe80::1%eth0", 4: ""}


def test_one_right_address_of_several_is_right(tmp_path: Path) -> None:
    assert told(f"{HOSTS}10.0.0.3 h2\n", tmp_path, "h0", "h1", "h2") == {1: "", 2: ""}


def test_a_peer_of_this_nodes_own_hostname_is_another_matter(tmp_path: Path) -> None:
    assert told(HOSTS, tmp_path, "h2", "H2") == {1: ""}


def test_what_is_no_address_and_what_is_too_much_is_not_told(tmp_path: Path) -> None:
    many = "".join(f"10.1.0.{number} h1\n" for number in range(1, 9))
    words = "10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4"
    seen = told(f"{many}nonsense h2\n999.1.1.1 h2\n", tmp_path, "h0", "h1", "h2")
    assert seen == {1: words, 2: ""}


def test_an_address_of_any_length_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    seen = told(f"fe80::1%{'x' * 300} h1\nfe80::1%\x07 h2\n", tmp_path, "h0", "h1", "h2")
    assert seen == {1: f"fe80::1%{'x' * 244}…", 2: "fe80::1%?"}


def test_names_of_this_run_do_not_count_and_a_missing_file_has_none(tmp_path: Path) -> None:
    block = "# BEGIN rdzv run=r1 pid=1 start=2 boot=b ns=3 own=\n10.7.7.7 h1\n# END rdzv run=r1\n"
    assert told(block, tmp_path, "h0", "h1") == {1: ""}
    assert known_names(tmp_path / "none", "r1") == {}
