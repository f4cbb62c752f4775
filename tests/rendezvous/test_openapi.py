"""The description of the wire in `docs/openapi.json` is the one of the application.

`python -m tests.rendezvous.test_openapi > docs/openapi.json` writes it anew.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

from rendezvous.registry.app import ROUTES, RegistryApp
from rendezvous.registry.journal import MemoryJournal
from rendezvous.registry.route import Route
from rendezvous.registry.service import Service

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


def openapi_text() -> str:
    """The OpenAPI of the registry, sorted and indented."""
    openapi = RegistryApp(Service(MemoryJournal(), b"", "")).openapi()
    return json.dumps(openapi, indent=2, sort_keys=True) + "\n"


document = functools.cache(lambda: json.loads(openapi_text()))


def key_of(route: Route) -> tuple[str, str]:
    """Path and method, as OpenAPI names them."""
    return route.path_format, route.method.lower()


def test_the_file_is_what_the_application_says() -> None:
    assert FILE.read_text() == openapi_text(), (
        f"{FILE.name} is older than the application: refresh it with 'make openapi' "
        "(python -m tests.rendezvous.test_openapi > docs/openapi.json)"
    )


def test_every_route_is_an_operation_with_a_name_words_and_the_one_shape_of_refusals() -> None:
    paths = document()["paths"]
    operations = {(path, method): op for path, item in paths.items() for method, op in item.items()}
    assert operations.keys() == {key_of(route) for route in ROUTES}
    assert len({op["operationId"] for op in operations.values()}) == len(operations)
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    taking = {key_of(route) for route in ROUTES if route.body_field is not None}
    for key, operation in operations.items():
        assert operation["summary"].endswith(".")
        assert operation["description"].startswith(operation["summary"])
        assert ("requestBody" in operation) == (key in taking)
        assert sorted(operation["responses"]) == ["200", "4XX", "5XX"]
        assert operation["responses"]["4XX"]["content"] == problem


def test_all_but_the_health_check_need_a_credential() -> None:
    needs = {
        path: op.get("security")
        for path, item in document()["paths"].items()
        for op in item.values()
    }
    assert [path for path, shown in needs.items() if shown is None] == ["/healthz", "/readyz"]
    assert all(shown in (None, [{"credential": []}]) for shown in needs.values())


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
