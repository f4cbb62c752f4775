"""The documentation keeps up with the code, its pages are short, and its links lead somewhere.

`python -m tests.test_docs` writes the lists of options and of exit codes again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import launcher.state.state_dir
from launcher.cli import main
from launcher.cli.help import code_help
from launcher.plan.plan import Site, Spec, make_plan
from launcher.plan.template import Form
from launcher.schedulers.catalog import known_schedulers
from launcher.settings import LaunchSettings
from launcher.ui import prometheus as ui_prometheus
from rendezvous.cause.table import CAUSES, Kind, Row, Then
from rendezvous.prometheus import Family
from rendezvous.registry import prometheus
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import Cause, ExitCode
from rendezvous.wire.table import EndpointTable
from tests.support.exposition import queries_of_dashboard
from tests.support.sources import nodes
from tests.test_packages import modules, tree
from worker.contracts import make_contract
from worker.contracts.framework import Paths
from worker.contracts.variables import ProgramOptions
from worker.settings import NodeSettings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
EVERY_PAGE = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

# ---- the lists ----------------------------------------------------------------------------------


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


def entry(option: dict[str, Any]) -> str:
    """A line: the flag, its choices, its variables with the default, and what it does."""
    envvar = option["envvar"] or []
    variables = [code(word) for word in ([envvar] if isinstance(envvar, str) else envvar)]
    if value := default(option["default"]):
        variables = [f"{variables[0]}={value}", *variables[1:]] if variables else [f"={value}"]
    choices = option["type"].get("choices", [])
    head = f"**{flags(option)}**"
    if choices and ", ".join(choices) not in option["help"]:
        head += f" `{'|'.join(choices)}`"
    if variables:
        head += f" ({', '.join(variables)})"
    text = option["help"].removesuffix(" Repeatable.")
    if text != option["help"]:
        head += " ..."
    return f"- {head}: {text}\n"


def flags(option: dict[str, Any]) -> str:
    """The flag; `--[no-]x` for a pair, `--no-x` for one that is on."""
    if option["secondary_opts"]:
        [yes], [no] = option["opts"], option["secondary_opts"]
        assert no == f"--no-{yes[2:]}"
        return code(no if option["default"] is True else f"--[no-]{yes[2:]}")
    return code(*option["opts"])


def default(value: object) -> str:
    if value is None or value is False or value in ("", [], ()):
        return ""
    if value is True:
        return "`on`"
    return code(f"{value:g}" if isinstance(value, float) else str(value))


def entries(command: click.Command, *, of_a_node: bool | None = None) -> str:
    return "".join(
        entry(option)
        for option in options_of(command)
        if of_a_node is None or (option["name"] in NodeSettings.model_fields) is of_a_node
        if option["name"] not in _OF_ALL
    )


def of_all() -> str:
    """The options that mean the same to `launch`, `worker` and `serve`."""
    known = dict(commands())
    [lines] = {
        "".join(entry(one) for one in options_of(known[f"rdzv {name}"]) if one["name"] in _OF_ALL)
        for name in ("launch", "worker", "serve")
    }
    return lines


def of_other_commands() -> str:
    """Without the options that `bench` shares with `launch`, and those that many have."""
    text = ""
    for name, command in commands():
        shared = {"state_dir"}
        if name == "rdzv bench":
            shared = {*LaunchSettings.model_fields, "config", "help_all"}
        own = [option for option in options_of(command) if option["name"] not in shared]
        if own and not name.startswith(_ELSEWHERE):
            text += f"\n`{name}`:\n\n{''.join(map(entry, own))}"
    return text.removeprefix("\n")


_ELSEWHERE = ("rdzv launch", "rdzv worker", "rdzv serve", "rdzv tenant")
"""Commands whose options are listed on pages of their own."""

_OF_ALL = ("config", "help_all")
"""Options that are listed once for `launch`, `worker` and `serve`."""


def blocks() -> dict[str, str]:
    """What is written, by the name of its place."""
    known = dict(commands())
    return {
        "causes": causes(),
        "others": of_other_commands(),
        "exit codes": exit_codes(),
        "every command": of_all(),
        "node": entries(known["rdzv worker"], of_a_node=True),
        "launch": entries(known["rdzv launch"], of_a_node=False),
        "worker": entries(known["rdzv worker"], of_a_node=False),
        "serve": entries(known["rdzv serve"]),
        "registry series": series(prometheus.FAMILIES),
        "run series": series(ui_prometheus.FAMILIES),
        "rank series": series(ui_prometheus.FAMILIES_BY_RANK),
        "tenant": entries(known["rdzv tenant add"]),
    }


def series(families: Iterable[Family]) -> str:
    """A row for each: its name with its labels, its type, what it means."""
    rows = ("| series | type | meaning |\n", "| --- | --- | --- |\n")
    return "".join((*rows, *(f"| `{named(f)}` | {f.kind} | {f.help} |\n" for f in families)))


def named(family: Family) -> str:
    return family.name + (f"{{{','.join(family.labels)}}}" if family.labels else "")


def exit_codes() -> str:
    rows = ("| code | meaning | requeue |\n", "| --- | --- | --- |\n")
    codes = (
        f"| **{c.value}** | {code_help(c)} | {'yes' if c.requeue else 'no'} |\n" for c in ExitCode
    )
    return "".join((*rows, *codes))


CAUSES_OF = {
    "Of a rank or its node": (Kind.OWN,),
    "From outside of the run": (Kind.OUTSIDE,),
    "No rank is blamed": (Kind.BETWEEN, Kind.CONSEQUENCE),
}
"""The headings of the list of causes."""


def causes() -> str:
    """Under each heading the causes of a kind, in the order of the table."""
    assert sorted(kind.value for kinds in CAUSES_OF.values() for kind in kinds) == sorted(
        kind.value for kind in Kind
    )
    return "\n".join(
        f"### {head}\n\n{''.join(cause_entry(row) for row in CAUSES if row.kind in kinds)}"
        for head, kinds in CAUSES_OF.items()
    )


def cause_entry(row: Row) -> str:
    """A line: the id, what it means, and what to do."""
    stays = " (not started again)" if row.then is Then.HOPELESS else ""
    hint = f" -> {row.hint}" if row.hint else ""
    return f"- **`{row.id}`**: {row.says}{stays}{hint}\n"


def with_blocks(text: str, written: Mapping[str, str]) -> str:
    return BLOCK.sub(lambda place: place[1] + written.get(place["name"], "") + place[3], text)


def places() -> dict[str, Path]:
    """The page of each place, but for the list that another test writes."""
    found = {name: page for page in PAGES for _, name, _ in BLOCK.findall(text_of(page))}
    return {name: page for name, page in found.items() if name != "variables"}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def every_text() -> str:
    return "\n".join(map(text_of, PAGES))


def test_there_is_a_place_for_every_list() -> None:
    assert [*places()] == [*blocks()]


@pytest.mark.parametrize("name", [*blocks()])
def test_a_list_is_as_the_code_says(name: str) -> None:
    assert f"<!-- {name} -->\n{blocks()[name]}<!-- end -->" in every_text(), "run make reference"


# ---- pages, links, lengths ----------------------------------------------------------------------


def test_the_readme_can_be_read_in_ten_minutes() -> None:
    lines = text_of(README).splitlines()
    assert len(lines) <= 150
    picture, *others = FENCED.findall(text_of(README))
    assert max(map(len, picture.splitlines())) <= 80
    assert [line for block in others for line in block.splitlines() if len(line) > 100] == []


def test_no_page_is_longer_than_a_topic() -> None:
    assert {page.name for page in PAGES if len(text_of(page).splitlines()) > 200} == set()


def test_there_are_few_pages() -> None:
    assert len(PAGES) <= 35


def test_all_pages_together_stay_short() -> None:
    """A word has a letter, and stands outside of code."""
    words = [word for page in PAGES for word in FENCED.sub("", text_of(page)).split()]
    assert sum(any(map(str.isalpha, word)) for word in words) <= 40_000


def test_a_page_is_found_by_its_name_alone() -> None:
    """'rdzv docs wire' shows a page of internals."""
    assert len({page.stem for page in PAGES}) == len(PAGES)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_a_table_has_short_cells(page: Path) -> None:
    rows = re.findall(r"^\|.*\|$", FENCED.sub("", text_of(page)), re.MULTILINE)
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > (90 if page == README else 120)] == []


def test_the_index_names_every_page() -> None:
    named = set(re.findall(r"\]\(((?:internals/)?[\w-]+\.md)\)", text_of(DOCS / "index.md")))
    assert named == {page.relative_to(DOCS).as_posix() for page in PAGES} - {"index.md"}


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"`[^`]*`", "", FENCED.sub("", text_of(page)))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_the_reference_has_every_cause() -> None:
    rows = text_of(DOCS / "exit-codes.md").partition("| cause |")[2].partition("\n\n")[0]
    assert [row.split("`")[1] for row in rows.splitlines()[2:]] == list(Cause)


def test_the_questions_to_prometheus_name_series_that_a_registry_has() -> None:
    [block] = re.findall(r"^```promql\n(.*?)^```$", text_of(DOCS / "prometheus.md"), re.M | re.S)
    for text in (block, *queries_of_dashboard()):
        names = re.findall(r"\brdzv_\w+", text)
        assert names
        named = {re.sub("_(bucket|sum|count)$", "", name) for name in names}
        assert named <= {family.name for family in prometheus.FAMILIES}


def test_the_alerts_name_series_that_a_registry_has() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text_of(DOCS / "prometheus.md"), re.M | re.S)
    [rules] = [g["rules"] for text in blocks for g in yaml.safe_load(text).get("groups", ())]
    assert {rule["alert"] for rule in rules} == {
        "RdzvReplicaMissing",
        "RdzvJournalAway",
        "RdzvNothingCommitted",
        "RdzvJournalSlow",
    }
    names = [name for rule in rules for name in re.findall(r"\brdzv_\w+", rule["expr"])]
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in names}
    assert len(names) == len(rules)
    assert named <= {family.name for family in prometheus.FAMILIES}


# ---- what the pages name ------------------------------------------------------------------------


def test_every_variable_of_ours_that_the_code_names_is_documented() -> None:
    named = {
        word
        for name in modules()
        for node in nodes(tree(name))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in re.findall(r"(?<!_)RDZV_[A-Z_]*[A-Z]\b", node.value)
    }
    assert {"RDZV_JOIN", "RDZV_JOIN_FILE", "RDZV_TOKEN", "RDZV_STATE_DIR"} <= named
    assert not {name for name in named if f"`{name}`" not in every_text()}


def test_every_variable_that_a_program_sees_or_loses_is_documented() -> None:
    stored = ROOT / "tests" / "wire" / "EndpointTable.json"
    sealed = EndpointTable.model_validate_json(stored.read_bytes())
    contract = make_contract(
        ["train.py"], sealed, 0, {}, ProgramOptions(), paths=Paths("/f", socket="/s")
    )
    for name in (*contract.variables, *SECRET_VARIABLES):
        assert f"`{name}`" in every_text(), name


def test_every_scheduler_is_documented_with_its_spec() -> None:
    text = text_of(DOCS / "clusters.md")
    for name, known in known_schedulers().items():
        assert re.search(rf"^\| `{name}`.*`specs/{known.spec}` \|$", text, re.MULTILINE), name


def test_every_variable_and_form_of_a_worker_spec_is_documented() -> None:
    plan = make_plan(
        LaunchSettings(nnodes="1"), ["x"], {}, Site(Spec("", "")), run="r", launch_id="l"
    )
    for name in plan.own_variables(0, 1):
        assert f"`<<{name}>>`" in every_text()
    for form in Form:
        assert re.search(rf"^\| `{form}` \|", every_text(), re.MULTILINE), form


def test_every_file_of_the_state_directory_is_documented() -> None:
    listed = re.findall(
        r"^    (\S+(?: \S+)*?)(?:  |$)", launcher.state.state_dir.__doc__ or "", re.M
    )
    names = [name for entry in listed for name in entry.split()]
    assert {"lock", "launch.json", "journal.sqlite", "logs/"} <= set(names)
    for name in names:
        assert f"`{name}" in every_text(), name


def test_every_test_that_the_page_on_faults_names_is_there() -> None:
    named = re.findall(r"\| `(\w+/\w+\.py)` \|$", text_of(DOCS / "faults.md"), re.MULTILINE)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / "tests" / path).is_file()] == []


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = text_of(DOCS / "internals" / "architecture.md")
    assert len(text.splitlines()) <= 140
    named = re.findall(r"`((?:rendezvous|worker|launcher|features)/[\w/]+\.py)`", text)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []


if __name__ == "__main__":  # make reference
    for page in set(places().values()):
        page.write_text(with_blocks(text_of(page), blocks()), encoding="utf-8")
