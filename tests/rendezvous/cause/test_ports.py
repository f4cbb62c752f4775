"""Whose port is taken has lost nobody: it is the cause, and who waited for it is not."""

from __future__ import annotations

import pytest

from rendezvous.cause.clues import Line, find_clues
from rendezvous.cause.facts import FactKind
from rendezvous.cause.seen import NodeSeen, Proof
from rendezvous.cause.sentences import sentence_of
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport
from tests.rendezvous.cause.verdicts import judged_of

TRACEBACK = ("Traceback (most recent call last):", '  File "/app/train.py", line 7, in start')
TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
    "already in use"
)
NO_UV = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address "
    "already in use). The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address "
    "already in use)."
)
OF_TORCH_1 = NO_UV.replace("torch.distributed.DistNetworkError", "RuntimeError")
NOT_ALLOWED = (
    TAKEN.replace("-98", "-13")
    .replace("EADDRINUSE", "EACCES")
    .replace("address already in use", "permission denied")
)
UNREACHED = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while "
    "trying to connect to (10.0.0.1, 29500)."
)
LOST = (
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed"
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error, NCCL 2.27",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed.",
    "Last error:",
    "Call to bind failed: Address already in use",
)
OF_JAX = "jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server"
HELD = Fact(kind=FactKind.PORT, value=29500, words="pid 7 (python serve.py)")


def raised(*lines: str, rank: int | None = 0) -> list[Clue]:
    return find_clues(Line(line, rank) for line in (*TRACEBACK, *lines))


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        ((TAKEN,), "port_taken"),
        ((NO_UV,), "port_taken"),
        ((OF_TORCH_1,), "port_taken"),
        (NCCL, "port_taken"),
        (
            ("RuntimeError: gloo/transport/tcp/device.cc:84] bind: Address already in use",),
            "port_taken",
        ),
        (("TCPStore: " + NO_UV,), "port_taken"),
        # Another reason not to listen is nobody else's fault either.
        ((NOT_ALLOWED,), "exception"),
        ((LOST,), "peer_gone"),
        ((UNREACHED,), "waited"),
        (("RuntimeError: TCPStore: Broken pipe",), "peer_gone"),
    ],
)
def test_a_socket_that_cannot_listen_follows_from_nobody(lines: tuple[str, ...], row: str) -> None:
    assert raised(*lines)[-1].id == row


def node(slot: int, at: float, clues: list[Clue], *facts: Fact) -> NodeSeen:
    ends = [RankEnd(rank=slot, exit_code=1, ended=0.0)]
    evidence = Evidence(ranks=ends, clues=clues, facts=list(facts))
    report = ExitReport(epoch=1, exit_code=1, evidence=evidence)
    return NodeSeen(slot, at, report, failed=True, ranks=range(slot, slot + 1))


@pytest.mark.parametrize("first", [TAKEN, NO_UV, NOT_ALLOWED])
def test_who_cannot_listen_is_the_cause_and_not_who_waited_for_it(first: str) -> None:
    listens = node(0, 101.0, raised(first), HELD)
    waits = node(1, 100.0, raised(UNREACHED, rank=1))
    judged = judged_of([listens, waits])
    assert (judged.cause.slot, judged.cause.rank, judged.blames) == (0, 0, True)


def test_the_sentence_names_the_port_and_who_holds_it() -> None:
    judged = judged_of([node(0, 100.0, raised(TAKEN), HELD)])
    clause = sentence_of(judged).clause
    assert clause.startswith(
        "a port that it needs is taken (port 29500 is held by pid 7 (python serve.py)); rank 0 sa"
    )


def test_a_launcher_that_cannot_listen_is_the_cause_where_no_rank_ever_was() -> None:
    evidence = Evidence(clues=raised(TAKEN, rank=None))
    report = ExitReport(epoch=1, exit_code=1, evidence=evidence)
    taken = NodeSeen(0, 101.0, report, failed=True, ranks=range(2))
    judged = judged_of([taken, node(2, 100.0, raised(UNREACHED, rank=2))])
    assert (judged.cause.row, judged.cause.slot) == ("port_taken", 0)


def test_jax_does_not_say_why_and_the_port_does() -> None:
    judged = judged_of([node(0, 100.0, raised(OF_JAX), HELD)])
    assert (judged.cause.row, judged.cause.proof) == ("port_taken", Proof.FACT)
    judged = judged_of([node(0, 100.0, raised(OF_JAX))])
    assert judged.cause.row == "exception"


def test_an_address_that_another_one_replaced_has_been_got_over() -> None:
    """torch tries IPv6 first, and goes on with IPv4."""
    tried = (
        "[W1127 17:03:44.5 socket.cpp:525] [c10d] The server socket has failed to bind to [::]:1"
    )
    tried += " (errno: 98 - Address already in use)."
    clues = find_clues(Line(line, 0) for line in (tried, "step 1", *TRACEBACK, LOST))
    assert [clue.id for clue in clues] == ["peer_gone"]
