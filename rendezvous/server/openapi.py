"""Writes `docs/openapi.json`: `python -m rendezvous.server.openapi > docs/openapi.json`."""

from __future__ import annotations

import json
import sys

from rendezvous.server.app import openapi


def openapi_text() -> str:
    """The OpenAPI of the registry, sorted and indented."""
    return json.dumps(openapi(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
