"""Who may call, and what a connection has proven by it: each caller with each credential."""

from __future__ import annotations

import pytest

from rendezvous.registry import caller as roles
from rendezvous.registry.app import asks_what_is_wrong
from rendezvous.registry.caller import Caller, Public
from rendezvous.serving.connection import Connection
from rendezvous.talk.credentials import Credential, new_tenant_credential
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import Phase
from rendezvous.wire.tenant import TenantRequest
from tests.support.registry import Launch
from tests.support.served import OPERATOR, Served, serving

DEMO, OTHER = Launch("demo"), Launch("other")

served = pytest.fixture(serving)

MAY: dict[Public, set[str]] = {
    roles.operator: {"operator"},
    roles.lister: {"operator"},
    roles.creator: {"operator"},
    roles.scraper: {"operator"},
    roles.reader: {"operator", "admin", "read", "node"},
    roles.maker: {"operator", "admin"},
    roles.looker: {"operator", "admin", "look"},
    roles.log_reader: {"operator", "admin", "logs"},
    roles.node: {"node"},
    roles.command_of_node: {"node"},
}
"""Those that have proven who they are where they may call."""


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


def asks(role: Public, served: Served, shown: Credential | None) -> tuple[bool, bool]:
    """Whether it may, and whether its connection is known by then."""
    connection = Connection("10.0.0.9")
    headers = [] if shown is None else [(b"authorization", b"Bearer " + shown.text().encode())]
    path = {"run": "demo", "node": 1}
    scope = {"headers": headers, "state": {"connection": connection}, "path_params": path}
    try:
        role.admit(Caller(served.service, scope))
    except RdzvError:
        return False, connection.is_known
    return True, connection.is_known


@pytest.mark.parametrize("role", MAY, ids=lambda role: role.__name__)
async def test_who_may_call_has_proven_it_and_nobody_else_has(served: Served, role: Public) -> None:
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    await served.create(OTHER, 2)
    found = {name: asks(role, served, shown) for name, shown in credentials(served).items()}
    may = {name for name, (may, _) in found.items() if may}
    assert may - {"node of another slot"} == MAY[role]
    assert all(may is known for may, known in found.values())
    assert asks(role, served, None) == (False, False)


async def test_a_node_that_has_left_may_do_and_read_nothing_any_more(served: Served) -> None:
    await served.bring_to(Phase.VERIFYING, DEMO, 2)
    old = served.service.access.node_credential(served.host(DEMO), 1, 1)
    assert asks(roles.reader, served, old) == asks(roles.node, served, old) == (True, True)
    await served.report(DEMO, 1, LeaveReport())
    for role in MAY:
        assert asks(role, served, old) == (False, False)


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
        for role in (roles.anyone, roles.newcomer):
            assert asks(role, served, shown) == (True, False)
    assert asks(roles.anyone, served, None) == (True, False)
    assert asks(roles.newcomer, served, None) == (False, False)
