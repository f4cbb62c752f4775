"""The variables that a person gives to the program of every node. Pure; files are read before.

    --env NAME=VALUE  >  --env-file FILE  >  --pass-env NAME, NCCL_*, UCX_*

Of what is given twice, the later one counts. A secret, by its name or by `--secret-env`, travels
sealed (`rendezvous.talk.sealed_variables`), and is in no text that is made here: no error shows a
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from launcher.settings import LaunchSettings
from rendezvous.frozen import frozen
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.talk.sealed_variables import SLOT, excess
from rendezvous.talk.secret_words import HIDDEN, is_secret, text_without_secrets
from rendezvous.wire.errors import UsageError
from rendezvous.wire.sealed import MOST_SEALED_BYTES, MOST_SECRETS
from rendezvous.wire.words import did_you_mean, listed, printable
from worker.contracts.framework import OF_A_PROCESS
from worker.contracts.variables import Variable

SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ALWAYS_PASSED = ("NCCL_", "UCX_")
_OWN = {
    *OF_A_PROCESS,
    *("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "NPROC_PER_NODE"),
    *("NUM_NODES", "GPUS_PER_NODE", "ROLE"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
}
"""Variables that rdzv sets itself, or reads as an option of a worker."""
_ELSEWHERE = (
    "no launcher stays that could send it to the other nodes: give it to each container by the "
    "scheduler's own secrets (Kubernetes: secretKeyRef; VESSL: a secret; Slurm: sbatch --export)"
)
_LONGEST_NAME = 253
_SEALED = "; a secret, which travels sealed"


@frozen
class GivenVariables:
    """The variables that a person gives, and where each is from.

    Attributes:
        passed: What every node's worker is started with.
        secrets: What travels sealed.
        by_slot: Names of those in whose value `{slot}` is the number of the node's slot.
        sources: What gave each, by its name.
    """

    passed: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    by_slot: frozenset[str] = frozenset()
    sources: dict[str, str] = field(default_factory=dict)

    def of_slot(self, slot: int) -> dict[str, str]:
        """Return the variables that are no secrets, as the worker of this slot is started."""
        return {
            name: value.replace(SLOT, str(slot)) if name in self.by_slot else value
            for name, value in self.passed.items()
        }

    def explained(self) -> list[Variable]:
        """List the variables that a person wants to see, with reasons; of a secret no value."""
        shown = {name: text_without_secrets(value) for name, value in self.passed.items()}
        shown |= dict.fromkeys(self.secrets, HIDDEN)
        return [
            Variable(name, shown[name], f"set by {source}{_SEALED * (name in self.secrets)}")
            for name, source in self.sources.items()
            if name in self.secrets or (name in shown and source != "--pass-env")
        ]

    def for_file(self) -> tuple[dict[str, str], list[str], list[str]]:
        """The parts that a run file can hold: variables, secrets by name, and the names of those
        that are to be passed on again, as [env] cannot have them."""
        again = [name for name, value in self.passed.items() if not self._fits_file(name, value)]
        hidden = [n for n, v in self.passed.items() if is_secret(n) or _shows_secret(v)]
        secrets = [name for name in (*self.secrets, *hidden) if name not in again]
        left_out = {*again, *secrets}
        return {n: v for n, v in self.passed.items() if n not in left_out}, secrets, again

    def _fits_file(self, name: str, value: str) -> bool:
        is_text = not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
        is_filled = SLOT not in value or name in self.by_slot
        return is_text and is_filled and bool(SHELL_NAME.match(name)) and not _is_own(name)

    def without(self, names: Iterable[str]) -> GivenVariables:
        """The same, but for those that cannot be passed on."""
        kept = {name: value for name, value in self.passed.items() if name not in names}
        return GivenVariables(kept, self.secrets, self.by_slot, self.sources)


def given_variables(
    settings: LaunchSettings,
    environ: Mapping[str, str],
    files: Sequence[tuple[str, bytes]] = (),
    *,
    symmetric: bool = False,
) -> GivenVariables:
    """Read the variables that the options give.

    Args:
        settings: The options.
        environ: The launcher's environment.
        files: Each of `--env-file`: its name and content.
        symmetric: Whether the other nodes come by themselves: then nothing can be sent to them.

    Raises:
        UsageError: A name, a line or a value that cannot be.
    """
    for name in settings.pass_env:
        _set_here(name, "--pass-env", environ)
    found = {
        name: value
        for name, value in environ.items()
        if name in settings.pass_env or name.startswith(_ALWAYS_PASSED)
    }
    sources = dict.fromkeys(settings.pass_env, "--pass-env")
    for path, content in files:
        of_file = read_env_file(path, content, environ)
        found |= of_file
        sources |= dict.fromkeys(of_file, f"--env-file {path}")
    by_slot: dict[str, bool] = {}
    for text in settings.env:
        name, sign, value = text.partition("=")
        given_by = settings.known_source(f"env.{name}") or "--env"
        check_name(name, given_by)
        found[name] = value if sign else _set_here(name, given_by, environ)
        sources[name], by_slot[name] = given_by.rstrip(":"), bool(sign) and SLOT in value
    missing = [name for name in settings.secret_env if name not in {*sources, *environ}]
    for name in settings.secret_env:
        given_by = settings.known_source(f"env.{name}") or "--secret-env"
        check_name(name, given_by)
        if name not in sources:
            _set_here(name, given_by, environ, missing)
            found[name], sources[name] = environ[name], given_by.rstrip(":")
    for name in sources:
        if "\0" in found[name]:
            raise UsageError(f"{sources[name]}: {name} has a NUL in it, as no variable can")
    secrets = {n for n in sources if n in settings.secret_env or is_secret(n)}
    secrets -= {*SECRET_VARIABLES}  # of --pass-env alone; no program gets them
    if symmetric:
        _refuse_secrets(sorted(secrets & {n for n in sources if sources[n] != "--pass-env"}))
        secrets = set()
    sealed = {name: found.pop(name) for name in sorted(secrets)}
    slots = frozenset(name for name, is_so in by_slot.items() if is_so)
    _check_size(sealed, slots)
    return GivenVariables(found, sealed, slots, sources)


def check_name(name: str, given_by: str) -> None:
    """Refuse a name that no shell takes, or that is rdzv's; raises UsageError."""
    if not SHELL_NAME.match(name) or len(name) > _LONGEST_NAME:  # not shown: a value, perhaps
        raise UsageError(
            f"{given_by.rstrip(':')} does not begin with the name of a variable",
            hint="a name has letters, digits and '_', and does not begin with a digit: NAME=VALUE",
        )
    if _is_own(name):
        raise UsageError(
            f"{given_by} {name}: rdzv itself sets or reads this variable on each node",
            hint="choose another name, or use the option of 'rdzv launch' for it",
        )


