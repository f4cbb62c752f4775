"""What a profile may say: the model of its TOML file, which `docs/schedulers.md` explains."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from launcher.plan.plan import LONGEST_NAME, SHORTEST_NAME
from launcher.plan.template import PLACEHOLDER
from launcher.schedulers.wrong_key import Place, wrong_key
from rendezvous.compat import tomllib
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import SlotState


def _check_words(words: list[str]) -> list[str]:
    for word in words:
        if "<<RDZV_JOIN>>" in word:
            raise ValueError(
                "<<RDZV_JOIN>> is a secret, but every user of the machine can read a command "
                "line: pass it with 'secret'"
            )
    return words


def _check_regex(pattern: str) -> str:
    try:
        re.compile(PLACEHOLDER.sub("name", pattern))
    except re.error as exc:
        raise ValueError(f"not a regular expression: {exc}") from exc
    return pattern


def _check_id(pattern: str) -> str:
    if re.compile(PLACEHOLDER.sub("name", _check_regex(pattern))).groups < 1:
        raise ValueError("group 1 is the id: put it in parentheses, as in 'job ([0-9]+)'")
    return pattern


def _check_state(pattern: str) -> str:
    names = set(re.compile(PLACEHOLDER.sub("name", _check_regex(pattern))).groupindex)
    if "state" not in names or names - {"state", "code", "detail", "host"}:
        raise ValueError(
            "it needs a group (?P<state>...), and may have (?P<code>...), (?P<detail>...) and "
            "(?P<host>...)"
        )
    return pattern


_WORD = re.compile(r"\w+")
"""Of a reason."""
_OF_COMMANDS = {"ID", "SPEC", "JOIN_FILE", "GRACE", "LINES"}
"""Variables that rdzv sets for the command lines alone."""

Argv = Annotated[list[str], Field(min_length=1), AfterValidator(_check_words)]
Regex = Annotated[str, AfterValidator(_check_regex)]
IdRegex = Annotated[str, AfterValidator(_check_id)]
StateRegex = Annotated[str, AfterValidator(_check_state)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class _Table(BaseModel):
    """A part of a profile; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Submit(_Table):
    """`[submit]`: what makes a worker run."""

    argv: Argv
    stdin: Literal["spec", "join"] | None = None
    id: IdRegex
    refused: Regex | None = None
    final: Regex | None = None
    no_host: Regex | None = None
    retry: Regex | None = None


class Find(_Table):
    """`[find]`: what tells the id of the worker run with our unique name."""

    argv: Argv
    id: IdRegex
    gone: Regex | None = None


class Describe(_Table):
    """`[describe]`: what tells the state of a worker run."""

    argv: Argv
    state: StateRegex
    gone: Regex | None = None
    list: bool = False

    @model_validator(mode="after")
    def _lists_what_it_tells_apart(self) -> Describe:
        own = ("<<ID>>", "<<NAME>>")
        if self.list and any(variable in " ".join(self.argv) for variable in own):
            raise ValueError("list = true: the command is one for all worker runs, without <<ID>>")
        if self.list and not any(variable in self.state for variable in own):
            raise ValueError("list = true: 'state' must select the run by <<ID>> or <<NAME>>")
        return self


