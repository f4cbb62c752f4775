"""What a node tells when it joins: its addresses, signed, what it is; or why it cannot."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rendezvous.talk.credentials import Credential
from rendezvous.talk.failures import OtherKey
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.macs import row_is_genuine, word_macs
from rendezvous.talk.retry import retry_pause
from rendezvous.wire.errors import (
    AddressError,
    ArmingFailed,
    MethodNotAllowed,
    NotFound,
    RdzvError,
    Unauthorized,
    Unavailable,
    UsageError,
)
from rendezvous.wire.node import Job, JoinRequest, LinkKind, Refusal
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.reports import ReportReply
from tests.support.virtual_time import run_virtually
from tests.worker.test_table import KEYS, join
from worker.counts import Processes
from worker.machine.cpus import count_cpus
from worker.machine.interfaces import count_gpus
from worker.machine.surroundings import Surroundings
from worker.nccl.env import Given
from worker.offer import join_request
from worker.offer import refusal as telling
from worker.offer.join_request import count_processes, look_ahead, make_offer, survey
from worker.offer.ports import is_free
from worker.offer.refusal import refusal_of, refuse
from worker.settings import WorkerSettings

NAMES = ("eth2", "eth1", "eth3")
COMMAND = ["train.py", "--epochs", "3"]
WORDS = word_macs(KEYS.row_key, COMMAND, run=KEYS.run, launch_id=KEYS.launch_id)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine is asked has time for its answers, however busy it is."""
    monkeypatch.setattr("worker.offer.join_request.LIMIT_SECONDS", 20.0)


def offer(slot: int = 1, launch_id: str = KEYS.launch_id, **settings: Any) -> JoinRequest:
    here: dict[str, Any] = {"loopback": True, "address": ["127.0.0.2"]}
    own = replace(join(slot), launch_id=launch_id)
    return make_offer(WorkerSettings(**(here | settings)), own, COMMAND, "127.0.0.1")


def test_a_node_offers_all_that_the_registry_must_know_of_it() -> None:
    made = offer(nnodes="4", nproc_per_node="8", node_rank=3, framework="command")
    [candidate] = made.candidates
    shown = (candidate.interface, candidate.address, candidate.prefix_length, candidate.kind)
    assert shown == ("lo", "127.0.0.2", 8, LinkKind.LOOPBACK)
    job = Job(
        nnodes="4",
        nnodes_source="--nnodes",
        command_words=WORDS,
        framework="command",
        rdzv_backend="static",
    )
    own: dict[str, Any] = {
        "protocol": PROTOCOL,
        "join_id": made.join_id,
        "hostname": socket.gethostname(),
        "candidates": [candidate],
    }
    found: dict[str, Any] = {"facts": made.facts, "findings": made.findings}
    asked: dict[str, Any] = {
        "slot": 1,
        "generation": 1,
        "nproc_per_node": 8,
        "requested_node": 3,
        "job": job,
        "registry_source": "127.0.0.1",
    }
    assert made == JoinRequest(**own, **found, **asked)
    assert made.join_id != offer().join_id
    assert len({candidate.mac, candidate.generation_mac, ""}) == 3


def test_the_nodes_have_to_agree_on_the_roles_of_tensorflows_cluster() -> None:
    made = offer(framework="tensorflow", tf_chief=True, tf_ps=2)
    assert made.job.framework == "tensorflow --tf-chief --tf-ps 2"


def test_the_candidates_are_signed_for_this_slot_and_its_processes() -> None:
    made = offer(nproc_per_node="2")
    [candidate] = made.candidates
    row = made.row(candidate)
    assert (row.slot, row.nproc_per_node) == (1, 2)
    assert row_is_genuine(row, KEYS.row_key, run=KEYS.run, launch_id=KEYS.launch_id)


def test_only_slot_0_looks_for_a_free_master_port_and_each_run_from_one_of_its_own() -> None:
    ports = {offer(0, launch_id=f"launch{number:04d}").master_port for number in range(3)}
    assert len(ports) == 3
    assert all(port is not None and port >= 29_500 and is_free(port) for port in ports)
    assert offer(slot=1).master_port is None
    asked = [offer(slot, master_port=31_000).master_port for slot in (0, 1)]
    assert asked == [31_000, 31_000]


