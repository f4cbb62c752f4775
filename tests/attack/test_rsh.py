"""Remote commands and strangers: who may pass frames on, and what no registry can make nodes do."""

from __future__ import annotations

import base64

import pytest

from rendezvous.server.app import make_app
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.wire.relay import RelayMail
from tests.attack.stage import Stage
from tests.attack.test_matrix import staged
from tests.support.served import ask

REFUSED = {
    "replaced launch's node": 410,
    "other slot's node": 403,
    "old incarnation's node": 409,
    "node": 200,
}
"""While the run is running: its node alone, for itself; all others are strangers."""

GIVE = ("POST", "/v1/runs/{run}/nodes/{node}/relay")
TAKE = ("GET", "/v1/runs/{run}/nodes/{node}/relay")


@pytest.mark.parametrize(("method", "path"), [GIVE, TAKE], ids=["give", "take"])
async def test_while_a_run_is_running_its_present_nodes_alone_pass_frames_on(
    method: str, path: str
) -> None:
    async with staged() as stage:
        await stage.go()
        app = make_app(stage.served.service, allowed_hosts=[SERVER_NAME])
        url, body = stage.request(method, path)
        found = {}
        for kind, shown in stage.shown.items():
            before = stage.effects()
            found[kind] = (await ask(app, method, url, shown, body, source=kind)).status
            changed = stage.effects() != before
            assert changed == (kind == "node"), kind  # its lease, and what it gives
    assert found == dict.fromkeys(stage.shown, 401) | REFUSED


async def _tell_slot_0(stage: Stage) -> None:
    app = make_app(stage.served.service, allowed_hosts=[SERVER_NAME])
    url = "/v1/runs/demo/nodes/1/relay"
    body = {"parcels": [{"peer": 0, "frame": {"kind": "end", "number": 7}}]}
    answer = await ask(app, "POST", url, stage.node(stage.mine, 1), body)
    assert answer.status == 200


async def test_a_node_can_speak_for_no_other_one() -> None:
    """Whatever a frame says of its sender: the registry writes there who has shown a credential."""
    async with staged() as stage:
        await stage.go()
        await _tell_slot_0(stage)
        app = make_app(stage.served.service, allowed_hosts=[SERVER_NAME])
        answer = await ask(app, "GET", "/v1/runs/demo/nodes/0/relay", stage.shown["node"])
    mail = RelayMail.model_validate_json(answer.body)
    assert [(parcel.peer, parcel.frame.number) for parcel in mail.parcels] == [(1, 7)]


@pytest.mark.parametrize(
    "spoilt",
    [
        {"command": "not base64!"},
        {"command": base64.b64encode(bytes(140_000)).decode()},
        {"number": 0},
        {"number": 1 << 60},
        {"mac": "0" * 63},
        {"kind": "exec"},
    ],
)
async def test_a_frame_that_is_none_is_refused_before_it_is_kept(
    spoilt: dict[str, object],
) -> None:
    frame = {"kind": "start", "number": 1, "command": "dHJ1ZQ==", "mac": "0" * 64}
    async with staged() as stage:
        await stage.go()
        app = make_app(stage.served.service, allowed_hosts=[SERVER_NAME])
        url, _ = stage.request(*GIVE)
        body = {"parcels": [{"peer": 1, "frame": frame | spoilt}]}
        before = stage.effects()
        answer = await ask(app, "POST", url, stage.shown["node"], body)
        assert answer.problem == (400, "bad_request")
        assert stage.effects() == before
