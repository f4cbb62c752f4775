"""What follows a node's loss: whether COMMAND and the options allow it, and in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from launcher.plan.plan import Plan
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from rendezvous.wire.watch import FENCE_MARGIN_SECONDS, FENCE_POLLS, poll_seconds
from rendezvous.wire.words import printable, size_text
from worker.contracts.framework import basename
from worker.contracts.mpi import is_mpirun
from worker.contracts.torchrun import module_call

_ONLY_THEN: Final = ("standby", "max_replacements", "fence_timeout")
_MPI: Final = ("n", "np", "c")
_COUNTS: Final = {
    "mpirun": _MPI,
    "horovodrun": ("np", "num-proc"),
    "torchrun": ("nnodes",),
    "deepspeed": ("num-nodes",),
    "accelerate": ("num-machines", "num-processes"),
}
"""The flags of a launcher that fix the size of a job."""
_TWO_WORDS: Final = ("mca", "prtemca", "pmixmca", "gmca", "env", "genv")
_NO_WORD: Final = ("oversubscribe", "allow-run-as-root", "v", "verbose", "q", "l", "gloo", "mpi")


def fixed_size(command: Sequence[str]) -> str:
    """The flag of COMMAND that fixes the number of nodes or processes of the whole job, as it was
    given; empty where there is none, or its launcher takes MIN:MAX."""
    launcher, words = _launcher(command)
    names = _COUNTS.get(launcher, ())
    position = 0
    while names and position < len(words) and words[position].startswith("-"):
        word = words[position]
        name, has_value, value = word.lstrip("-").replace("_", "-").partition("=")
        after = 0 if has_value or name in _NO_WORD else 1 + (name in _TWO_WORDS)
        if name in names:
            given = words[position : position + 1 + after]
            return "" if ":" in (value or given[-1]) else " ".join(given)
        position += 1 + after
    return ""


def _launcher(command: Sequence[str]) -> tuple[str, list[str]]:
    """The launcher that COMMAND names, and what it is given; empty where it names none."""
    first, words = basename(command[0]), list(command[1:])
    if is_mpirun(first):
        return "mpirun", words
    if first == "accelerate" and words[:1] == ["launch"]:
        return first, words[1:]
    for module in ("torch.distributed.run", "torch.distributed.launch"):
        if count := module_call(command, module):
            return "torchrun", list(command[count:])
    return {"ds": "deepspeed", "accelerate-launch": "accelerate"}.get(first, first), words


def check_losses(settings: LaunchSettings, size: tuple[int, int], command: Sequence[str]) -> None:
    """Refuse what a run could not do after a node's loss.

    Args:
        settings: As they were given.
        size: MIN and MAX of `--nnodes`.
        command: COMMAND.

    Raises:
        UsageError: The options contradict each other, or COMMAND fixes its number of nodes.
    """
    if not settings.outlives_nodes:
        _refuse_alone(settings)
        return
    if settings.on_node_loss == "shrink":
        _check_shrink(size, command)
    _check_fence(settings, size[1] + settings.extra_nodes)


def _refuse_alone(settings: LaunchSettings) -> None:
    for name in _ONLY_THEN:
        value = getattr(settings, name)
        if name in settings.model_fields_set and value:
            flag = f"--{name.replace('_', '-')} {value:g}"
            raise UsageError(
                f"{flag} has no use with --on-node-loss fail: the run fails when a node is lost",
                hint=f"add --on-node-loss replace, or remove {flag}",
            )


def _check_shrink(size: tuple[int, int], command: Sequence[str]) -> None:
    low, high = size
    if low == high:
        less = size_text(high - 1, high) if high > 1 else "1:2"
        raise UsageError(
            f"--on-node-loss shrink with --nnodes {high}: no node may be missing",
            hint=f"give the fewest nodes that the job can work with as MIN:MAX, such as --nnodes "
            f"{less}, or use --on-node-loss replace",
        )
    if fixed := fixed_size(command):
        shown = printable(fixed, 80)
        raise UsageError(
            f"COMMAND contains {shown}, which fixes its size, but with --on-node-loss shrink the "
            "job continues with fewer nodes",
            hint=f"remove {shown}: {basename(command[0])} gets the number from rdzv; or use "
            "--on-node-loss replace",
        )


def _check_fence(settings: LaunchSettings, nodes: int) -> None:
    orphan, fence = settings.orphan_timeout, settings.fence_seconds
    if fence > orphan:
        raise UsageError(
            f"--fence-timeout {fence:g} is more than --orphan-timeout {orphan:g}: a node that "
            "hears nothing of its registry ends by itself after that",
            hint=f"give at most {orphan:g}, or a longer --orphan-timeout",
        )
    least = settings.grace + FENCE_MARGIN_SECONDS
    least += FENCE_POLLS * poll_seconds(nodes, settings.lease)
    if fence < least:
        flag = "--orphan-timeout" if settings.fence_timeout is None else "--fence-timeout"
        raise UsageError(
            f"{flag} {fence:g} is too short to be sure that the program of a silent node has ended",
            hint=f"give at least {least:g} s: --grace {settings.grace:g}, "
            f"{FENCE_MARGIN_SECONDS:g} s and {FENCE_POLLS} polls; or a shorter --grace",
        )


def loss_lines(plan: Plan, *, owns_registry: bool = True, symmetric: bool = False) -> Iterator[str]:
    """Tell what follows a node's loss, as a line of the full dry run; none where the run fails."""
    if words := loss_words(plan, owns_registry=owns_registry, symmetric=symmetric):
        yield f"# {words}"


def loss_words(plan: Plan, *, owns_registry: bool = True, symmetric: bool = False) -> str:
    """Tell what follows a node's loss; empty where the run then fails. Of a symmetric start nobody
    submits a node again."""
    settings, limits = plan.settings, plan.limits()
    if not settings.outlives_nodes:
        return ""
    most = limits.max_replacements
    times = f"up to {most} time{'s' * (most != 1)}"
    if settings.on_node_loss == "replace":
        parts = [f"another one replaces it, {times}"]
    else:
        parts = [f"the run continues with those that are left, at least {plan.min_nodes}"]
        if most and not symmetric:
            again = f"a missing one is submitted again, {times},"
            parts.append(f"{again} and taken in at the next restart")
    if count := settings.standby:
        wait = "standby waits and steps" if count == 1 else "standbys wait and step"
        parts.append(f"{count} {wait} in first, each a whole machine")
    parts.append(f"a silent node is fenced after {limits.fence_timeout_seconds:g} s")
    if settings.local_node and owns_registry:
        parts.append("without the node of this machine the run fails")
    return f"on the loss of a node: {'; '.join(parts)}"
