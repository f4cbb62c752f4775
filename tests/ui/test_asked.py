"""What the page asks for one view at a time, and what a person may do there: of the registry while
the launch lives, else of what is kept; of nodes whose slots are not their ranks."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.state.state_dir import StateDir
from launcher.ui.asked import OUTCOMES
from launcher.ui.clerk import Keys
from rendezvous.talk.credentials import RunKeys
from rendezvous.wire.node import Finding
from rendezvous.wire.run import EpochEnd, Phase, Round, RunReport
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.verify import PairProbe
from tests.launcher.command import LAUNCH_ID, launched
from tests.launcher.drive import slot, status
from tests.support.pages import RUN, PageDoor, page_door
from tests.support.written import Registry, Written

ENDED = [EpochEnd(epoch=1, message="node 1 failed")]
STANDS = status(
    slot(0, node=2),
    slot(1, node=0),
    slot(4, node=1),
    phase=Phase.RUNNING,
    restarts=3,
    max_restarts=5,
    ended=ENDED,
)
HOSTS = {0: "gpu-9", 1: "gpu-4", 4: "gpu-7"}
NOBODY = {
    slot: [PairProbe(slot=peer, outcome="timeout") for peer in (0, 1, 4) if peer != slot]
    for slot in (0, 1, 4)
}
TRIED = Round(
    network="ib0",
    verdict="not by all",
    slots=[1, 0, 4],
    reports={
        0: [PairProbe(slot=1, outcome="ok", rtt_ms=0.5), PairProbe(slot=4, outcome="refused")],
        1: [PairProbe(slot=4, outcome="timeout"), PairProbe(slot=7, outcome="ok")],
        7: [PairProbe(slot=0, outcome="ok")],
    },
)
REPORT = RunReport(
    run=RUN,
    hostnames=HOSTS,
    rounds=[Round(network="eth1", verdict="nobody", slots=[0, 1, 4], reports=NOBODY), TRIED],
    findings=[
        Finding(check="L01", level="ok", slot=0, fix="none"),
        Finding(check="M02", level="warn", slot=4, cause="clocks differ", fix="mend it"),
    ],
)


def table() -> EndpointTable:
    common: dict[str, Any] = {"interface": "eth0", "prefix_length": 24, "mac": "", "hcas": []}
    known = [(0, 1, 8), (1, 4, 5), (2, 0, 2)]
    rows = [
        TableRow(
            node=rank,
            slot=at,
            hostname=HOSTS[at],
            address=f"10.0.0.{at + 1}",
            nproc_per_node=count,
            **common,
        )
        for rank, at, count in known
    ]
    values: dict[str, Any] = {"master_address": "10.0.0.2", "master_port": 29_500, "epoch": 2}
    return EndpointTable(run=RUN, launch_id=LAUNCH_ID, transport="Socket", rows=rows, **values)


def written(digest: str) -> dict[str, Written]:
    at = f"/v1/runs/{RUN}"
    said = STANDS.model_copy(update={"digest": digest})
    return {
        f"GET {at}": said,
        f"GET {at}/report": REPORT,
        f"GET {at}/tables/{digest}": table(),
        f"DELETE {at}": said.model_copy(update={"reason": "it is cancelled"}),
        f"POST {at}/restart": said.model_copy(update={"reason": "it restarts"}),
        f"POST {at}/slots/4/drain": said.model_copy(update={"reason": "it leaves"}),
    }


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    one = Registry(written(table().digest()))
    one.put_in(monkeypatch, "launcher.ui.viewed")
    return one


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDir]:
    """Of a run whose launcher lives."""
    one = launched(tmp_path, command=["train.py"])
    one.acquire()
    yield one
    one.release()


def keys_of(state: StateDir) -> Keys:
    made = state.keys()
    assert isinstance(made, RunKeys)
    return Keys(made.read, made.read, made.look, made.admin)


async def asked(door: PageDoor, what: str, query: str = "") -> Any:
    answer = await door.ask("GET", f"/ui-api/runs/{RUN}/{what}{query}", door.session())
    return json.loads(answer.body)


async def act(door: PageDoor, **what: Any) -> tuple[int, Any]:
    answer = await door.ask("POST", f"/ui-api/runs/{RUN}/acts", door.session(), what)
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("lives", [True, False])
async def test_what_was_checked_is_shown_live_or_kept(
    registry: Registry, state: StateDir, tmp_path: Path, *, lives: bool
) -> None:
    if not lives:
        state.write("report.json", REPORT.model_dump_json().encode())
        registry.answers.clear()
    async with page_door(tmp_path, keys=keys_of(state)) as door:
        checks, matrix = await asked(door, "checks"), await asked(door, "matrix")
    worst = checks["findings"][0]
    assert (worst["level"], worst["check"], worst["fix"]) == ("warn", "M02", "mend it")
    assert "clocks differ" in worst["text"]
    assert matrix["names"] == ["slot 1 (gpu-4)", "slot 0 (gpu-9)", "slot 4 (gpu-7)"]
    assert (matrix["shown"], [one["network"] for one in matrix["networks"]]) == (1, ["eth1", "ib0"])
    cells = [OUTCOMES[byte] for byte in base64.b64decode(matrix["cells"])]
    assert [cells[place] for place in (2, 3, 5)] == ["no answer", "ok", "connection refused"]
    rtts = base64.b64decode(matrix["rtts"])
    assert [number for number, byte in enumerate(rtts) if byte] == [3]


def test_an_outcome_is_said_as_on_a_terminal() -> None:
    """No code of the wire is shown, such as black_hole."""
    assert OUTCOMES[:2] == ("not probed", "ok")
    assert "small messages pass and large ones vanish" in OUTCOMES
    assert not [words for words in OUTCOMES if "_" in words]


async def test_a_nodes_environment_is_of_the_newest_table_of_its_registry(
    registry: Registry, state: StateDir, tmp_path: Path
) -> None:
    digest = table().digest()
    async with page_door(tmp_path, keys=keys_of(state)) as door:
        none = await asked(door, "environment", "?node=1")
        assert none["message"] == f"run '{RUN}' has no endpoint table yet"
        door.runs.viewed(RUN).told.status(STANDS.model_copy(update={"digest": digest}))
        live = await asked(door, "environment", "?node=1")
        state.write("table.json", table().canonical())
        state.write(
            "status.json", STANDS.model_copy(update={"restarts": 2}).model_dump_json().encode()
        )
        registry.answers.clear()
        kept = await asked(door, "environment", "?node=1")
    assert (live["node"], live["host"], live["table"], live["transport"]) == (
        1,
        "gpu-7",
        digest,
        "Socket",
    )
    values = [{one["name"]: one["value"] for one in env["variables"]} for env in (live, kept)]
    assert [found["NODE_RANK"] for found in values] == ["1", "1"]
    assert [found["RDZV_RESTARTS"] for found in values] == ["3", "2"]
    assert values[0]["MASTER_ADDR"] == "10.0.0.2"


async def test_what_a_person_asks_for_reaches_the_slot_of_the_node(
    registry: Registry, state: StateDir, tmp_path: Path
) -> None:
    keys = keys_of(state)
    async with page_door(tmp_path, keys=keys) as door:
        assert await act(door, act="cancel", reason="enough") == (200, {"words": "it is cancelled"})
        words = {"words": f"run '{RUN}': it restarts"}
        assert await act(door, act="restart", reason="new data") == (200, words)
        words = {"words": f"run '{RUN}': it leaves"}
        drain: dict[str, Any] = {"act": "drain", "node": 1, "seconds": 30.0}
        assert await act(door, **drain, reason="a fan") == (200, words)
        for what in ({"act": "cancel"}, {"act": "restart"}, drain):
            assert (await act(door, **what))[0] == 200
        assert (await act(door, act="drain", node=7))[0] == 404
        assert (await act(door, act="drain"))[0] == 400
    assert keys.admin is not None
    calls = zip(registry.asked, registry.credentials, strict=True)
    done = [call for call, text in calls if text == keys.admin.text() and call[0][:3] != "GET"]
    bodies = [body if isinstance(body, dict) else body.model_dump() for _, body in done]
    assert [call.split()[0] for call, _ in done] == ["DELETE", "POST", "POST"] * 2
    assert bodies == [
        *({"reason": "enough"}, {"reason": "new data"}, {"seconds": 30.0, "reason": "a fan"}),
        *({"reason": "asked for on the page"}, {"reason": "asked for on the page"}),
        {"seconds": 30.0, "reason": "asked for on the page"},
    ]


async def test_who_may_only_look_on_does_nothing(
    registry: Registry, state: StateDir, tmp_path: Path
) -> None:
    keys = keys_of(state)
    async with page_door(tmp_path, keys=Keys(keys.read)) as door:
        code, said = await act(door, act="cancel")
    assert (code, said["message"]) == (403, "this page was started without acts")
    assert "DELETE" not in str(registry.asked)
