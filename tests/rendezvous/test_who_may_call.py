"""Who may call, and what a connection has proven by it: each caller with each credential."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rendezvous.registry import caller as roles
from rendezvous.registry.app import asks_what_is_wrong
from rendezvous.registry.caller import Caller, Public
from rendezvous.serving.connection import Connection
from rendezvous.talk.credentials import Credential, hkdf, new_tenant_credential, node_credential
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.reports import ExitReport, LeaveReport
from rendezvous.wire.run import NodeState, Phase
from rendezvous.wire.tenant import TenantRequest
from tests.support.registry import Launch
from tests.support.served import OPERATOR, SECRET, Served, serving

DEMO, OTHER = Launch("demo"), Launch("other")

served = pytest.fixture(serving)

MAY: dict[Public, set[str]] = {
    roles.operator: {"operator"},
    roles.lister: {"operator"},
    roles.creator: {"operator"},
    roles.scraper: {"operator"},
    roles.reader: {"operator", "admin", "read", "node", "node of another slot"},
    roles.maker: {"operator", "admin"},
    roles.looker: {"operator", "admin", "look"},
    roles.log_reader: {"operator", "admin", "logs"},
    roles.node: {"node"},
    roles.command_of_node: {"node"},
}
"""Those that have proven who they are where they may call."""

FOR_ALL = {roles.anyone, roles.newcomer}
OF_NODE = {roles.node, roles.command_of_node}

NO_NODES = {"operator", "admin", "read", "look", "logs"}


def credentials(served: Served) -> dict[str, Credential]:
    keys, access = DEMO.keys, served.service.access
    return {
        "operator": OPERATOR,
        "admin": keys.admin,
        "read": keys.read,
        "look": keys.look,
        "logs": keys.logs,
        "node": access.node_credential(served.host(DEMO), 1, 1),
        "node of another slot": access.node_credential(served.host(DEMO), 0, 1),
        "node of no incarnation": access.node_credential(served.host(DEMO), 1, 2),
        "join": DEMO.token(1),
        "of another run": OTHER.keys.admin,
    }


def asks(role: Public, served: Served, shown: Credential | None) -> tuple[str, bool]:
    """Why it may not, by the code of the refusal, and whether its connection is known by then."""
    connection = Connection("10.0.0.9")
    headers = [] if shown is None else [(b"authorization", b"Bearer " + shown.text().encode())]
    path = {"run": "demo", "node": 1}
    scope = {"headers": headers, "state": {"connection": connection}, "path_params": path}
    try:
        role.admit(Caller(served.service, scope))
    except RdzvError as exc:
        return exc.code, connection.is_known
    return "", connection.is_known


def test_every_role_has_a_row() -> None:
    assert set(MAY) | FOR_ALL == {one for one in vars(roles).values() if isinstance(one, Public)}


@pytest.mark.parametrize("role", MAY, ids=lambda role: role.__name__)
async def test_who_may_call_has_proven_it_and_nobody_else_has(served: Served, role: Public) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    await served.create(OTHER, 2)
    found = {name: asks(role, served, shown) for name, shown in credentials(served).items()}
    assert {name for name, (refusal, _) in found.items() if not refusal} == MAY[role]
    assert all((not refusal) is known for refusal, known in found.values())
    assert asks(role, served, None) == ("unauthorized", False)
    if role in OF_NODE:
        assert found["node of another slot"] == ("forbidden", False)


async def leaves(served: Served, **changes: Any) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO, 2, **changes)
    await served.report(DEMO, 1, LeaveReport())


async def is_replaced(served: Served) -> None:
    await leaves(served, managed=False)
    assert (await served.join(DEMO, 1, attempt=2)).incarnation == 2


async def is_lost(served: Served) -> None:
    """The programs of the others are about to stop, and the run goes on without it."""
    await served.bring_to(Phase.RUNNING, DEMO, 2, **OUTLIVES)
    await served.report(DEMO, 1, LeaveReport())
    assert served.host(DEMO).run.slots[1].its_node.state is NodeState.LOST


async def is_given_up(served: Served) -> None:
    await is_lost(served)
    await served.report(DEMO, 0, ExitReport(epoch=1, exit_code=143, stopped=True))
    await served.clock.move(5.0)
    assert served.host(DEMO).run.slots[1].node is None


async def is_of_a_launch_that_was_replaced(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    await served.service.cancel(served.host(DEMO), "asked for")
    await served.create(Launch("demo", "launch02"), 2)


LIMITS = {"fence_timeout_seconds": 60, "max_replacements": 1}
OUTLIVES: dict[str, Any] = {"on_node_loss": "replace", **LIMITS}
FENCED = dict.fromkeys(OF_NODE | {roles.reader}, "fenced")
OVER = dict.fromkeys(OF_NODE, "run_over") | {roles.reader: "not_found"}


@pytest.mark.parametrize(
    ("goes", "told"),
    [
        *((goes, FENCED) for goes in (leaves, is_replaced, is_lost, is_given_up)),
        (is_of_a_launch_that_was_replaced, OVER),
    ],
)
async def test_a_node_that_is_no_more_may_do_and_read_nothing(
    goes: Callable[[Served], Awaitable[None]], told: dict[Public, str], served: Served
) -> None:
    await goes(served)
    old = node_credential(hkdf(SECRET, "nodes"), "demo", "launch01", 1, 1)
    found = {role: asks(role, served, old) for role in MAY}
    assert all(refusal and not known for refusal, known in found.values())
    assert {role: found[role][0] for role in told} == told


async def test_all_but_nodes_and_strangers_are_served_where_there_is_no_room(
    served: Served,
) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    shown, tenants = credentials(served), served.service.tenants
    for name in ("tenant", "tenant of other runs"):
        shown[name] = new_tenant_credential()
        own = name.replace(" ", "-")
        await tenants.put(own, TenantRequest(prefix=f"{own}.", sha256=shown[name].sha256()))
    shown["no tenant"] = new_tenant_credential()
    passes = asks_what_is_wrong(served.service)

    def may(credential: Credential) -> bool:
        header = (b"authorization", b"Bearer " + credential.text().encode())
        return passes({"path": "/v1/runs/demo", "headers": [header]})

    found = {name for name, credential in shown.items() if may(credential)}
    assert found == {*NO_NODES, "tenant", "tenant of other runs"}
    assert not passes({"path": "/v1/runs/demo", "headers": []})


async def test_who_asks_for_anything_proves_nothing(served: Served) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    for shown in credentials(served).values():
        for role in FOR_ALL:
            assert asks(role, served, shown) == ("", False)
    assert asks(roles.anyone, served, None) == ("", False)
    assert asks(roles.newcomer, served, None) == ("unauthorized", False)
