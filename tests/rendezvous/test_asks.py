"""What a client sends for each of its calls, and to which path: of values that all differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rendezvous.channel import Published
from rendezvous.feature import Lazy
from rendezvous.talk import last_words, log_views, questions, tenants
from rendezvous.talk.client import RegistryClient, aged
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.last_words import LastWords, RankText
from rendezvous.wire.log_view import ViewPart, ViewPost, ViewRequest
from rendezvous.wire.question import Answer
from rendezvous.wire.relay import CommandEnd, Parcel
from rendezvous.wire.reports import AckReport, DepartReport, ExitReport
from rendezvous.wire.run import SlotNews, SlotState
from rendezvous.wire.tenant import TenantLimits, TenantRequest
from rendezvous.wire.verify import ProbeReport
from tests.support.driver import make_join, make_refusal, make_spec, sha
from tests.support.hosts import Host, with_client
from tests.support.topics import WEATHER

WIRE = Path(__file__).parents[1] / "wire"
RUN, SLOT, AFTER, WAIT = "demo", 3, 41, 2.5
NODE = f"/v1/runs/{RUN}/nodes/{SLOT}"

PUBLISHED = Published(
    name="name",
    path="sent",
    message=Lazy("rendezvous.wire.relay:Parcel"),
    response=Lazy("rendezvous.wire.run:RunStatus"),
    store=Lazy("nowhere:Kept"),
)

Call = Callable[[RegistryClient], Coroutine[Any, Any, Any]]

CALLS: dict[str, tuple[Call, str, str]] = {
    "POST /v1/runs/demo/nodes": (
        lambda c: c.join(RUN, make_join(SLOT, 5)),
        "JoinReply",
        '"slot":3,"generation":5',
    ),
    "POST /v1/runs/demo/slots/3/refusal": (
        lambda c: c.refuse(RUN, SLOT, make_refusal(SLOT)),
        "ReportReply",
        '"reason":"there is no GPU"',
    ),
    f"GET {NODE}/watch?after=41&question=7&views=9&wait=2.5": (
        lambda c: c.watch(RUN, SLOT, AFTER, WAIT, question=7, views=9),
        "NodeView",
        "",
    ),
    f"GET {NODE}/watch?after=41&wait=2.5&epoch=4&ack={sha('x')}&warm=1": (
        lambda c: c.watch(RUN, SLOT, AFTER, WAIT, AckReport(epoch=4, digest=sha("x"), warm=True)),
        "NodeView",
        "",
    ),
    f"POST {NODE}/watch?after=41&wait=2.5": (
        lambda c: c.watch(RUN, SLOT, AFTER, WAIT, ExitReport(epoch=4, exit_code=9)),
        "NodeView",
        '"epoch":4,"exit_code":9',
    ),
    f"POST {NODE}/reports": (
        lambda c: c.report(RUN, SLOT, ProbeReport(epoch=4)),
        "ReportReply",
        '"kind":"probe","epoch":4',
    ),
    f"GET {NODE}/relay?after=41&session=s": (
        lambda c: c.relay_take(RUN, SLOT, AFTER, "s"),
        "RelayMail",
        "",
    ),
    f"POST {NODE}/relay": (
        lambda c: c.relay_give(RUN, SLOT, [Parcel(peer=2, frame=CommandEnd(number=6))]),
        "RelayReply",
        '"peer":2,',
    ),
    "PUT /v1/runs/demo": (
        lambda c: c.create(RUN, make_spec(7, least=5)),
        "RunStatus",
        '"min_nodes":5,"max_nodes":7',
    ),
    "DELETE /v1/runs/demo?reason=enough": (lambda c: c.cancel(RUN, "enough"), "RunStatus", ""),
    "POST /v1/runs/demo/restart": (
        lambda c: c.restart(RUN, "again"),
        "RunStatus",
        '"reason":"again"',
    ),
    "POST /v1/runs/demo/slots/3/drain": (
        lambda c: c.drain(RUN, SLOT, 90.0, "it goes"),
        "RunStatus",
        '"seconds":90.0,"reason":"it goes"',
    ),
    "POST /v1/runs/demo/slots/3": (
        lambda c: c.slot_news(RUN, SLOT, SlotNews(generation=5, state=SlotState.QUEUED)),
        "RunStatus",
        '"generation":5,"state":"queued"',
    ),
    "GET /v1/runs/demo?after=41&wait=2.5": (
        lambda c: c.status(RUN, after=AFTER, wait=WAIT),
        "RunStatus",
        "",
    ),
    "GET /v1/runs/demo/report": (lambda c: c.checks(RUN), "RunReport", ""),
    f"POST {NODE}/words": (
        lambda c: last_words.send_words(
            c, RUN, SLOT, LastWords(epoch=4, node=2, texts=[RankText(rank=5, text="it fails")])
        ),
        "LastWordsReply",
        '"epoch":4,"node":2,"texts":[{"rank":5',
    ),
    "GET /v1/runs/demo/words?after=41": (
        lambda c: last_words.last_words(c, RUN, AFTER),
        "RunLastWords",
        "",
    ),
    "POST /v1/runs/demo/views": (
        lambda c: log_views.open_view(c, RUN, ViewRequest(node=2, lines=11)),
        "ViewCall",
        '"node":2',
    ),
    "GET /v1/runs/demo/views?view=8&after=41&wait=2.5": (
        lambda c: log_views.read_view(c, RUN, 8, AFTER, WAIT),
        "RunView",
        "",
    ),
    f"POST {NODE}/views": (
        lambda c: log_views.serve_view(
            c,
            RUN,
            SLOT,
            ViewPost(view=8, number=6, parts=[ViewPart(rank=5, lines=["x"])]),
        ),
        "ViewReply",
        '"view":8,"number":6,"parts":[{"rank":5',
    ),
    "POST /v1/runs/demo/weather": (
        lambda c: questions.ask_nodes(c, WEATHER, RUN),
        "QuestionCall",
        "",
    ),
    "GET /v1/runs/demo/weather?number=8&wait=2.5": (
        lambda c: questions.answers(c, WEATHER, RUN, 8, WAIT),
        "Answers",
        "",
    ),
    f"POST {NODE}/weather": (
        lambda c: questions.answer(c, "weather", RUN, SLOT, Answer(number=8, epoch=4, words="x")),
        "ReportReply",
        '{"number":8,"epoch":4,"words":"x"}',
    ),
    f"POST {NODE}/sent": (
        lambda c: c.publish(PUBLISHED, RUN, SLOT, Parcel(peer=2, frame=CommandEnd(number=6))),
        "ReportReply",
        '{"peer":2,"frame":{"number":6}}',
    ),
    "GET /v1/runs/demo/name": (lambda c: c.topic(PUBLISHED, RUN), "RunStatus", ""),
    "GET /v1/runs/demo/name?after=41": (
        lambda c: c.topic(PUBLISHED, RUN, after=AFTER),
        "RunStatus",
        "",
    ),
    "GET /v1/tenants": (tenants.tenants_of, "TenantList", ""),
    "PUT /v1/tenants/team": (
        lambda c: tenants.put_tenant(
            c, "team", TenantRequest(prefix="t-", limits=TenantLimits(max_runs=3))
        ),
        "TenantStatus",
        '"max_runs":3',
    ),
    "DELETE /v1/tenants/team": (lambda c: tenants.remove_tenant(c, "team"), "TenantStatus", ""),
}


def answer_of(model: str) -> Any:
    return json.loads((WIRE / f"{model}.json").read_text())


@pytest.mark.parametrize("said", CALLS)
def test_what_a_call_sends(said: str) -> None:
    call, model, body = CALLS[said]
    answer = answer_of(model)
    if model == "NodeView":
        answer |= {"table": None, "renewed_port": None}
    host = Host(answer=answer)
    found, *_ = with_client({"a": host}, call)
    [request] = host.asked_for_runs
    assert f"{request.method} {request.target}" == said
    sent = request.body or b""
    compact = json.dumps(json.loads(sent), separators=(",", ":")) if sent else ""
    assert body in compact if body else not sent
    assert found is None or type(found).__name__ in (model, "float", "list")


@pytest.mark.parametrize("said", CALLS)
def test_an_answer_that_is_none_is_an_error_of_ours(said: str) -> None:
    with pytest.raises(RdzvError):
        with_client({"a": Host(answer="nonsense")}, CALLS[said][0])


def test_a_report_gets_older_on_its_way() -> None:
    assert aged(DepartReport(epoch=4, seconds=10.0), 2.5).seconds == 7.5
    assert aged(DepartReport(epoch=4, seconds=1.0), 2.5).seconds == 0.0
    report = aged(ExitReport(epoch=4, exit_code=9, age_seconds=10.0, ran_seconds=3.0), 2.5)
    assert (report.age_seconds, report.ran_seconds) == (12.5, 3.0)
    assert aged(probe := ProbeReport(epoch=4), 2.5) is probe