def test_an_address_that_this_machine_does_not_have_is_refused() -> None:
    with pytest.raises(AddressError, match=r"192\.0\.2\.1"):
        offer(loopback=False, address=["192.0.2.1"])


# ---- processes ----------------------------------------------------------------------------------


def counted(text: str, slot: int = 0) -> int:
    return count_processes(Processes.parse(text).of(slot))


def test_processes_are_counted_as_torchrun_does_by_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [counted("2,1,4096", slot) for slot in range(3)] == [2, 1, 4096]
    assert counted("cpu") == count_cpus()
    assert counted("auto") == (count_gpus() or count_cpus())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert counted("1,auto", 1) == count_cpus()
    with pytest.raises(UsageError, match="2,1 has 2 entries, but there is a slot 2"):
        counted("2,1", 2)
    with pytest.raises(
        UsageError, match="--nproc-per-node gpu was given, but this node has no GPU"
    ):
        counted("gpu")


def test_a_number_that_is_none_of_processes_is_refused_before_anybody_is_asked() -> None:
    settings = WorkerSettings(nproc_per_node="2,4096", framework="command")
    look_ahead(settings, 0, ["true"], os.environ)
    with pytest.raises(UsageError, match="4096 processes are asked for on this node"):
        look_ahead(settings, 1, ["true"], os.environ)
    with pytest.raises(UsageError, match=r"\(--nproc-per-node, GPUS_PER_NODE or a list of hosts\)"):
        look_ahead(settings, 1, ["true"], os.environ)


# ---- facts and findings -------------------------------------------------------------------------


def test_the_facts_say_what_runs_here() -> None:
    found = offer().facts
    assert found.rdzv_version == version("rdzv")
    assert found.gpus == count_gpus()
    assert found.cpus >= count_cpus()
    assert len(found.boot_id) == 36


def test_the_entry_script_is_told_by_its_digest(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    found = survey(WorkerSettings(), ["--max-restarts", "0", str(script), "x.py"], os.environ)
    assert found.facts.script_digest == hashlib.sha256(script.read_bytes()).hexdigest()
    assert survey(WorkerSettings(), ["-m", "train"], os.environ).facts.script_digest == ""


def test_a_node_without_an_address_says_so_and_is_looked_at_all_the_same() -> None:
    found = survey(WorkerSettings(address=["192.0.2.1"]), [], os.environ)
    assert found.candidates == ()
    assert "192.0.2.1" in found.address_problem[0]
    assert found.hostname == socket.gethostname()


def test_what_the_checks_find_goes_with_the_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    findings = {finding.check: finding for finding in offer().findings}
    assert findings["L17"].level == "fail"
    assert (findings["L17"].subject, findings["L17"].value) == ("GLOO_SOCKET_IFNAME", "nosuch0")
    assert {finding.level for finding in findings.values()} <= {"fail", "warn"}


def test_of_each_address_it_is_told_which_variables_leave_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked(*args: Any, **how: Any) -> Surroundings:
        here = survey(*args, **how)
        [own] = here.candidates
        others = [
            replace(own, interface=name, address=f"127.0.1.{n}") for n, name in enumerate(NAMES)
        ]
        given = {"GLOO_SOCKET_IFNAME": Given("eth1"), "NCCL_SOCKET_IFNAME": Given("^eth2,lo")}
        return replace(here, candidates=(own, others[0]), left_out=tuple(others[1:]), given=given)

    monkeypatch.setattr(join_request, "survey", looked)
    made = offer()
    gloo, nccl = {"GLOO_SOCKET_IFNAME": "eth1"}, {"NCCL_SOCKET_IFNAME": "^eth2,lo"}
    found = [(one.interface, one.address, one.left_out_by) for one in made.candidates]
    assert found == [("lo", "127.0.0.2", gloo | nccl), ("eth2", "127.0.1.0", gloo | nccl)]
    found = [(one.interface, one.address, one.left_out_by) for one in made.left_out]
    assert found == [("eth1", "127.0.1.1", {}), ("eth3", "127.0.1.2", gloo)]
    macs = {one.generation_mac for one in (*made.candidates, *made.left_out)}
    assert len(macs) == 4


def test_a_master_port_that_is_taken_is_a_warning() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        [finding] = [f for f in offer(0, master_port=port).findings if f.check == "L03"]
    assert (finding.level, finding.value) == ("warn", "taken by another program")


# ---- a node that cannot take part tells why -----------------------------------------------------


GPU = UsageError("--nproc-per-node gpu was given, but this node has no GPU", hint="ask for one")
AWAY = Unavailable("refused")


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "retryable"),
    [
        (GPU, "usage", 64, False),
        (AddressError("there is no ib9"), "address", 64, False),
        (ArmingFailed("there is no torchrun"), "arming_failed", 82, False),
        (OSError("no such device"), "internal", 70, True),
    ],
)
def test_what_is_told_of_an_error(
    error: Exception, code: str, exit_code: int, retryable: bool
) -> None:
    told = refusal_of(error, "gpu-c03\x1b")
    assert (told.code, told.exit_code, told.retryable) == (code, exit_code, retryable)
    assert told.hostname == "gpu-c03?"
    assert str(error).partition("\n")[0] in told.reason


