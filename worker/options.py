"""The base of all settings: what a field says to become an option.

A field's description is its help text. The flag is the field's name in kebab-case, the variable
`RDZV_` and the field's name in capitals (RDZV_ID and RDZV_BACKEND have the word once); `env` names
further variables that are accepted as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PrivateAttr

from rendezvous.feature import Feature, declared

RUN = "The run"
START = "Where it starts"
NETWORK = "Network"
MEASUREMENT = "Measurement"
LIMITS = "Checks and time limits"
OUTPUT = "Output"
GROUPS = (MEASUREMENT, RUN, START, NETWORK, LIMITS, OUTPUT)
"""Headings of the options in a help text, in this order."""


def option(default: Any, description: str, *, group: str, basic: bool = False, **extra: Any) -> Any:
    """A field that becomes an option.

    Args:
        default: The option's default.
        description: Its help text.
        group: The heading it is listed under, one of `GROUPS`.
        basic: Whether `--help` shows it, beside `--help-all`.
        extra: `env=[...]`, `hidden`, `metavar`, `flag`, `short`; `unlisted`: values not in help;
            `bare`: the value of a flag that stands alone.
    """
    extra |= {"group": group, "basic": basic}
    return Field(default, description=description, json_schema_extra=extra)


class Sources(dict[str, str]):
    """Where settings were given, by name; that makes no other settings."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sources)


class Settings(BaseModel):
    """Base of all settings: what a person says is checked, and an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    _sources: Sources = PrivateAttr(default_factory=Sources)

    def source(self, name: str) -> str:
        """Where a setting was given: its flag, variable, file or platform."""
        return self.known_source(name) or "--" + name.replace("_", "-")

    def known_source(self, name: str) -> str:
        """The same, where the person who gave it did so on this node; else empty."""
        return self._sources.get(name, "")


def options_of(features: Iterable[Feature]) -> type[Settings]:
    """The base of the settings of a node, and of a launch: the options of features."""
    bases = [one.options.load() for one in features if one.options is not None]
    return type("FeatureOptions", (*bases, Settings), {"__module__": __name__})


def observes(settings: Settings) -> bool:
    """Whether features may observe running programs: see `Feature.switch`."""
    switches = (one.switch for one in declared() if one.switch)
    return all(getattr(settings, switch) != "off" for switch in switches)


def not_observing() -> dict[str, object]:
    """Values of the features' options that end all observation of running programs."""
    bases = [one.options.load() for one in declared() if one.options is not None]
    fields = {name: field for base in bases for name, field in base.model_fields.items()}
    usual = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    return usual | {one.switch: "off" for one in declared() if one.switch}


def specs_of(settings: Settings) -> dict[str, JsonValue]:
    """What the features of a run are to do, as the registry is to know it. Raises UsageError."""
    found = {one.name: one.spec.load()(settings) for one in declared() if one.spec is not None}
    return {name: value for name, value in found.items() if value is not None}
