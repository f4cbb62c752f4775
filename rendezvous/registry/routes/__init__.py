"""The registry's routes, one module for each audience, and what their paths are made of."""

from __future__ import annotations

from starlette.convertors import IntegerConvertor, StringConvertor, register_url_convertor

from rendezvous.registry.caller import SlotNumber
from rendezvous.wire.types import RUN_ID, RunId


class _Name(StringConvertor):
    regex = RUN_ID

    def convert(self, value: str) -> RunId:
        """See the base class; the pattern has checked it."""
        return value


class _Slot(IntegerConvertor):
    regex = "[0-9]{1,6}"

    def convert(self, value: str) -> SlotNumber:
        """See the base class; the pattern has checked it."""
        return int(value)


# A path with anything else in these places is none of ours.
register_url_convertor("name", _Name())
register_url_convertor("slot", _Slot())

RUNS = "/v1/runs"
RUN = f"{RUNS}/{{run:name}}"
NODE = f"{RUN}/nodes/{{node:slot}}"
SLOT = f"{RUN}/slots/{{slot:slot}}"
TENANT = "/v1/tenants/{tenant:name}"
