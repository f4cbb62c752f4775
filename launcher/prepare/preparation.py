"""From settings, COMMAND and environment to what is launched: files are read, nothing is made.

The dry run ends here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.options import given_as, misspelt_variables, sources
from launcher.plan.avoiding import avoid_notes
from launcher.plan.dry_run import (
    check_start,
    command_lines,
    given_lines,
    planned,
    planned_lines,
)
from launcher.plan.endpoints import read_endpoints
from launcher.plan.env_files import read_env_files
from launcher.plan.given_variables import shown_secrets
from launcher.plan.losses import check_losses, loss_lines, loss_words
from launcher.plan.named_hosts import on_named_hosts, working_folder
from launcher.plan.plan import (
    HIDDEN,
    LOCAL,
    Here,
    Plan,
    Site,
    Spec,
    check_run_id,
    make_plan,
    parse_nnodes,
)
from launcher.plan.set_variables import check_set
from launcher.plan.spec_command import without_rdzv
from launcher.plan.without_effect import without_effect
from launcher.prepare.preview import preview, short_preview
from launcher.prepare.registry_process import check_file_limit, check_machine
from launcher.run_file.write import run_file_text
from launcher.schedulers.catalog import make_scheduler, scheduler_entry
from launcher.schedulers.contract import Entry, Scheduler, SchedulerContext
from launcher.schedulers.shipped import specs_folder
from launcher.settings import LaunchSettings
from rendezvous.talk.join_string import RegistryString, parse_group_token
from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import canonical_json
from rendezvous.wire.types import is_loopback
from worker.contracts import FRAMEWORKS, check_command
from worker.contracts.choice import FrameworkChoice
from worker.contracts.own_restarts import refuse_two_counts
from worker.contracts.warm import warm_words
from worker.options import specs_of
from worker.preflight.needs import read_config
from worker.program.state_home import state_home, why_elsewhere
from worker.settings import settle_framework


@dataclass(frozen=True)
class Preparation:
    """Checked launch, before anything is made.

    Attributes:
        plan: For a launch id that is not known yet.
        root: The folder of all runs.
        context: For the schedulers.
        here: Starts slot 0; in a symmetric start, or with a node here, on this machine.
        others: Starts the other slots, where the launcher does.
        group_secret: Of a symmetric start; None in another.
        standing: Where a standing registry is; None where the launch has its own.
        notes: What the person hears before it begins.
        given: The settings as they were given.
    """

    plan: Plan
    root: Path
    context: SchedulerContext
    here: Scheduler
    others: Scheduler
    group_secret: bytes | None = field(repr=False)
    standing: RegistryString | None
    notes: tuple[str, ...]
    given: LaunchSettings

    @property
    def symmetric(self) -> bool:
        """Whether the other nodes come by themselves."""
        return self.group_secret is not None

    @property
    def settings(self) -> LaunchSettings:
        """As they were completed."""
        return self.plan.settings

    def preview(self) -> Iterator[str]:
        """The lines of the dry run."""
        if self.settings.dry_run == "file":
            yield self.run_file().rstrip()
            return
        starters = [self.here, self.others]
        owns = self.standing is None
        if self.settings.dry_run != "full":
            losses = loss_words(self.plan, owns_registry=owns, symmetric=self.symmetric)
            yield from short_preview(self.plan, starters, losses, symmetric=self.symmetric)
            return
        yield from preview(self.plan, starters)
        yield from loss_lines(self.plan, owns_registry=owns, symmetric=self.symmetric)
        yield from command_lines(self.plan)
        yield from planned_lines(planned(self.plan))
        yield from (f"# {line}" for line in given_lines(self.plan))

    def run_file(self) -> str:
        """The launch as a run file, without the values of secrets."""
        env, secrets, again = self.plan.given.for_file()
        command = () if self.settings.framework == "bench" else self.plan.command
        here = ["state_dir"] if self.given.known_source("state_dir") else []  # RDZV_STATE_DIR
        given = self.given.model_copy(update=dict.fromkeys(here))
        return run_file_text(given, command, env, secrets, again, folder=working_folder())

    def check(self) -> None:
        """Refuse what could not be submitted, or served. Raises TemplateError, UsageError or
        ArmingFailed."""
        plan = self.plan
        for slot in sorted({0, 1, plan.slots - 1} & set(range(plan.slots))):
            starter = self.others if slot else self.here
            starter.prepare(plan.submission(slot, 1), HIDDEN)
        check_file_limit(plan.slots if self.standing is None else 0)
        check_machine(self.nodes_here)

    @property
    def starts_here(self) -> bool:
        """Whether the run needs a node that starts COMMAND here for certain: in this folder, with
        this environment, and nothing of a person's own spec before it."""
        if self.symmetric or not self.settings.local_node:  # the other nodes hear it of a registry
            return False
        own = self.here is not self.others or self.settings.worker_spec is None
        return own and self.plan.min_nodes == self.plan.slots

    @property
    def nodes_here(self) -> int:
        """Count of the nodes that begin as processes of this machine."""
        schedulers = map(self.scheduler_of, range(self.plan.slots))
        return sum(one is not None and one.loopback for one in schedulers)

    def scheduler_of(self, slot: int) -> Scheduler | None:
        """Return what submits the worker runs of a slot; None: nobody does."""
        if slot or not self.settings.local_node:
            return None if self.symmetric else self.others
        return self.here

    def fingerprint(self) -> str:
        """Return a hash of what the registry does not compare when a command is given again."""
        plan = self.plan
        last = plan.slots - 1
        options = [plan.worker_options(slot) for slot in sorted({0, last})]
        secret = hashlib.sha256(self.group_secret or b"").hexdigest()
        spec = plan.site.spec
        shown = [spec.source, spec.template, plan.extra, plan.passed, plan.command]
        if plan.given.secrets or plan.given.by_slot:  # names: a hash of a secret could be guessed
            shown.append([*plan.given.secrets, *sorted(plan.given.by_slot)])
        shown += [plan.settings.avoid] if plan.settings.avoid else []
        text = canonical_json([*shown, options, plan.settings.nproc_per_node, secret])
        return hashlib.sha256(text).hexdigest()


