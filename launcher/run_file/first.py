"""Writes the run file that somebody begins with, with comments. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.run_file.fields import flag_of
from launcher.run_file.write import toml
from launcher.settings import LaunchSettings

_OFTEN = {
    "framework": "accelerate",
    "max_restarts": 3,
    "on_node_loss": "replace",
    "standby": 1,
    "interface": ["ib0"],
    "join_timeout": 1800,
    "cwd": ".",
    "env_file": [".env"],
}
"""Options that many runs have, with an example of each."""


def first_file(
    name: str,
    scheduler: str,
    *,
    local: bool = False,
    hosts: bool = False,
    needs: Sequence[str] = (),
    also: Sequence[str] = (),
) -> str:
    """The text of the file.

    Args:
        name: The file's own.
        scheduler: What starts the nodes.
        local: Whether that starts them on this machine.
        hosts: Whether it starts them on machines that are named.
        needs: The variables (`set`) without which its spec cannot be filled.
        also: Those that it takes beside them.
    """
    lines = [
        "# A run of rdzv. Edit it, look at what it would submit, then launch it:",
        "#",
        f"#   rdzv launch -f {name} --dry-run",
        f"#   rdzv launch -f {name}",
        "#",
        "# Each option is a key, by the name of its flag: see 'rdzv docs options', and 'rdzv docs",
        "# run-file'. A flag or a variable (RDZV_...) wins over what is written here.",
        "",
        "# What starts on each node: a script or '-m MODULE' with its arguments, as for torchrun.",
        'command = ["train.py", "--epochs", "3"]',
        "nnodes = 2",
        "nproc-per-node = 1      # processes on each node: one for each GPU",
        f"scheduler = {toml(scheduler)}",
    ]
    if hosts:
        lines.append('hostlist = ["n1", "n2"]')
    if not local:
        lines.append("local-node = false      # no node on the machine where you type the command")
    if needs or also:
        about = f"needs {', '.join(needs)}" if needs else ""
        takes = f"takes {', '.join(also)}" if also else ""
        example = toml([f"{one}=..." for one in needs or also[:1]])
        lines.append(f"# set = {example}    # it {' and '.join(filter(None, (about, takes)))}")
    lines.append('# name = "llama-7b"       # when not set, rdzv makes one for each launch')
    lines += ["", "# Often used; each line shows an example, and not the default."]
    for option, value in _OFTEN.items():
        if (field := LaunchSettings.model_fields.get(option)) is not None:
            about = (field.description or "").replace(" Repeatable.", "")
            lines += ["#", *_comment(about), f"# {flag_of(option, field)[2:]} = {toml(value)}"]
    lines += [
        "",
        "# Variables of the program, on every node.",
        "[env]",
        '# NCCL_DEBUG = "INFO"',
        "# HF_TOKEN = {secret = true}    # taken from where you launch; in no file and no log",
    ]
    return "".join(f"{line}\n" for line in lines)


def _comment(text: str) -> list[str]:
    """The text in lines of a comment."""
    lines = ["#"]
    for word in text.split():
        if len(lines[-1]) + len(word) > 98:
            lines.append("#")
        lines[-1] += f" {word}"
    return lines
