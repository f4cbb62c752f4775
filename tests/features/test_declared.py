"""The features of this checkout, as they are declared: what they name does not collide."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import click
import pytest

from launcher.cli import main
from rendezvous.feature import Asked, Feature, Lazy, Published, declared
from rendezvous.registry.app import ROUTES
from rendezvous.registry.routes import NODE, RUN
from tests.support.topics import TOPICS

FEATURES = declared()
ROOT = Path(__file__).parents[2]


def twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_have_a_name_a_file_a_view_or_a_command_in_common() -> None:
    commands = [lazy.load().name for one in FEATURES for lazy in one.commands.values()]
    for names in (
        [one.name for one in FEATURES],
        [name for one in FEATURES for name in one.run_files],
        [name for one in FEATURES for name in one.views],
        [topic.name for one in FEATURES for topic in one.topics],
        commands,
    ):
        assert twice(names) == []


def test_every_route_is_there_once() -> None:
    """A topic has no path of the core's."""
    assert twice([f"{route.method} {route.path_format}" for route in ROUTES]) == []


def test_every_command_stands_before_one_that_there_is() -> None:
    names = {name for one in FEATURES for name in one.commands}
    assert names <= {*main.list_commands(click.Context(main))}


def test_what_a_feature_needs_stands_before_it() -> None:
    seen = set[str]()
    for one in FEATURES:
        assert {*one.needs} <= seen
        seen.add(one.name)


def test_the_files_that_a_declaration_names_are_there() -> None:
    def paths(one: Feature) -> list[Path]:
        found = [ROOT / "docs" / one.doc] if one.doc else []
        found += [ROOT / "features" / one.name / one.script] if one.script else []
        return [*found, *(ROOT / name for name in one.files)]

    assert [path for one in FEATURES for path in paths(one) if not path.is_file()] == []


def objects(found: object, place: str) -> Iterator[tuple[str, Lazy]]:
    """Whatever a declaration names, however deep, by its place there."""
    if isinstance(found, Lazy):
        yield place, found
    elif is_dataclass(found):
        for one in fields(found):
            yield from objects(getattr(found, one.name), f"{place}.{one.name}")
    elif isinstance(found, Mapping):
        for key, one in found.items():
            yield from objects(one, f"{place}.{key}")
    elif isinstance(found, tuple):
        for number, one in enumerate(found):
            yield from objects(one, f"{place}.{getattr(one, 'name', number)}")


LAZY = dict(found for one in FEATURES for found in objects(one, one.name))


@pytest.mark.parametrize("lazy", LAZY.values(), ids=LAZY)
def test_what_a_declaration_names_can_be_loaded(lazy: Lazy) -> None:
    """A program leaves out what cannot be, with a line in its log."""
    assert lazy.load() is not None


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_the_registry_serves_each_topic(topic: Published | Asked) -> None:
    """A registry that cannot make its routes answers 404, with a line in its log."""
    of_run = f"{RUN}/{topic.name}"
    if isinstance(topic, Published):
        routes = {("POST", f"{NODE}/{topic.path}")}
        routes |= {("GET", of_run)} if topic.response is not None else set()
    else:
        routes = {("POST", f"{NODE}/{topic.name}")}
        routes |= {("POST", of_run), ("GET", of_run)} if topic.scope is not None else set()
    assert routes <= {(route.method, route.path) for route in ROUTES}


WITHOUT = """
import sys
sys.modules["features"] = None  # whoever imports it fails
from rendezvous.feature import declared, install
try:
    declared()
except RuntimeError as error:
    print(error)
install(())
import rendezvous.registry.process
from launcher.cli import main
main(["launch", "--help-all"])
"""


def test_the_core_works_without_features_once_it_is_told_that_there_are_none() -> None:
    argv = [sys.executable, "-I", "-c", WITHOUT]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    first, _, rest = done.stdout.partition("\n")
    assert first.startswith("no features are installed")
    assert "Usage:" in rest
    assert "--stall" not in rest