def prepare(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    group_token: str | None = None,
    registry: str | None = None,
    make: Callable[[str, SchedulerContext], Scheduler] = make_scheduler,
) -> Preparation:
    """Check what is asked for, and plan it. Raises UsageError.

    Args:
        settings: As they were given.
        command: COMMAND.
        environ: The user's environment.
        group_token: Of a symmetric start.
        registry: RDZV_REGISTRY: where a standing registry is.
        make: Makes what starts worker runs.
    """
    given, settings, chosen = _settled(settings, command, environ)
    settings, hosts, more, notes = on_named_hosts(_with_addresses(settings))
    check_losses(settings, parse_nnodes(settings.nnodes, command), command)
    run = check_run_id(
        settings.rdzv_id or f"run-{secrets.token_hex(4)}", given_as(LaunchSettings, "rdzv_id")
    )
    entry = scheduler_entry(settings.starter)
    root = settings.state_dir or state_home(environ)
    logs = settings.log_dir or root / run / "logs"
    folder = root / run / "submissions"
    context = SchedulerContext(folder, environ, logs, quiet_stdout=settings.json_events)
    scheduler = make(settings.starter, context)
    alone = scheduler.loopback and (group_token is None or _is_loopback(settings))
    site = replace(_site(settings, entry, logs, loopback=alone), hosts=hosts, more_hosts=more)
    files, symmetric = read_env_files(settings.env_file), group_token is not None
    plan = _plan(settings, command, environ, site, run, files, symmetric=symmetric)
    needs_local = settings.local_node and scheduler.name != LOCAL
    check_start(plan)
    return Preparation(
        plan,
        root,
        context,
        here=make(LOCAL, context) if needs_local else scheduler,
        others=scheduler,
        group_secret=parse_group_token(group_token) if group_token is not None else None,
        standing=RegistryString.parse(registry) if registry is not None else None,
        notes=(
            *misspelt_variables(environ),
            *notes,
            *_elsewhere(settings, environ),
            *chosen,
            *_notes(plan, entry, group_token),
        ),
        given=given,
    )


def _settled(
    settings: LaunchSettings, command: Sequence[str], environ: Mapping[str, str]
) -> tuple[LaunchSettings, LaunchSettings, list[str]]:
    """The settings as they were given, and as COMMAND completes them; with notes on that."""
    given = settings
    settings, choice = settle_framework(settings, command)
    _check_options(settings, command, environ)
    if notes := _end_notes(settings, command):
        given, settings = (one.model_copy(update={"ends_with": "all"}) for one in (given, settings))
    return given, settings, [*_chosen(choice), *notes]


def _plan(
    settings: LaunchSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    site: Site,
    run: str,
    env_files: Sequence[tuple[str, bytes]],
    *,
    symmetric: bool,
) -> Plan:
    """The plan, with the text of the file that COMMAND names to its launcher."""
    about: dict[str, Any] = {"run": run, "env_files": env_files, "symmetric": symmetric}
    plan = make_plan(settings, command, environ, site, launch_id="to-be-made", **about)
    return replace(plan, config=read_config(settings.framework, command, environ))


