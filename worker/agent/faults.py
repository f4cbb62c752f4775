"""The errors that a node's machine itself ends with, in words. Pure."""

from __future__ import annotations

from rendezvous.talk.failures import OtherKey
from rendezvous.wire.errors import (
    ArmingFailed,
    ExitCode,
    JoinTimeout,
    RdzvError,
    RegistryLost,
    RunError,
    UsageError,
)
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.words import printable
from worker.agent.state import Rules

SILENT = "it accepted the connection but did not answer"


def join_timed_out(rules: Rules, last: RdzvError, unheard: bool = False) -> JoinTimeout:
    """It could not join; `last` is what came of the last try, `unheard`: each try was refused."""
    never = "no program ever listened there; " if unheard else ""
    return JoinTimeout(
        f"slot {rules.slot} could not join run '{rules.run}' within "
        f"{rules.join_timeout:.0f} s: {never}{last.message}",
        hint=last.hint,
    )


def other_key(rules: Rules, last: OtherKey) -> OtherKey:
    """Somebody else listens where the registry should be."""
    words = f"slot {rules.slot} cannot join run '{rules.run}': {last.message}"
    return OtherKey(words, hint=last.hint, pins=last.pins)


def look_hangs(seconds: float) -> RunError:
    """It cannot say what it has to offer: a driver, or the kernel, does not answer."""
    return RunError(
        f"looking at this machine's addresses and devices took longer than {seconds:g} s",
        hint="a driver or a file system hangs: see dmesg on this node, and restart it",
    )


def registry_lost(rules: Rules, seconds: float, problem: str) -> RegistryLost:
    """The registry has been silent for longer than this node goes on without it."""
    return RegistryLost(
        f"the registry of run '{rules.run}' has not answered for {seconds:.0f} s "
        f"(--orphan-timeout): {problem}",
        hint="the launcher or its node is gone; this node has ended its program",
    )


def not_acknowledged(digest: str) -> ArmingFailed:
    """The go is for a table that this node has not agreed to."""
    return ArmingFailed(
        f"the run started on a table of nodes ({digest[:12]}) that this node has not acknowledged"
    )


def port_taken(problem: str) -> RunError:
    """It closed its port for a program, and cannot have it back."""
    return RunError(
        f"it cannot listen again for the other nodes' connection checks: {problem}",
        hint="another program has taken the port meanwhile; launch again",
    )


def no_probe_port(ports: str, problem: OSError) -> UsageError:
    """None of the ports that a person lets through can be had on this node."""
    return UsageError(
        f"no port of --probe-ports {ports} is free on this node: {problem.strerror}",
        hint="give a wider range: each node of a machine needs one (ss -lntu shows who listens)",
    )


def words_of(error: Exception) -> str:
    """What an error says; of one that nobody expected, what it is."""
    return error.message if isinstance(error, RdzvError) else f"an internal error, {error!r}"


def fault_report(error: Exception, epoch: int) -> ExitReport:
    """What the registry is told of a node's own fault: nobody else knows it."""
    code, words = ExitCode.INTERNAL, f"an internal error in rdzv: {error!r}"
    if isinstance(error, RdzvError):
        code, words = error.exit_code, error.message
    message = printable(words, 600)
    return ExitReport(epoch=epoch, exit_code=int(code), by_agent=True, leaves=True, message=message)
