"""What was asked for and changes nothing in a run, as a sentence each. Pure."""

from __future__ import annotations

from launcher.plan.plan import Plan
from launcher.settings import LaunchSettings
from rendezvous.wire.words import printable
from worker.contracts import FRAMEWORKS

_PROGRAMS_TOO = ("log_dir", "log_level")
"""Options that programs have by the same names."""


def without_effect(plan: Plan) -> list[str]:
    """What was asked for and changes nothing here, in a sentence each."""
    settings, found = plan.settings, []
    found += [f"{name} is not passed on: {why}" for name, why in plan.not_passed.items()]
    names = [name for name in ("address", "interface", "network") if getattr(settings, name)]
    names += ["hosts require"] if settings.hosts == "require" else []
    if plan.site.loopback and names:
        found.append(
            f"{' and '.join(f'--{name}' for name in names)} "
            f"{'has' if len(names) == 1 else 'have'} no effect with --scheduler local: all nodes "
            "are on this machine, each at a loopback address"
        )
    found += _goes_to_program(plan)
    default = LaunchSettings.model_fields["rdzv_backend"].default
    if settings.rdzv_backend != default and not FRAMEWORKS[settings.framework].takes_backend:
        found.append(
            f"--rdzv-backend {settings.rdzv_backend} has no effect with --framework "
            f"{settings.framework}: it is an option of torchrun"
        )
    return found


def _goes_to_program(plan: Plan) -> list[str]:
    """The options of a program that look like rdzv's own, as where a script writes the `--`."""
    command = plan.command
    is_script = [word.endswith(".py") for word in command]
    if True in is_script:
        at = is_script.index(True)
    elif command and plan.settings.framework in ("command", "env"):
        at = 0
    else:
        return []
    own = {
        "--" + name.replace("_", "-")
        for name in LaunchSettings.model_fields
        if ("_" in name and name not in _PROGRAMS_TOO) or name == "nnodes"
    }
    words = [word.partition("=")[0].replace("_", "-") for word in command[at + 1 :]]
    found = [word for word in dict.fromkeys(words) if word in own]
    if not found:
        return []
    goes = "goes" if len(found) == 1 else "go"
    told = (
        f"{' and '.join(found)} behind '{printable(command[at], 80)}' "
        f"{goes} to that program; options of rdzv are in front of the '--'"
    )
    return [told]
