"""What a launch follows: the run's status, what is kept of it, and events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from launcher.run import actions as do
from launcher.run import inputs, sentences
from launcher.run.desk import Desk, retry_pause
from launcher.run.values import ErrorKind, Failure, Silent, StorageLost, Trouble
from rendezvous.wire.errors import NOT_NOW_SECONDS, PreflightFailed, VerificationFailed
from rendezvous.wire.node import Finding
from rendezvous.wire.run import Phase, RunStatus

STATUS_WAIT_SECONDS: Final = 2.0
WORDS_SECONDS: Final = 5.0
"""From the end of an epoch until what its ranks have printed last is fetched: their nodes send it
once their programs are gone, beside the next start."""
ERRAND_SECONDS: Final = 1.0
MOST_ERRANDS: Final = 3
"""How often the end waits for what could not be kept, until it goes without."""
_BY_CHECKS: Final = (VerificationFailed.code, PreflightFailed.code)
_STARTED: Final = (Phase.RUNNING, Phase.FINISHED)


@dataclass(slots=True)
class Errand:
    """Something that is kept once, and tried again when it fails.

    Attributes:
        begun: A try is under way.
        tries: How often it has failed.
    """

    begun: bool = False
    tries: int = 0
    again_at: float = 0.0

    def may_begin(self, now: float) -> bool:
        """Whether to try it now."""
        return not self.begun and now >= self.again_at

    def failed(self, now: float) -> None:
        """Try it again in a while."""
        self.begun, self.tries, self.again_at = False, self.tries + 1, now + ERRAND_SECONDS


@dataclass(slots=True)
class Following:
    """What is known of the run.

    Attributes:
        patience: Seconds without the registry, or its journal, until the launch is over.
        status: The newest one.
        answered_at: When the registry last told how the run stands.
        asked_since: Since when the next one is asked for, of a registry that may be gone.
        last_try: The time is up: what is under way is the last try.
        storage: Since when the journal cannot be written, as this launch has met it.
        said: What is said once.
        kept_epoch: The table of this epoch is kept.
        findings: Those of the checks that were said last; None: none were.
        checks_shown: What was found about a run that did not start was said.
        events_after: Number of the last event that was shown.
        failed: Why the launch cannot go on.
    """

    desk: Desk
    patience: float
    status: RunStatus | None = None
    answered_at: float = 0.0
    asked_since: float = 0.0
    last_try: bool = False
    storage: tuple[float, Trouble] | None = None
    said: set[sentences.Sentence] = field(default_factory=set)
    kept_epoch: int = 0
    findings: list[Finding] | None = None
    keeping: Errand = field(default_factory=Errand)
    checks_shown: bool = False
    checks: Errand = field(default_factory=Errand)
    events_after: int = 0
    events_over: bool = False
    failed: Failure | None = None

    def begin(self, now: float, seen: int = 0) -> None:
        """The run is created; its events were shown up to number `seen`."""
        self.answered_at = self.asked_since = now
        self.events_after = seen
        self._ask()
        self.desk.send("events", do.FollowEvents, seen)
        self.desk.send("features", do.RunFeatures)

    def stop(self) -> None:
        """Follow it no longer."""
        self.desk.drop("status", "keep", "checks", "events", "features", "words", "errands")
        self.desk.drop("secrets")

    def stop_asking(self) -> None:
        """What is known is enough; the events and the features go on."""
        self.desk.drop("status", "keep", "checks", "words", "errands", "secrets")

    def say_once(self, sentence: sentences.Sentence) -> None:
        """Say it, unless it was said."""
        if sentence not in self.said:
            self.said.add(sentence)
            self.desk.do(do.Say(sentence))

    # --- status -------------------------------------------------------------------------------

    def _ask(self) -> None:
        after = -1 if self.status is None else self.status.version
        self.desk.send("status", do.AskStatus, after, STATUS_WAIT_SECONDS)

    def ask_again(self, now: float) -> None:
        """Ask for the next status. Whether time is up is judged before the try: it may have been
        this process that was stopped."""
        self.last_try = now - self.asked_since > self.patience
        self._ask()

    def came(self, status: RunStatus, now: float) -> None:
        """How the run stands: shown, and kept once the nodes have their ranks."""
        before = self.status
        self.status, self.last_try = status, False
        self.answered_at = self.asked_since = now
        self.desk.do(do.Show(status))
        self._say_ended(before, status, now)
        if status.trouble:
            self.say_once(sentences.RegistryTrouble(status.trouble))

    def _say_ended(self, before: RunStatus | None, status: RunStatus, now: float) -> None:
        """A line for each epoch that has ended since; what a former launch has said is known."""
        known = status.ended if before is None else before.ended
        last = known[-1].epoch if known else 0
        for end in status.ended:
            if end.epoch > last:
                self.desk.do(do.Say(sentences.EpochEnded(end)))
                self.desk.look_at("words", now + WORDS_SECONDS)

    def errands(self, now: float) -> None:
        """Once the nodes have their ranks, `rdzv logs` and `rdzv status --env` have to know them;
        and of a start that failed, what one sentence leaves out is said."""
        status = self.status
        assert status is not None
        if self._keeps(status) and self.keeping.may_begin(now):
            self.keeping.begun = True
            self.desk.send("keep", do.Keep, status)
        if self._shows_checks(status) and self.checks.may_begin(now):
            self.checks.begun = True
            self.desk.send("checks", do.KeepReport)

    def _keeps(self, status: RunStatus) -> bool:
        return status.phase in _STARTED and bool(status.digest) and status.epoch != self.kept_epoch

    def _shows_checks(self, status: RunStatus) -> bool:
        return (
            status.result is not None and status.result.code in _BY_CHECKS and not self.checks_shown
        )

    def awaits_errands(self) -> bool:
        """Whether something is still to be kept, or said, before the registry goes."""
        status = self.status
        assert status is not None
        keeps = self._keeps(status) and self.keeping.tries < MOST_ERRANDS
        checks = self._shows_checks(status) and self.checks.tries < MOST_ERRANDS
        return keeps or checks or self.keeping.begun or self.checks.begun

    def unanswered(self, said: inputs.Unanswered, now: float) -> None:
        """The registry does not answer: it may be being started again. Or it says that it cannot
        serve just now: then it is there, though it may not be so for ever."""
        trouble = said.trouble
        if trouble.kind is ErrorKind.STORAGE_FULL:  # met by who asked beside this
            self.say_once(sentences.RegistryTrouble(trouble.message, trouble.hint))
        elif trouble.told and now - self.answered_at <= NOT_NOW_SECONDS:
            self.asked_since, self.last_try = now, False
            self.say_once(sentences.RegistryNotNow(trouble.message))
        if self.last_try:
            self.failed = Silent(trouble)
        else:
            self.desk.look_at("status", now + retry_pause(said.jitter))

    # --- the journal --------------------------------------------------------------------------

    def storage_full(self, trouble: Trouble, now: float) -> None:
        """A disk that is full is the person's to mend; until then everything waits."""
        if trouble.kind is ErrorKind.STORAGE_FULL:
            self.storage = self.storage or (now, trouble)
            self.say_once(sentences.RegistryTrouble(trouble.message, trouble.hint))
        elif trouble.told:  # it does not come as far as its journal, which may be there again
            self.storage = None

    def check_storage(self, now: float) -> None:
        """Without a journal nothing can go on or end: give up when the disk stays full.

        From the go on the programs run without it, until one of them has ended.
        """
        status = self.status
        assert status is not None
        forming = status.phase not in _STARTED
        if forming and status.unwritten_seconds > self.patience:
            self.failed = StorageLost(status.unwritten_seconds, status.trouble)
        elif self.storage is not None and now - self.storage[0] > self.patience:
            since, trouble = self.storage
            self.failed = StorageLost(now - since, trouble.message, trouble.hint)

    # --- answers ------------------------------------------------------------------------------

    def kept(self, said: inputs.Answer, status: RunStatus, now: float) -> None:
        """The table is kept, or not."""
        if isinstance(said, inputs.ReportCame):
            self.keeping.begun, self.kept_epoch = False, status.epoch
            found = said.report.findings
            if self.findings is None or not _what(found) <= _what(self.findings):
                self.desk.do(do.Say(sentences.Warnings(said.report)))
            self.findings = found
        else:
            self.keeping.failed(now)
            self.desk.look_at("errands", self.keeping.again_at)

    def checks_came(self, said: inputs.Answer, now: float) -> None:
        """What was found is kept, or not."""
        if isinstance(said, inputs.ReportCame):
            self.checks.begun, self.checks_shown = False, True
            self.desk.do(do.Say(sentences.Findings(said.report)))
        else:
            self.checks.failed(now)
            self.desk.look_at("errands", self.checks.again_at)

    def events_ended(self, said: inputs.Answer, now: float) -> None:
        """They end with the run, and as well where the registry is told to end and comes back."""
        over = self.status is not None and self.status.everyone_left and self.status.result
        jitter = 0.0
        if isinstance(said, inputs.EventsOver):
            self.events_after, jitter = said.after, said.jitter
            self.events_over = bool(over) and not said.broken
        if not self.events_over:
            self.desk.look_at("events", now + retry_pause(jitter))

    def ask_for_last_events(self) -> None:
        """Everyone has left: a pause before the next try would wait for nothing."""
        if "events" in self.desk.times:
            self.desk.forget("events")
            self.desk.send("events", do.FollowEvents, self.events_after)

    def look(self, name: str, now: float) -> None:
        """Its time has come."""
        if name == "status":
            self.ask_again(now)
        elif name == "events":
            self.desk.send("events", do.FollowEvents, self.events_after)
        elif name == "words":
            self.desk.send("words", do.FetchWords)
        elif name == "errands":
            self.errands(now)


def _what(findings: list[Finding]) -> set[tuple[str, str, str]]:
    """What was found, of whichever node: a restart finds the same again, and so does another node
    in the place of a lost one."""
    return {(one.check, one.level, one.cause) for one in findings}
