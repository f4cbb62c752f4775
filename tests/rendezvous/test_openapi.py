"""The description of the wire in `docs/openapi.json` is the one of the application."""

from __future__ import annotations

import functools
from pathlib import Path

from rendezvous.registry.openapi import openapi, openapi_text
from rendezvous.registry.routes import ROUTES

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"
document = functools.cache(openapi)


def test_the_file_is_what_the_application_says() -> None:
    assert FILE.read_text() == openapi_text(), (
        f"{FILE.name} is older than the application: refresh it with 'make openapi' "
        "(python -m rendezvous.registry.openapi > docs/openapi.json)"
    )


def test_every_route_is_an_operation_with_a_name_a_summary_and_the_one_shape_of_refusals() -> None:
    paths = document()["paths"]
    operations = {(path, method): op for path, item in paths.items() for method, op in item.items()}
    assert operations.keys() == {(route.path, route.method.lower()) for route in ROUTES}
    assert len({op["operationId"] for op in operations.values()}) == len(operations)
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    taking = {(route.path, route.method.lower()) for route in ROUTES if route.takes is not None}
    for key, operation in operations.items():
        assert operation["summary"].endswith(".")
        assert ("requestBody" in operation) == (key in taking)
        assert sorted(operation["responses"]) == ["200", "4XX", "5XX"]
        assert operation["responses"]["4XX"]["content"] == problem


def test_all_but_the_health_check_need_a_credential() -> None:
    assert document()["security"] == [{"credential": []}]
    free = [
        path
        for path, item in document()["paths"].items()
        for op in item.values()
        if "security" in op
    ]
    assert free == ["/healthz", "/readyz"]
