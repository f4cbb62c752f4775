"""What a shell completes: commands and options by click, values of ours by the functions here."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem, get_completion_class

from launcher.cli.process import missing_launcher_packages
from launcher.options import Completion
from worker.contracts import FRAMEWORKS, OWN
from worker.program.state_home import home_with

_RUN_FILES = (".toml", ".yaml", ".yml")
VARIABLE = "_RDZV_COMPLETE"
"""How click's scripts ask `rdzv` for completions."""


def starting(words: list[str], incomplete: str) -> list[str]:
    """The words that begin with what is typed."""
    return [word for word in words if word.startswith(incomplete)]


def scheduler_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete a scheduler, where the launcher is installed."""
    if missing_launcher_packages():
        return []
    from launcher.schedulers.catalog import known_schedulers

    return starting([*known_schedulers()], incomplete)


def _framework_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return starting([name for name in FRAMEWORKS if name not in OWN], incomplete)


def run_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete a run that was launched here, the newest first."""
    root = context.params.get("state_dir") or home_with(os.environ, None)
    try:
        folders = [entry for entry in os.scandir(root) if entry.is_dir()]
        newest = sorted(folders, key=lambda entry: -entry.stat().st_mtime)
    except OSError:
        return []
    return starting([entry.name for entry in newest], incomplete)


def _files_and_runs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a run file, or a run that was launched here; a worker repeats none.

    Where bash is given words, it adds no files to them: they are words as well.
    """
    repeats = "RUN" in (parameter.metavar or "")
    runs = run_ids(context, parameter, incomplete) if repeats else []
    if not runs:
        return files(context, parameter, incomplete)
    beside = sorted(glob.glob(glob.escape(incomplete) + "*"))
    found = [path for path in beside if path.endswith(_RUN_FILES)]
    found += [f"{path}/" for path in beside if os.path.isdir(path)]
    return [*map(CompletionItem, (*found, *runs))]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a file."""
    return [CompletionItem(incomplete, type="file")]


COMPLETE: Mapping[str, Completion] = {
    "file": _files_and_runs,
    "framework": _framework_names,
    "scheduler": scheduler_names,
}


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and runs.

    \b
    Examples, to install it for bash, zsh or fish:
      rdzv completion bash > ~/.rdzv.bash
      echo 'source ~/.rdzv.bash' >> ~/.bashrc
    \b
      rdzv completion zsh > ~/.rdzv.zsh
      echo 'autoload -Uz compinit; compinit' >> ~/.zshrc
      echo 'source ~/.rdzv.zsh' >> ~/.zshrc
    \b
      rdzv completion fish > ~/.config/fish/completions/rdzv.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "rdzv", VARIABLE).source())
