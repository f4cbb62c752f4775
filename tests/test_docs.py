"""The documentation keeps up with the code: options, exit codes, schedulers, variables, files.

`python -m tests.test_docs` writes the tables of docs/reference.md anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

import launcher.state.state_dir
from launcher.cli import main
from launcher.plan.plan import Site, Spec, make_plan
from launcher.plan.template import Form
from launcher.schedulers.catalog import known_schedulers
from launcher.settings import LaunchSettings
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import Cause, ExitCode
from rendezvous.wire.table import EndpointTable
from tests.test_packages import modules, tree
from worker.contracts import make_contract
from worker.contracts.framework import Paths
from worker.contracts.variables import ProgramOptions
from worker.settings import NodeSettings

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference.md"
BLOCK = re.compile(r"(<!-- (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# ---- the tables ---------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def code(*words: str) -> str:
    return ", ".join(f"`{word}`" for word in words)


def commands(
    group: click.Group = main, before: str = "rdzv"
) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{before} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before} {name}")


def options_of(command: click.Command) -> list[dict[str, Any]]:
    """What click knows of the options of a command that are shown."""
    options = [o for o in command.params if isinstance(o, click.Option) and not o.hidden]
    return [option.to_info_dict() for option in options]


def row(option: dict[str, Any]) -> list[str]:
    variables = option["envvar"] or []
    flags = code(*option["opts"], *option["secondary_opts"])
    choices = option["type"].get("choices")
    return [
        f"{flags} ({code(*choices)})" if choices else flags,
        code(*([variables] if isinstance(variables, str) else variables)),
        default(option["default"]),
        option["help"].replace("|", "\\|"),
    ]


def default(value: object) -> str:
    if value is None or value in ("", [], ()):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return code(f"{value:g}" if isinstance(value, float) else str(value))


def option_table(command: click.Command, *, of_a_node: bool | None = None) -> str:
    rows = [
        row(option)
        for option in options_of(command)
        if of_a_node is None or (option["name"] in NodeSettings.model_fields) is of_a_node
    ]
    return table(["flag", "variable", "default", "meaning"], rows)


def others_table() -> str:
    rows = [
        [code(name), *row(option)]
        for name, command in commands()
        if name not in ("rdzv launch", "rdzv worker", "rdzv serve")
        for option in options_of(command)
        # Those that it shares with launch stand there.
        if name != "rdzv bench" or option["name"] not in {*LaunchSettings.model_fields, "config"}
    ]
    return table(["command", "flag", "variable", "default", "meaning"], rows)


def blocks() -> dict[str, str]:
    """The written tables by the name of their place."""
    known = dict(commands())
    codes = [[str(code_.value), code_.help] for code_ in ExitCode]
    return {
        "node": option_table(known["rdzv worker"], of_a_node=True),
        "launch": option_table(known["rdzv launch"], of_a_node=False),
        "worker": option_table(known["rdzv worker"], of_a_node=False),
        "serve": option_table(known["rdzv serve"]),
        "others": others_table(),
        "exit codes": table(["code", "meaning"], codes),
    }


def reference() -> str:
    return REFERENCE.read_text(encoding="utf-8")


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    return BLOCK.sub(lambda place: place[1] + tables[place["name"]] + place[3], text)


def test_the_reference_has_every_cause() -> None:
    rows = reference().partition("| cause |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(Cause)


def test_the_reference_has_a_place_for_every_table() -> None:
    assert [place["name"] for place in BLOCK.finditer(reference())] == [*blocks()]


@pytest.mark.parametrize("name", [*blocks()])
def test_a_table_of_the_reference_is_as_the_code_says(name: str) -> None:
    found = {place["name"]: place[0] for place in BLOCK.finditer(reference())}
    hint = "run python -m tests.test_docs"
    assert found[name] == f"<!-- {name} -->\n{blocks()[name]}<!-- end -->", hint


# ---- the rest of the page -----------------------------------------------------------------------


def test_every_variable_of_ours_that_the_code_names_is_documented() -> None:
    named = {
        word
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in re.findall(r"(?<!_)RDZV_[A-Z_]*[A-Z]\b", node.value)
    }
    assert {"RDZV_JOIN", "RDZV_JOIN_FILE", "RDZV_TOKEN", "RDZV_STATE_DIR"} <= named
    assert not {name for name in named if f"`{name}`" not in reference()}


def test_every_variable_that_a_program_sees_or_loses_is_documented() -> None:
    stored = ROOT / "tests" / "wire" / "EndpointTable.json"
    sealed = EndpointTable.model_validate_json(stored.read_bytes())
    contract = make_contract(
        ["train.py"], sealed, 0, {}, ProgramOptions(), paths=Paths("/f", socket="/s")
    )
    for name in (*contract.variables, *SECRET_VARIABLES):
        assert f"`{name}`" in reference(), name


def test_every_scheduler_stands_in_the_reference_and_the_readme_with_its_spec() -> None:
    for path in (REFERENCE, ROOT / "README.md"):
        text = path.read_text(encoding="utf-8")
        for name, entry in known_schedulers().items():
            assert re.search(rf"^\| `{name}`.*`specs/{entry.spec}` \|$", text, re.MULTILINE), path


def test_every_variable_and_form_of_a_worker_spec_is_documented() -> None:
    plan = make_plan(
        LaunchSettings(nnodes="1"), ["x"], {}, Site(Spec("", "")), run="r", launch_id="l"
    )
    for name in plan.own_variables(0, 1):
        assert f"`<<{name}>>`" in reference()
    for form in Form:
        assert re.search(rf"^\| `{form}` \|", reference(), re.MULTILINE), form


def test_every_file_of_the_state_directory_is_documented() -> None:
    listed = re.findall(
        r"^    (\S+(?: \S+)*?)(?:  |$)", launcher.state.state_dir.__doc__ or "", re.M
    )
    names = [name for entry in listed for name in entry.split()]
    assert {"lock", "launch.json", "journal.sqlite", "logs/"} <= set(names)
    for name in names:
        assert f"`{name}" in reference(), name


def test_every_link_inside_the_reference_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", reference(), re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
    for target in re.findall(r"\]\(#([^)]*)\)", reference()):
        assert target in anchors


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    named = re.findall(r"`((?:rendezvous|worker|launcher)/[\w/]+\.py)`", text)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []


if __name__ == "__main__":
    REFERENCE.write_text(with_tables(reference(), blocks()), encoding="utf-8")
