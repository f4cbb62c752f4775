"""`rdzv doctor --env`: what a symmetric start would adopt from the environment, said beforehand."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import click

from launcher.run_file.fields import variables_of
from launcher.settings import LaunchSettings
from launcher.symmetric.adopt import NAMES, Adopted, adopt
from launcher.symmetric.claim import FIELDS, Host, Value
from launcher.symmetric.start import check_values
from launcher.terminal import fold_lines, width_of
from rendezvous.talk.join_string import parse_group_token
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.words import printable

_LABELS = {"node_rank": "node", "nnodes": "nodes", "master_addr": "node 0", "rdzv_id": "run"}
_RELATED = re.compile(
    r"(RDZV|SLURM|SLURMD|PET|JOBSET|VC|VK|SM|SKYPILOT|DSTACK|AWS_BATCH|TORCHX|AZUREML|AZ_BATCH"
    r"|AZ_BATCHAI|OMPI|PMI|PMIX"
    r"|HYDRA|I_MPI|LSB|JSM|PBS|TORCHELASTIC)_.*"
    r"|NUM_NODES|NNODES|NODE_RANK|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK"
    r"|MASTER_ADDR|MASTER_PORT|ROLE|GPUS_PER_NODE|TF_CONFIG|CLUSTER_SPEC|TRAINING_JOB_NAME"
    r"|JOB_COMPLETION_INDEX|REPLICATED_JOB_NAME|KUBERNETES_SERVICE_HOST|HOSTNAME"
)
_TOKEN = ("RDZV_TOKEN", "RDZV_TOKEN_FILE")
_MOST_CHARACTERS = 400
_LABEL_CELLS = 11


@dataclass(frozen=True, slots=True)
class Finding:
    """What a symmetric start would find in this environment.

    Attributes:
        ok: Whether `rdzv launch` would start, as far as the environment decides it.
        platform: What the values that were not given come from.
        values: What is known: by the name of the setting, the value and where it comes from.
        token: Whether there is a group token.
        missing: What nothing tells.
        problem: Why it would not start.
        hint: What to do.
        notes: What contradicts the values, or is worth a look.
        seen: Other variables that are set and may matter; names alone.
    """

    ok: bool
    platform: str
    values: dict[str, Value]
    token: bool
    missing: list[str] = field(default_factory=list)
    problem: str = ""
    hint: str = ""
    notes: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


def look_at_environment(environ: Mapping[str, str], token: str | None, host: Host) -> Finding:
    """What a symmetric start would adopt here."""
    given = _given(environ)
    adopted, notes, error = Adopted(given), [], None
    try:
        adopted = adopt(environ, given, host)
        adopted.check()
        notes = check_values(adopted)
        if token is None:
            raise UsageError(
                "RDZV_TOKEN is not set: 'rdzv launch' would not be a symmetric start",
                hint="run 'rdzv token new' once, and set its output on every node",
            )
        parse_group_token(token)
    except UsageError as exc:
        error = exc
    used = {name for value in adopted.values.values() for name in (value.name, value.also)}
    return Finding(
        ok=error is None,
        platform=adopted.platform,
        values=dict(adopted.values),
        token=token is not None,
        missing=[NAMES[name] for name in adopted.missing],
        problem=error.message if error else "",
        hint=error.hint if error else "",
        notes=notes or list(adopted.notes),
        seen=sorted(
            name
            for name in environ
            if environ[name]
            and _RELATED.fullmatch(name)
            and name not in used
            and name not in _TOKEN
        ),
    )


def _given(environ: Mapping[str, str]) -> dict[str, Value]:
    """What `rdzv launch` would take from the environment as given, before it adopts."""
    given = {}
    for name in FIELDS:
        variables = variables_of(name, LaunchSettings.model_fields[name])
        first = next((variable for variable in variables if environ.get(variable)), None)
        if first is not None:
            given[name] = Value(environ[first], first)
    return given


def show_environment(finding: Finding, *, as_json: bool) -> int:
    """Print it; returns the exit code: 0, or 1 when a symmetric start would be refused."""
    if as_json:
        values = {
            name: {"text": value.text, "source": value.source}
            for name, value in finding.values.items()
        }
        click.echo(json.dumps(asdict(finding) | {"values": values}, indent=1))
    else:
        for line in _lines(finding):
            shown = printable(line, _MOST_CHARACTERS)
            click.echo(fold_lines(shown, width_of(sys.stdout), _LABEL_CELLS))
    return int(ExitCode.OK if finding.ok else ExitCode.FAILED)


def _lines(finding: Finding) -> Sequence[str]:
    rows = [("platform", finding.platform or "none: rdzv takes no values from it", "")]
    for name, label in _LABELS.items():
        value = finding.values.get(name)
        rows.append((label, value.text, value.source) if value else (label, "missing", ""))
    rows.append(("token", "set" if finding.token else "missing", "RDZV_TOKEN"))
    width = max(len(text) for _, text, _ in rows)
    lines = [f"{label:10} {text:{width}}  {source}".rstrip() for label, text, source in rows]
    lines += [f"note       {note}" for note in finding.notes]
    if finding.seen:
        lines.append(f"also set   {', '.join(finding.seen)}")
    if finding.problem:
        return [*lines, f"refused    {finding.problem}", f"           {finding.hint}".rstrip()]
    number, size = finding.values["node_rank"].text, finding.values["nnodes"].text
    return [*lines, f"ready      'rdzv launch' would be node {number} of {size}"]