def _is_own(name: str) -> bool:
    """Return whether rdzv itself sets or reads it on each node."""
    return name in _OWN or name.startswith("RDZV_")


def read_env_file(path: str, content: bytes, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file of `--env-file`, read as docker does: a value is all behind the '='.

    Args:
        path: Its name, for errors.
        content: Its bytes.
        environ: What a NAME alone is looked up in; it is left out where that has none.

    Raises:
        UsageError: A line that is none of this, named by its number.
    """
    found = {}
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        where = f"--env-file {path}, line {number}:"
        try:
            line = raw.removesuffix(b"\r").decode().lstrip()
        except UnicodeDecodeError:
            raise UsageError(f"{where} it is not UTF-8") from None
        if not line or line.startswith("#"):
            continue
        name, sign, value = line.partition("=")
        check_name(name.rstrip() if not sign else name, where)
        if sign:
            found[name] = value
        elif name.rstrip() in environ:
            found[name.rstrip()] = environ[name.rstrip()]
    return found


def _shows_secret(value: str) -> bool:
    """Return whether a part of it may be a secret, such as a password in a URL."""
    return HIDDEN in text_without_secrets(value)


def shown_secrets(given: GivenVariables, settings: LaunchSettings) -> list[str]:
    """Notes on secrets that others can see already, where a person has written them down."""
    written = {text.partition("=")[0] for text in settings.env if "=" in text}
    names = sorted(n for n in written & given.secrets.keys() if given.sources[n] == "--env")
    if not names:
        return []
    each = "their values are" if len(names) > 1 else "its value is"
    told = (
        f"{listed(names)}: {each} on this command line, which other users of this machine can "
        f"read: set the variable, and give --env {names[0]} alone, or use --env-file"
    )
    return [told]


def _set_here(
    name: str, given_by: str, environ: Mapping[str, str], missing: Sequence[str] = ()
) -> str:
    if name not in environ:
        names = listed(missing) if len(missing) > 1 else printable(name, 80)
        said = "the variables are" if len(missing) > 1 else "the variable is"
        hint = "" if given_by[0] == "[" else did_you_mean(name, environ, "{}")
        raise UsageError(
            f"{given_by} {names}: {said} not set here",
            hint=hint or ("set it where you launch" if given_by[0] == "[" else _SET_IT),
        )
    return environ[name]


_SET_IT = "set it, or remove the option"


def _refuse_secrets(names: Sequence[str]) -> None:
    if names:
        word = "a secret" if len(names) == 1 else "secrets"
        raise UsageError(f"{listed(names)}: {word} in a symmetric start", hint=_ELSEWHERE)


def _check_size(secrets: Mapping[str, str], by_slot: frozenset[str]) -> None:
    if len(secrets) > MOST_SECRETS:
        raise UsageError(f"{len(secrets)} secret variables are given; at most {MOST_SECRETS} can")
    if more := excess(secrets, by_slot):
        raise UsageError(
            f"the secret variables are {more} bytes more than the {MOST_SEALED_BYTES} that travel "
            f"sealed: {listed(secrets)}",
            hint="give a large one in a file that the nodes can read, and its path with --env",
        )
