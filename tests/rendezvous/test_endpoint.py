"""What an endpoint declares is served, or refused where it is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, Cookie, Depends, FastAPI, Form, Header, Path, Query, Security
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rendezvous.registry.caller import Caller, SlotPath, anyone, node, reader
from rendezvous.registry.route import HotRoute, Route, add_routes, make_router, routes_of
from rendezvous.registry.routes import RUN, SLOT

Anyone = Annotated[Caller, Security(anyone)]
Endpoint = Callable[..., Any]


class Message(BaseModel):
    """A query, a body or an answer."""

    text: str = ""


def forbid() -> None:
    raise AssertionError("a dependency that refuses everybody")


async def header(caller: Anyone, token: Annotated[str, Header()]) -> None: ...
async def cookie(caller: Anyone, token: Annotated[str, Cookie()]) -> None: ...
async def bare_query(caller: Anyone, limit: int = 5) -> None: ...
async def marked_query(caller: Anyone, limit: Annotated[int, Query()]) -> None: ...
async def dependency(caller: Anyone, user: Annotated[None, Depends(forbid)]) -> None: ...
async def old_dependency(caller: Anyone, user: None = Depends(forbid)) -> None: ...
async def request(caller: Anyone, request: Request) -> None: ...
async def second_body(caller: Anyone, body: Message, more: Message) -> None: ...
async def of_another_path(caller: Anyone, node: SlotPath) -> None: ...
async def anything(caller: Anyone, **query: Any) -> None: ...


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        (header, "token"),
        (cookie, "token"),
        (bare_query, "limit"),
        (marked_query, "limit"),
        (dependency, "user"),
        (old_dependency, "user"),
        (request, "request"),
        (second_body, "more"),
        (of_another_path, "node"),
        (anything, "query"),
    ],
)
@pytest.mark.parametrize("kind", [Route, HotRoute])
def test_a_parameter_that_no_route_serves_is_refused_by_name(
    kind: type[Route], endpoint: Endpoint, name: str
) -> None:
    with pytest.raises(TypeError) as refused:
        make_router(kind).post(SLOT)(endpoint)
    assert str(refused.value) == (
        f"{endpoint.__name__}: the parameter '{name}' is not served; "
        "served are caller, query, body, run, slot"
    )


async def no_caller(body: Message) -> None: ...
async def bare_caller(caller: Caller) -> None: ...
async def unprotected(caller: Annotated[Caller, Depends(anyone)]) -> None: ...
async def no_role(caller: Annotated[Caller, Security(forbid)]) -> None: ...
async def scoped(caller: Annotated[Caller, Security(anyone, scopes=["x"])]) -> None: ...
async def two(caller: Annotated[Caller, Security(anyone), Security(reader)]) -> None: ...
async def of_a_node(caller: Annotated[Caller, Security(node)]) -> None: ...


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        (no_caller, "no_caller: there is no `caller`"),
        (bare_caller, "bare_caller: the parameter 'caller' is served as Annotated"),
        (unprotected, "unprotected: the parameter 'caller' is served as Annotated"),
        (no_role, "no_role: the parameter 'caller' is served as Annotated"),
        (scoped, "scoped: the parameter 'caller' is served as Annotated"),
        (two, "two: the parameter 'caller' is served as Annotated"),
        (
            of_a_node,
            "of_a_node: the parameter 'caller' is about node, which the path",
        ),
    ],
)
def test_an_endpoint_without_one_role_that_its_path_can_answer_is_refused(
    endpoint: Endpoint, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        make_router().post(RUN)(endpoint)


async def default_query(
    caller: Anyone, query: Annotated[Message | None, Query()] = None
) -> None: ...
async def default_body(caller: Anyone, body: Message | None = None) -> None: ...
async def default_slot(caller: Anyone, slot: SlotPath = 1) -> None: ...
async def default_caller(caller: Anyone = None) -> None: ...  # type: ignore[assignment]


@pytest.mark.parametrize("endpoint", [default_query, default_body, default_slot, default_caller])
def test_a_default_that_would_not_be_used_is_refused(endpoint: Endpoint) -> None:
    with pytest.raises(TypeError, match="has a default, which is not served"):
        make_router().post(SLOT)(endpoint)


async def number(caller: Anyone, query: Annotated[int, Query()]) -> None: ...
async def plain_query(caller: Anyone, query: Message) -> None: ...
async def query_of_a_header(caller: Anyone, query: Annotated[Message, Header()]) -> None: ...
async def form(caller: Anyone, body: Annotated[Message, Form()]) -> None: ...
async def embedded(caller: Anyone, body: Annotated[Message, Body(embed=True)]) -> None: ...
async def computed(caller: Anyone, body: Annotated[Message, Depends(forbid)]) -> None: ...
async def text(caller: Anyone, slot: str) -> None: ...
async def limited(caller: Anyone, slot: Annotated[SlotPath, Path(ge=5)]) -> None: ...
async def untyped(caller: Anyone, slot) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        (number, "query"),
        (plain_query, "query"),
        (query_of_a_header, "query"),
        (form, "body"),
        (embedded, "body"),
        (computed, "body"),
        (text, "slot"),
        (limited, "slot"),
        (untyped, "slot"),
    ],
)
def test_what_would_be_read_otherwise_than_declared_is_refused(
    endpoint: Endpoint, name: str
) -> None:
    with pytest.raises(
        TypeError, match=f"{endpoint.__name__}: the parameter '{name}' is served as"
    ):
        make_router().post(SLOT)(endpoint)


async def plain(caller: Anyone) -> Message:
    return Message()


async def made(caller: Anyone) -> Response:
    return Response()


@pytest.mark.parametrize(
    ("endpoint", "options"),
    [
        (plain, {"dependencies": [Depends(forbid)]}),
        (plain, {"status_code": 201}),
        (plain, {"response_model_exclude_none": True}),
        (plain, {"response_model_by_alias": False}),
        (plain, {"response_model_include": {"text"}}),
        (plain, {"summary": "another"}),
        (plain, {"response_model": dict[str, int]}),
        (plain, {"response_class": PlainTextResponse}),
        (made, {"status_code": 201}),
    ],
)
def test_an_option_that_no_route_serves_is_refused(
    endpoint: Endpoint, options: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=f"the option {next(iter(options))} is not served"):
        make_router().get(RUN, **options)(endpoint)


def test_what_only_documents_an_answer_is_taken() -> None:
    make_router().get(RUN, response_model=Message, response_class=PlainTextResponse)(made)
    make_router().get(RUN, deprecated=True, tags=["x"], description="x")(plain)


def test_dependencies_are_refused_at_each_level() -> None:
    """An authorisation that a router or an application asks for would not run either."""
    router = APIRouter(route_class=Route, dependencies=[Depends(forbid)])
    with pytest.raises(TypeError, match="the option dependencies is not served"):
        router.get(RUN)(plain)
    inner, outer = make_router(), make_router()
    inner.get(RUN)(plain)

    def include() -> None:
        outer.include_router(inner, dependencies=[Depends(forbid)])
        routes_of([outer])  # as newer versions of FastAPI include a router, this one sees it

    with pytest.raises(TypeError, match=r"the option dependencies|is no Route"):
        include()
    app = FastAPI(dependencies=[Depends(forbid)])
    with pytest.raises(TypeError, match="no route would run the dependencies"):
        add_routes(app.router, routes_of([inner]))
    assert not any(isinstance(route, Route) for route in app.routes)


def test_what_asks_for_no_role_is_not_among_the_routes() -> None:
    other = APIRouter()
    other.get(RUN)(made)
    with pytest.raises(TypeError, match="is no Route"):
        routes_of([make_router(), other])


def test_what_is_declared_on_the_application_is_held_to_the_same() -> None:
    app = FastAPI()
    add_routes(app.router, [])
    with pytest.raises(TypeError, match="is not served"):
        app.get(RUN)(header)
