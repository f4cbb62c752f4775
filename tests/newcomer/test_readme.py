"""README's and the first hour's shell blocks can be read as the newcomer does; dry runs work."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from launcher.cli import main
from tests.newcomer.machine import local_folders
from tests.newcomer.readme import (
    MARKS,
    PAGES,
    Command,
    blocks,
    commands,
    dry_runs,
    missing,
    outputs,
    script,
)
from tests.schedulers.test_own_profile import written

README, FIRST_HOUR = TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]


def test_every_shell_block_has_a_mark_and_a_command() -> None:
    for text in TEXTS:
        found = blocks(text)
        assert len(found) >= 5
        assert [block for block in found if block.mark not in MARKS or not block.commands] == []
    assert {"run", "dry-run"} <= {block.mark for block in blocks(README)}
    assert {"run", "fails"} == {block.mark for block in blocks(FIRST_HOUR)}


def test_bash_takes_every_command() -> None:
    typed = [
        command.typed for text in TEXTS for block in blocks(text) for command in block.commands
    ]
    for line in typed:
        subprocess.run(["bash", "-n"], input=line, text=True, check=True, timeout=20)


@pytest.mark.parametrize("line", dry_runs(README))
def test_a_command_for_a_cluster_passes_its_dry_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "A scheduler of your own").rename("api.toml")
    Path("train.py").touch()
    words = shlex.split(line, comments=True)
    assert words[0] == "rdzv"
    state = ["--state-dir", str(tmp_path / "state")]
    result = CliRunner().invoke(main, ["launch", *state, *words[2:]], prog_name="rdzv")
    assert result.exit_code == 0, result.output


# ---- the reader itself --------------------------------------------------------------------------

PAGE = """
<!-- run -->
```console
$ one \\
    two
...
[0] a (b)
took 1 s
$ three  # four
```

```sh
$ unmarked
```

| x | `rdzv launch -- y` | z |

<!-- fails -->
```console
$ rdzv launch -- false
failed
```

<!-- dry-run -->
```console
$ rdzv launch -- z
```

```
no shell
```
"""


def test_a_page_is_read_block_by_block() -> None:
    assert [block.mark for block in blocks(PAGE)] == ["run", None, "fails", "dry-run"]
    assert commands(PAGE, "run") == [
        Command("one \\\n    two", ("...", "[0] a (b)", "took 1 s")),
        Command("three  # four"),
    ]
    *_, last = commands(PAGE, "run", "fails")
    assert last == Command("rdzv launch -- false", ("failed",), fails=True)
    assert dry_runs(PAGE) == ["rdzv launch --dry-run -- z", "rdzv launch --dry-run -- y"]


def test_a_line_that_is_not_printed_is_named() -> None:
    [command, _] = commands(PAGE, "run")
    assert missing(command, "took 12.5 s\nmore\n[0] a (b)\n") == []
    assert missing(command, "took 12.5 ms\n[0] a\n") == ["[0] a (b)", "took 1 s"]


def test_the_script_tells_the_commands_outputs_apart() -> None:
    typed = ["cd /", "pwd", "(exit 3)"]
    done = subprocess.run(["bash", "-s"], input=script(typed), capture_output=True, text=True)
    assert outputs(done.stdout) == [("\n", 0), ("/\n\n", 0), ("\n", 3)]


def test_the_folders_of_an_index_are_those_that_are_there(tmp_path: Path) -> None:
    for name in ("a/simple", "wheels"):
        (tmp_path / name).mkdir(parents=True)
    text = f"extra-index-url = file://{tmp_path}/a/simple\nfind-links = {tmp_path}/wheels /no\n"
    assert local_folders(text) == {tmp_path / "a", tmp_path / "wheels"}
