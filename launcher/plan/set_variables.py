"""`--set` against the variables that a worker spec and its scheduler have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.plan.plan import OWN_VARIABLES, Plan, Spec
from launcher.plan.template import form_of, placeholders
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import did_you_mean, listed


def check_set(plan: Plan, of_scheduler: Iterable[str], scheduler: str) -> list[str]:
    """Refuse `--set` of a variable that nothing reads: it is misspelt, or meant for another spec.

    Args:
        plan: The plan.
        of_scheduler: The variables that the scheduler itself reads.
        scheduler: Its name, or the path of its profile.

    Returns:
        A sentence for each that is given twice, and for each that came with the environment or a
        file of options, and is like none: these are for all launches of a person.

    Raises:
        UsageError: The spec has no such variable; it names the nearest one.
        TemplateError: The spec cannot be read as what its name says.
    """
    spec = plan.site.spec
    found = placeholders(spec.template, source=spec.source, form=form_of(spec.source))
    used = {*of_scheduler, *(name for name, _ in found)}
    free = sorted(used - set(plan.own_variables(0, 1)))
    whose = f"the scheduler '{scheduler.rpartition('/')[2]}'"
    source, notes = plan.settings.source("set"), set_twice(plan.settings.set)
    for name in plan.extra:
        if name in used:
            continue
        words = f"{source} {name}: neither {spec.source} nor {whose} has a variable of that name"
        close = did_you_mean(name, free, "{}")
        if close or source == "--set":
            raise UsageError(words, hint=close or _those(free))
        notes.append(f"{words}, so it changes nothing")
    return notes


def set_twice(settings: Sequence[str]) -> list[str]:
    """The variables that `--set` gives several values, each in a sentence."""
    names = [setting.partition("=")[0] for setting in dict.fromkeys(settings)]
    return [
        f"--set {name} is given {names.count(name)} times: the last one counts alone"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _those(names: Sequence[str]) -> str:
    if names:
        return f"it has {listed(names)}"
    return "it has none: name the scheduler for which it is meant (--scheduler), or remove --set"


def variables_to_set(
    spec: Spec, of_scheduler: Iterable[str], needs: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The variables that `--set` gives: those without which nothing can be submitted, and others.

    Args:
        spec: The scheduler's usual one.
        of_scheduler: The variables that the scheduler itself reads.
        needs: Those of them that have no default.
    """
    found = placeholders(spec.template, source=spec.source, form=form_of(spec.source))
    optional = set(of_scheduler) - set(needs)
    named = dict.fromkeys([*needs, *(name for name, _ in found)])
    needed = [name for name in named if name not in OWN_VARIABLES | optional]
    return needed, sorted(optional - OWN_VARIABLES)
