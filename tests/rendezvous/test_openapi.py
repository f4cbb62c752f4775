"""The description of the wire in `docs/openapi.json` is the one of the application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rendezvous.server.openapi import openapi, openapi_text
from rendezvous.server.routes import ROUTES

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


def _values(value: Any, key: str) -> Iterator[Any]:
    """Everything that stands under this key, anywhere."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from _values(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, key)


def test_the_file_is_what_the_application_says() -> None:
    assert FILE.read_text() == openapi_text(), (
        f"{FILE.name} is older than the application: refresh it with 'make openapi' "
        "(python -m rendezvous.server.openapi > docs/openapi.json)"
    )


def test_every_route_is_described() -> None:
    routes = {(route.path, route.method.lower()) for route in ROUTES}
    described = {(path, method) for path, item in openapi()["paths"].items() for method in item}
    assert described == routes


def test_every_operation_has_a_name_a_summary_and_the_one_shape_of_refusals() -> None:
    operations = [item for path in openapi()["paths"].values() for item in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operation in operations:
        assert operation["summary"].endswith(".")
        assert sorted(operation["responses"]) == ["200", "4XX", "5XX"]
        assert operation["responses"]["4XX"]["content"] == problem


def test_every_reference_leads_somewhere() -> None:
    document = openapi()
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    references = set(_values(document, "$ref"))
    assert references
    assert references <= names
    mapped = {target for mapping in _values(document, "mapping") for target in mapping.values()}
    assert mapped <= names


def test_every_route_that_takes_a_body_describes_it() -> None:
    for path, item in json.loads(openapi_text())["paths"].items():
        for method, operation in item.items():
            takes = method in ("put", "post")
            assert ("requestBody" in operation) == takes, (method, path)


def test_all_but_the_health_check_need_a_credential() -> None:
    document = openapi()
    assert document["security"] == [{"credential": []}]
    free = [
        path for path, item in document["paths"].items() for op in item.values() if "security" in op
    ]
    assert free == ["/healthz"]