def test_endless_words_are_cut() -> None:
    told = refusal_of(UsageError("x" * 9_000, hint="y\n" * 9_000), "h" * 300)
    assert (len(told.reason), len(told.hint), len(told.hostname)) == (600, 600, 253)


class Registry:
    """Answers one call after the other with these errors, the last one for ever; None: well."""

    pause = staticmethod(retry_pause)

    def __init__(self, *answers: RdzvError | None) -> None:
        self.answers = list(answers)
        self.heard: list[Refusal] = []

    async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
        self.heard.append(refusal)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return ReportReply(seq=1)


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        ([AWAY, Unavailable("no run yet"), None], 3),
        ([NotFound("?")], 1),  # it does not take it
        ([MethodNotAllowed("?")], 1),
        ([Unauthorized("?")], 1),
    ],
)
def test_it_is_told_until_the_registry_is_up(answers: list[RdzvError | None], tries: int) -> None:
    registry: Any = Registry(*answers)
    run_virtually(refuse(registry, join(), GPU))
    assert len(registry.heard) == tries


def test_a_registry_that_does_not_come_up_is_given_up() -> None:
    registry: Any = Registry(AWAY)
    run_virtually(refuse(registry, join(), GPU))
    assert len(registry.heard) > 3


JOIN = join(2)


class Dialled:
    """Clients of a registry: where each goes, with which token, and what it refuses there."""

    def __init__(self) -> None:
        self.met: list[tuple[RegistryPlace, Credential, Refusal]] = []

    def client(self, place: RegistryPlace, token: Credential) -> Any:
        dialled = self

        class Client(Registry):
            async def __aenter__(self) -> Client:
                return self

            async def __aexit__(self, *_: object) -> None:
                """Nothing is open."""

            async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
                assert (run, slot) == (JOIN.run, JOIN.slot)
                dialled.met.append((place, token, refusal))
                return ReportReply(seq=1)

        return Client(None)


def test_a_node_without_a_connection_tells_its_registry_on_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled = Dialled()
    monkeypatch.setattr(telling, "RegistryClient", dialled.client)
    run_virtually(telling.refuse_alone(JOIN, GPU))
    [(place, token, refusal)] = dialled.met
    assert (place, token) == (JOIN.place, JOIN.token)
    assert (refusal.code, refusal.hostname) == ("usage", socket.gethostname())


def test_who_has_another_key_hears_that_somebody_asked_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled = Dialled()
    monkeypatch.setattr(telling, "RegistryClient", dialled.client)
    own: Any = Registry(None)
    pins = {"10.0.0.8:29600": "ab" * 32, "10.0.0.9:29600": "cd" * 32}
    run_virtually(refuse(own, JOIN, OtherKey("another key", pins=pins)))
    assert own.heard == []
    assert [place.addresses for place, _, _ in dialled.met] == [(address,) for address in pins]
    assert [place.proof.hex() for place, _, _ in dialled.met] == [*pins.values()]
    for _, token, refusal in dialled.met:
        assert (token.kind, token.slot, token.number) == ("join", 2, 1)
        assert token.secret != JOIN.token.secret
        assert (refusal.hostname, refusal.reason) == ("", "the registry has another key")
