"""Writes `docs/openapi.json`: `python -m rendezvous.registry.openapi > docs/openapi.json`.

FastAPI describes what the table of routes declares.
"""

# No postponed annotations here: FastAPI reads the signatures that are made.

import inspect
import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query

from rendezvous.registry.asked import anyone
from rendezvous.registry.routes import PLACEHOLDERS, ROUTES, Route
from rendezvous.wire.types import Problem

_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "Refused; `code` says why."},
    "5XX": {"model": Problem, "description": "Not now."},
}


def openapi() -> dict[str, Any]:
    """The OpenAPI of the registry."""
    api = FastAPI(
        title="rdzv registry",
        version="1",
        description="Brings the nodes of one training job together.",
        responses=_REFUSALS,
    )
    for route in ROUTES:
        api.add_api_route(
            route.path,
            _described(route),
            methods=[route.method],
            summary=route.summary,
            response_model=route.gives,
        )
    document = api.openapi()
    bearer = {
        "type": "http",
        "scheme": "bearer",
        "description": "The path determines which one is needed.",
    }
    document["components"]["securitySchemes"] = {"credential": bearer}
    document["security"] = [{"credential": []}]
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        answer = operation["responses"]["200"]
        answer["content"] = {route.media: answer["content"]["application/json"]}
        if route.who is anyone:
            operation["security"] = []
    return document


def _described(route: Route) -> Callable[..., None]:
    """A function with the name and the parameters of a route."""

    def described() -> None: ...

    names = [part[1:-1] for part in route.path.split("/") if part[:1] == "{"]
    found = [_parameter(name, Annotated[PLACEHOLDERS[name][1], Path()]) for name in names]
    for name, (kind, default) in route.query.items():
        found.append(_parameter(name, Annotated[kind, Query()], default))
    if route.takes is not None:
        found.append(_parameter("body", Annotated[route.takes, Body()]))
    described.__name__ = route.name
    described.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    return described


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    how = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, how, annotation=kind, default=default)


def openapi_text() -> str:
    """The OpenAPI of the registry, sorted and indented."""
    return json.dumps(openapi(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
