"""Writes `docs/openapi.json`: `python -m rendezvous.registry.openapi > docs/openapi.json`."""

from __future__ import annotations

import json
import sys

from rendezvous.registry.app import RegistryApp
from rendezvous.registry.journal import MemoryJournal
from rendezvous.registry.service import Service


def openapi_text() -> str:
    """The OpenAPI of the registry, sorted and indented."""
    document = RegistryApp(Service(MemoryJournal(), b"", "")).openapi()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
