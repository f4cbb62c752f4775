"""The features of this checkout, as they are declared: what they name does not collide."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import click

from launcher.cli import main
from rendezvous.feature import Feature, declared
from rendezvous.registry.app import ROUTES
from rendezvous.registry.topics import asked, published

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


def test_what_a_declaration_names_is_there() -> None:
    def paths(one: Feature) -> list[Path]:
        found = [ROOT / "docs" / one.doc] if one.doc else []
        found += [ROOT / "features" / one.name / one.script] if one.script else []
        return [*found, *(ROOT / name for name in one.files)]

    assert [path for one in FEATURES for path in paths(one) if not path.is_file()] == []
    for topic in published(FEATURES):
        for lazy in (topic.message, topic.reply, topic.store, topic.response, topic.query):
            assert lazy is None or lazy.load() is not None
    for question in asked(FEATURES):
        assert question.answer.load() is not None
        assert question.response.load() is not None


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