def _notes(plan: Plan, entry: Entry, group_token: str | None) -> Iterator[str]:
    """Yield what is worth a note in the plan."""
    yield from check_set(plan, entry.variables, plan.settings.starter)
    yield from without_effect(plan)
    yield from _shown_secrets(plan)
    yield from _of_spec(plan, entry, group_token)


def _with_addresses(settings: LaunchSettings) -> LaunchSettings:
    """The settings with the registry's addresses as they are dialled. Raises UsageError."""
    given_by = given_as(LaunchSettings, "registry_address")
    addresses = read_endpoints(settings.registry_address, given_by)
    return settings.model_copy(update={"registry_address": addresses}) if addresses else settings


def _is_loopback(settings: LaunchSettings) -> bool:
    """Whether all nodes of a symmetric start are on this machine."""
    host = settings.master_addr or ""
    return not settings.local_node and is_loopback(host)


def _shown_secrets(plan: Plan) -> list[str]:
    """Whether secrets stand on this command line, for others to read."""
    is_flag = sources(LaunchSettings).get("env") == "--env"
    return shown_secrets(plan.given, plan.settings) if is_flag else []


def _elsewhere(settings: LaunchSettings, environ: Mapping[str, str]) -> list[str]:
    """Why the state directory is not the usual one, where nobody has chosen it."""
    words = "" if settings.state_dir else why_elsewhere(environ)
    return [words] if words else []


def _chosen(choice: FrameworkChoice | None) -> list[str]:
    """Note what a COMMAND without --framework was taken for, where that is not the default."""
    if choice is None or not choice.launcher:
        return []
    return [f"COMMAND begins with '{choice.launcher}': using --framework {choice.framework}"]


def _of_spec(plan: Plan, entry: Entry, group_token: str | None) -> list[str]:
    """Note what a spec has no place for, and whether a person's own one starts no rdzv, where the
    scheduler's usual one does. Raises UsageError."""
    settings, notes = plan.settings, avoid_notes(plan, symmetric=group_token is not None)
    if settings.worker_spec is None or group_token is not None:
        return notes
    said = without_rdzv(read_spec(settings.worker_spec))
    usual = without_rdzv(read_spec(specs_folder() / entry.spec))
    return [*notes, said] if said and not usual else notes


def _site(settings: LaunchSettings, entry: Entry, logs: Path, *, loopback: bool) -> Site:
    """Describe where the worker runs start; reads the specs."""
    own = specs_folder() / scheduler_entry(LOCAL).spec
    spec = read_spec(settings.worker_spec or specs_folder() / entry.spec)
    return Site(
        spec,
        Here(read_spec(own), str(logs)),
        loopback=loopback,
        avoids="AVOID" in entry.variables or "<<AVOID>>" in spec.template,
        takes_host="HOST" in entry.variables or "<<HOST>>" in spec.template,
        tells_host=entry.tells_host,
        cwd=str(settings.cwd or working_folder()),
        name_length=entry.name_length,
    )


def read_spec(path: Path) -> Spec:
    """A spec; raises UsageError."""
    try:
        return Spec(str(path), path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        hint = f"the specs of rdzv are in {specs_folder()}" if path.parts[:1] == ("specs",) else ""
        raise UsageError(f"the worker spec {path} cannot be read: {why}", hint=hint) from exc


def _check_options(
    settings: LaunchSettings, command: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Raise UsageError where an option does not fit COMMAND, or another option."""
    check_command(command, settings.framework)
    specs_of(settings)
    if settings.warm == "on":
        warm_words(command, settings.framework, settings.rdzv_backend)
    refuse_two_counts(settings.max_restarts, command, settings.framework, environ)


def _end_notes(settings: LaunchSettings, command: Sequence[str]) -> list[str]:
    """Refuse `--ends-with node0` where a run cannot end with node 0, or does so anyway, with
    UsageError; a variable is for all launches of a person, and is told in a sentence."""
    name, source = settings.framework, settings.source("ends_with")
    if settings.ends_with == "all" or name in ("command", "env"):
        return []
    if FRAMEWORKS[name].is_led(command):
        why, hint = "a run of it ends with node 0's program anyway", "remove the option"
    else:
        why = "its programs are one job, which ends when all have ended"
        hint = "add --framework command, or remove the option"
    if not source.startswith("--"):
        return [f"{source} has no effect with --framework {name}: {why}"]
    given = source.replace("--ends-with", f"--ends-with {settings.ends_with}", 1)
    raise UsageError(f"{given} has no use with --framework {name}: {why}", hint=hint)