class States(_Table):
    """`[states]`: the scheduler's words for our states; every other word is unknown.

    Those of `preempted` stand beside the states: they may be a state, or a word of its reason.
    """

    submitted: list[str] = []
    queued: list[str] = []
    running: list[str] = []
    ended: list[str] = []
    failed: list[str] = []
    preempted: list[str] = []

    @model_validator(mode="after")
    def _each_word_once(self) -> States:
        words = [word for name, of_state in self for word in of_state if name != "preempted"]
        twice = sorted({word for word in words if words.count(word) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} cannot mean two states")
        return self

    def of(self, word: str) -> SlotState:
        """Our state for the scheduler's word; what is preempted and nothing else has failed."""
        for state, words in self:
            if word in words:
                return SlotState.FAILED if state == "preempted" else SlotState(state)
        return SlotState.UNKNOWN

    def says_preempted(self, word: str, reason: str) -> bool:
        """Whether a state, or a word of its reason, means that the machine is taken back."""
        return any(one in self.preempted for one in (word, *_WORD.findall(reason)))


class Cancel(_Table):
    """`[cancel]`: what ends a worker run."""

    argv: Argv
    gone: Regex | None = None


class Clear(_Table):
    """`[clear]`: what takes away the things that a submit makes beside the worker run itself."""

    argv: Argv


class Logs(_Table):
    """`[logs]`: what prints a worker run's output."""

    argv: Argv
    follow: Argv | None = None


class Profile(_Table):
    """A profile file."""

    summary: Annotated[str, Field(min_length=1, max_length=100)]
    spec: Annotated[str, Field(min_length=1)]
    channel: Annotated[Literal["spec", "stdin", "file"], Field(alias="secret")]
    secret_path: str | None = None
    name_path: str | None = None
    name_length: Annotated[int, Field(ge=SHORTEST_NAME, le=LONGEST_NAME)] = LONGEST_NAME
    poll_seconds: Seconds = 5.0
    timeout_seconds: Seconds = 60.0
    retry_submit: bool = False
    at_once: Annotated[int, Field(ge=1)] | None = None
    busy: Regex | None = None
    begins: Regex | None = None
    cwd: Path | None = None
    environ: dict[str, str] = {}
    needs: list[str] = []
    paths: list[str] = []
    variables: dict[str, str | int | list[str]] = {}
    hint: str = ""
    hints: dict[Regex, str] = {}
    submit: Submit
    find: Find | None = None
    describe: Describe
    states: States
    cancel: Cancel
    clear: Clear | None = None
    logs: Logs | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Profile:
        _check_words(list(self.environ.values()))
        if self.submit.stdin == "join" and self.channel != "stdin":
            raise ValueError("submit.stdin = 'join' goes with secret = 'stdin'")
        if self.submit.stdin == "spec" and self.channel == "stdin":
            raise ValueError("secret = 'stdin': standard input cannot also carry the spec")
        if self.secret_path is not None and self.channel != "spec":
            raise ValueError("secret_path goes with secret = 'spec'")
        if self.submit.retry is not None and not self.retry_submit:
            raise ValueError("submit.retry goes with retry_submit = true")
        if self.retry_submit and self.find is None:
            raise ValueError("retry_submit needs [find]: a second try could make a second run")
        return self

    def commands(self) -> tuple[str, ...]:
        """The programs that it calls, as far as they are known without a launch."""
        tables = (self.submit, self.find, self.describe, self.cancel, self.logs)
        words = dict.fromkeys(table.argv[0] for table in tables if table is not None)
        values = self.variables

        def known(spot: re.Match[str]) -> str:
            value = values.get(spot["name"], spot[0])
            return value[0] if isinstance(value, list) and value else str(value)

        return tuple(PLACEHOLDER.sub(known, word) for word in words)

    def reads(self) -> frozenset[str]:
        """The variables of `--set` for which its commands, or a spec of its kind, have a use."""
        text = self.model_dump_json()
        used = {spot["name"] for spot in PLACEHOLDER.finditer(text)} - _OF_COMMANDS
        return frozenset(used | set(self.variables) | set(self.needs))


@functools.cache
def read_profile(path: Path) -> Profile:
    """A profile; raises UsageError that names the file and the key."""
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"the scheduler profile {path} cannot be read: {exc}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"the scheduler profile {path} is not TOML: {exc}") from exc
    except ValidationError as exc:
        why, close = wrong_key(exc, _keys)
        raise UsageError(
            f"{path}: {why}", hint=close or "'rdzv docs schedulers' explains every key"
        ) from exc


def _keys(place: Place) -> list[str]:
    """The keys that the table of this place may have."""
    tables = {table.__name__.lower(): table for table in _Table.__subclasses__()}
    table = Profile if len(place) == 1 else tables[str(place[0])]
    return [field.alias or name for name, field in table.model_fields.items()]
