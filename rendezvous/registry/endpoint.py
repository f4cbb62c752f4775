"""Reads what an endpoint declares, and refuses whatever a route does not serve.

FastAPI's OpenAPI lists every parameter and option. Those that `Route` would pass over are refused
where they are declared: else a limit would be its default, and an authorisation would never run.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import params
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.convertors import Convertor
from starlette.responses import Response
from starlette.routing import compile_path

from rendezvous.registry.caller import Public
from rendezvous.serving.answers import Body

_DEFAULTS = {
    name: option.default for name, option in inspect.signature(APIRoute.__init__).parameters.items()
}
_MARKERS = (params.Param, params.Body, params.Depends)
_SERVED = frozenset({"methods"})
_ONLY_DOCUMENTED = frozenset(
    {
        *("name", "description", "tags", "responses", "response_description", "deprecated"),
        *("operation_id", "generate_unique_id_function", "include_in_schema", "openapi_extra"),
        "callbacks",
    }
)
_OF_READY_ANSWERS = frozenset({"response_model", "response_class"})
"""Document what is in an answer that an endpoint has made itself; of a model they would change it,
which no route does."""


def parameters_of(
    path: str, endpoint: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The annotations of an endpoint's parameters.

    Raises TypeError for a parameter, a default or an option that no route serves.
    """
    name = getattr(endpoint, "__name__", repr(endpoint))
    hints = typing.get_type_hints(endpoint, include_extras=True)
    if refused := _wrong_option(options, hints.get("return")):
        raise TypeError(f"{name}: {refused}")
    convertors = compile_path(path)[2]
    taken: dict[str, Any] = {}
    for one, parameter in inspect.signature(endpoint).parameters.items():
        taken[one] = hints.get(one)
        if refused := _wrong_parameter(parameter, taken[one], convertors):
            raise TypeError(f"{name}: the parameter '{one}' {refused}")
    if "caller" not in taken:
        raise TypeError(f"{name}: there is no `caller`, whose role says who may call")
    return taken


def _wrong_option(options: Mapping[str, Any], returns: Any) -> str:
    """Word the first option of FastAPI's that no route serves, among them its router's."""
    is_ready = isinstance(returns, type) and issubclass(returns, Response | Body)
    served = _SERVED | _ONLY_DOCUMENTED | (_OF_READY_ANSWERS if is_ready else frozenset())
    given = {one for one, value in options.items() if value not in (_DEFAULTS.get(one), None, [])}
    if wrong := sorted(given - served):
        return f"the option {wrong[0]} is not served; served are {', '.join(sorted(served))}"
    return ""


def _wrong_parameter(
    parameter: inspect.Parameter, kind: Any, convertors: Mapping[str, Convertor[Any]]
) -> str:
    name = parameter.name
    by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    if not by_name or name not in {"caller", "query", "body", *convertors}:
        names = ", ".join(["caller", "query", "body", *convertors])
        return f"is not served; served are {names}"
    if parameter.default is not parameter.empty:
        return "has a default, which is not served; fields of the query and the body may have one"
    if name == "caller":
        return _wrong_caller(kind, convertors)
    if name == "query":
        model, *markers = _parts(kind)
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        is_served = is_model and [type(one) for one in markers] == [params.Query]
        return "" if is_served else "is served as Annotated[MODEL, Query()] alone"
    if name == "body":
        foreign = [one for one in _parts(kind) if isinstance(one, _MARKERS)]
        if kind is None or foreign:
            return "is served as a type that is read of JSON, without markers of FastAPI's"
        return ""
    given = typing.get_type_hints(type(convertors[name]).convert, include_extras=True)["return"]
    said = [one for one in _parts(kind) if not _only_describes(one)]
    return "" if said == _parts(given) else f"is served as {given}, which the path gives"


def _wrong_caller(kind: Any, convertors: Mapping[str, Convertor[Any]]) -> str:
    match _parts(kind)[1:]:
        case [params.Security(dependency=Public() as role, scopes=None | [])]:
            about = [name for name in inspect.signature(role).parameters if name not in convertors]
            return f"is about {' and '.join(about)}, which the path does not have" if about else ""
    return "is served as Annotated[Caller, Security(ROLE)] alone, without scopes"


def _parts(kind: Any) -> list[Any]:
    """A type, and what annotates it."""
    return [getattr(kind, "__origin__", kind), *getattr(kind, "__metadata__", ())]


def _only_describes(part: Any) -> bool:
    """Tell a `Path()` without a rule from one that checks."""
    return isinstance(part, params.Path) and not part.metadata
