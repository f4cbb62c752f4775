"""docs/frameworks.md keeps up with the contracts.

`python -m tests.worker.test_frameworks_page` writes the list of variables anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise, product
from pathlib import Path

import pytest

from tests.worker.test_contracts import table
from worker.contracts import FRAMEWORKS, OWN, make_contract
from worker.contracts.framework import Paths
from worker.contracts.horovod import HOROVOD_VARIABLES
from worker.contracts.outer import OUTER
from worker.contracts.processes import OWN_RANKS
from worker.contracts.variables import ProgramOptions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "frameworks.md"
BLOCK = re.compile(r"(<!-- variables -->\n).*?(<!-- end -->)", re.DOTALL)
PATHS = Paths("/run/node-0", "/usr/bin/python3", "/run/node-0/bin", "/run/socket")
KINDS = ("replaced by", "set, unless you did, by", "removed by", "kept by")
FORMS = {
    "deepspeed": [["deepspeed", "--launcher", how, "x.py"] for how in ("openmpi", "mpich", "impi")],
    "horovod": [["horovodrun", "x.py"]],
}
"""COMMANDs beside `x.py` that make another contract of a framework."""


def variables_list() -> str:
    """A line for what all frameworks but a few remove, and one for each set of names that are
    treated alike."""
    ranked = [name for name, kind in FRAMEWORKS.items() if not OUTER.keys() <= kind.keeps.keys()]
    but = " and ".join(code(name for name in FRAMEWORKS if name not in ranked))
    first = f"- every framework but {but} *removes* {', '.join(code(sorted(OUTER)))}.\n"
    alike: dict[str, list[str]] = {}
    for variable, done in sorted(treated().items()):
        kinds = (f"*{kind}* {', '.join(code(done[kind]))}" for kind in KINDS if kind in done)
        alike.setdefault("; ".join(kinds), []).append(variable)
    return first + "".join(f"- {', '.join(code(names))}: {how}.\n" for how, names in alike.items())


def code(names: Iterable[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def treated() -> dict[str, dict[str, list[str]]]:
    """For each variable the frameworks that treat it in each way."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, kind in FRAMEWORKS.items():
        each = (*of_framework(name), kind.keeps.keys() - OUTER.keys())
        for does, variables in zip(KINDS, each, strict=True):
            for variable in variables:
                found.setdefault(variable, {}).setdefault(does, []).append(name)
    return found


def of_framework(name: str) -> tuple[set[str], set[str], set[str]]:
    """What a framework's contracts set, offer and remove."""
    owned, offered, removed = set(), set(), {*FRAMEWORKS[name].removes}
    here = table(("127.0.0.1", "127.0.0.2"))
    for command, sealed in product((["x.py"], *FORMS.get(name, [])), (table(), here)):
        bare = make_contract(command, sealed, 10, {}, ProgramOptions(name), paths=PATHS)
        names = {one.name for one in bare.explained if one.by_framework}
        theirs = dict.fromkeys(names, "mine")
        made = make_contract(command, sealed, 10, theirs, ProgramOptions(name), paths=PATHS)
        kept = {one.name for one in made.explained if one.by_framework and one.kept}
        owned |= names - kept
        offered |= kept
        owned |= of_each_process(bare.argv)
        removed |= of_led(name, command)
    return owned, offered, removed - owned


def of_each_process(argv: list[str]) -> set[str]:
    """What our own starter sets for each process."""
    if "--processes" not in argv:
        return set()
    after = {word.partition("=")[0] for flag, word in pairwise(argv) if flag == "--set"}
    return after | ({*OWN_RANKS} - {"GROUP_WORLD_SIZE"})


def of_led(name: str, command: list[str]) -> set[str]:
    """What is removed for this COMMAND beside what the framework always removes."""
    seen = {"SLURM_JOB_ID": "1", "PMI_RANK": "0", "RANK": "0"}
    made = make_contract(command, table(), 10, seen, ProgramOptions(name), paths=PATHS)
    return {*FRAMEWORKS["openmpi"].removes} if "SLURM_JOB_ID" in made.removed else set()


def test_the_list_of_variables_is_as_the_contracts_say() -> None:
    found = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == f"<!-- variables -->\n{variables_list()}<!-- end -->", "make reference"


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name not in OWN])
def test_what_command_is_stands_there_for_every_framework(name: str) -> None:
    first = PAGE.read_text(encoding="utf-8").partition("## Frameworks that are led")[0]
    assert re.search(rf"^\| [^|]*`{re.escape(name)}`[^|]* \| .* \| .* \|", first, re.MULTILINE)


def test_the_variables_of_each_horovod_process_are_in_the_table() -> None:
    assert HOROVOD_VARIABLES.keys() <= of_framework("horovod")[0]


if __name__ == "__main__":  # make reference
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        BLOCK.sub(lambda place: place[1] + variables_list() + place[2], text), encoding="utf-8"
    )
