"""The worker runs of one launch: submitted or taken up again, described until they are over, ended.

For each slot that wants a newer generation than was submitted, whatever the reason:

    intent told to the registry -> line in the ledger -> submit -> id in the ledger and told
        -> its state told whenever that changes, until it is over

The registry decides what follows from it. A worker run that a newer generation replaces is ended:
before the go beside the newer one, as the registry refuses its node in any case, and from the go on
before the newer one is submitted. What the run goes without is ended at the go of each epoch;
between two epochs nothing is ended but what was lost for good, and nothing submitted for it.
Standbys, and the places of lost nodes that are replaced, are awaited: the run does not go without
them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.describing import Describing
from launcher.run.desk import retry_pause
from launcher.run.end_of_all import BY_ITSELF_SECONDS, EndOfAll
from launcher.run.ending import Ended
from launcher.run.hosts import Hosts
from launcher.run.replacing import Replacing
from launcher.run.runs import BEFORE_SUBMISSION, Run, Runs, Step, has_started
from launcher.run.sentences import StartsByHand
from launcher.run.submitting import Submitting
from launcher.run.values import ErrorKind, Key, Left
from launcher.schedulers.description import OVER, Description
from rendezvous.wire.run import Phase, RunStatus, SlotState, SlotStatus


@dataclass(slots=True)
class Slots:
    """All of them.

    Attributes:
        end: Of all of them.
    """

    shared: Runs
    submitting: Submitting
    replacing: Replacing
    describing: Describing
    end: EndOfAll

    @staticmethod
    def of(shared: Runs) -> Slots:
        """Those of a launch that begins."""
        hosts = Hosts(shared)
        submitting = Submitting(shared, hosts)
        replacing, end = Replacing(shared, submitting), EndOfAll(shared, submitting)
        return Slots(shared, submitting, replacing, Describing(shared, hosts), end)

    def know(self, left: Iterable[Left]) -> None:
        """A former launcher of this launch has submitted these."""
        for one in left:
            self.shared.add(one.key, self.submitting.hosts.former(one))

    def see(self, status: RunStatus, now: float) -> None:
        """Take in how the run stands, and submit every slot that wants a newer generation."""
        self.shared.phase, self.shared.started = status.phase, has_started(status)
        self.shared.outlives = status.on_node_loss != "fail"
        self.shared.seen = {slot.slot: slot for slot in status.slots}
        if status.phase is Phase.FINISHED:
            self.submitting.stop()
        else:
            self._release(now)
        if not self.submitting.stopped:
            self.replacing.see(now)
            for slot in status.slots:
                self._want(slot)

    # --- wanting ------------------------------------------------------------------------------

    def _want(self, slot: SlotStatus) -> None:
        shared, wanted = self.shared, slot.wanted_generation
        starter = shared.facts.starter_of(slot.slot)
        asked = shared.asked.get(slot.slot, 0)
        if starter is None or asked >= wanted or shared.goes_without(slot):
            return
        if slot.generation < wanted or asked:
            self._ask_for(Key(slot.slot, wanted))
            return
        shared.asked[slot.slot] = wanted
        key = Key(slot.slot, slot.generation)
        run = shared.runs.get(key) or shared.add(key, Run(starter, Step.LOOKING))
        self._look_for(key, run)

    def _ask_for(self, key: Key) -> None:
        """Tell the registry that it will be submitted; nothing goes on with older ones."""
        shared = self.shared
        starter = shared.facts.starter_of(key.slot)
        assert starter is not None
        shared.asked[key.slot] = key.generation
        for older in list(shared.of_slot.get(key.slot, ())):
            run = shared.runs[older]
            if run.step in BEFORE_SUBMISSION:
                self.submitting.drop(older, run)
            elif run.step in (Step.LOOKING, Step.DESCRIBED):
                shared.quiet(older, run)
                if run.gone:  # that was not heard yet
                    self.replacing.tell_over(older, run)
        run = shared.add(key, Run(starter, Step.TELLING))
        shared.tell(key, run, do.News(SlotState.SUBMITTING))

    def _release(self, now: float) -> None:
        """From the go on, the table's nodes are the run's: nobody else can join any more. What was
        lost for good is ended at any time, as the next programs may wait for its end.

        One that was released ends by itself, if its agent still can. What could not be ended is
        tried again ever more rarely.
        """
        is_running = self.shared.phase is Phase.RUNNING
        for slot in self.shared.seen.values():
            if slot.node is not None or slot.awaited:
                continue
            if not (is_running or self.shared.is_given_up(slot)):
                continue
            for key in self.shared.of_slot.get(slot.slot, ()):
                run = self.shared.runs[key]
                if run.step in BEFORE_SUBMISSION:
                    self.submitting.withdraw(key, run)
                    self.replacing.tell_over(key, run)
                elif now >= run.release_at:
                    self.shared.end(key, now, by_itself=BY_ITSELF_SECONDS)

    # --- taking up ----------------------------------------------------------------------------

    def _look_for(self, key: Key, run: Run) -> None:
        run.step = Step.LOOKING
        run.id = self.shared.desk.send("slots", do.Find, key)

    def _looked(self, key: Key, run: Run, said: inputs.SchedulerAnswer, now: float) -> None:
        """A former launcher had meant to submit it: take it up, or replace it."""
        run.id = None
        match said:
            case inputs.SchedulerSilent(words=words):
                news = do.News(SlotState.UNKNOWN, run.handle, words)
                self.shared.tell(key, run, news)
            case inputs.Found(handle=None) if run.handle:
                run.id = self.shared.desk.send("slots", do.Describe, key, run.handle)
            case inputs.Found(handle=str(handle)):
                run.handle = handle
                self._take_up(key, run, now)
            case inputs.Described(found=found) if found.state not in (*OVER, SlotState.UNKNOWN):
                self._take_up(key, run, now)
            case _:
                run.step, run.lost_track = Step.REST, True
                if isinstance(said, inputs.Described):
                    run.lost_track = run.learn(said.found).state is not SlotState.FAILED
                if not self.submitting.stopped:
                    self._ask_for(Key(key.slot, key.generation + 1))

    def _take_up(self, key: Key, run: Run, now: float) -> None:
        self.replacing.end_older(key, now)
        self.shared.note(key, run, whole=True)
        slot = self.shared.seen.get(key.slot)
        if slot is None or slot.node_state is None:
            self._say_start(key, run)
        self.describing.begin(key, run)

    def _say_start(self, key: Key, run: Run) -> None:
        """What a person has to copy is said whole: a table has no room for it."""
        if run.starter.by_hand:
            self.shared.desk.do(do.Say(StartsByHand(key, run.handle)))

    # --- answers ------------------------------------------------------------------------------

    def take(self, action: do.Action, said: inputs.Answer, now: float) -> None:
        """An answer to what this has asked, told or written."""
        assert isinstance(action, do.OfWorkerRun)
        key = action.key
        run = self.shared.runs[key]
        match said:
            case inputs.Done() if isinstance(action, do.TellSlot):
                self._heard(key, run, now)
            case inputs.Unanswered(jitter=jitter):
                run.telling = None
                self.shared.desk.look_at(("tell", key), now + retry_pause(jitter))
            case inputs.Refused(trouble=trouble):
                self._told_in_vain(key, run, now)
                if trouble.kind not in (ErrorKind.RUN_OVER, ErrorKind.FENCED):
                    self.shared.refused = trouble
            case inputs.Done():
                self.submitting.submit(key, run)
            case inputs.NotWritten():
                self.submitting.not_written(key, said, now)
            case inputs.SubmitFailed():
                self._submit_failed(key, run, said, now)
            case inputs.Found() | inputs.Described() | inputs.SchedulerSilent() if (
                run.step is Step.LOOKING
            ):
                self._looked(key, run, said, now)
            case inputs.Described(found=found):
                if self._waits_in_vain(key, run, found, now):
                    self._ask_for(Key(key.slot, key.generation + 1))
                else:
                    self.describing.described(key, run, found, now)
            case inputs.SchedulerSilent(words=words):
                found = Description(SlotState.UNKNOWN, words)
                self.describing.described(key, run, found, now)
            case _:
                assert isinstance(said, inputs.LineRead)
                self.describing.line_read(key, run, said.line)

    def _waits_in_vain(self, key: Key, run: Run, found: Description, now: float) -> bool:
        """Whether it has waited for another host than those to avoid, and there seems to be none:
        the next one may have any."""
        in_vain = self.submitting.hosts.waits_in_vain(key, run, found, now)
        return in_vain and not self.submitting.stopped

    def look(self, name: str, key: Key) -> None:
        """Its time has come."""
        run = self.shared.runs[key]
        if name == "tell":
            assert run.news is not None
            self.shared.tell(key, run, run.news)
        elif run.step is Step.LOOKING:
            self._look_for(key, run)
        elif run.step is Step.DESCRIBED:
            self.describing.begin(key, run)
        else:
            self.submitting.write(key, run)

    def _heard(self, key: Key, run: Run, now: float) -> None:
        run.telling = run.news = None
        if run.step is Step.TELLING:
            self.replacing.begin(key, run, now)
        elif run.step is Step.SUBMITTING and not self.submitting.goes_on(key, run):
            self._give_up(key, run, now)
        elif run.step is Step.SUBMITTING:
            assert run.id is not None
            self.shared.desk.do(do.TryAgain(run.id))
        elif run.step is Step.LOOKING:
            self.shared.desk.look_at(("look", key), now + run.starter.poll_seconds)
        elif run.step is Step.DESCRIBED and run.said is None:
            self.describing.begin(key, run)
        elif run.step is Step.DESCRIBED:
            self.describing.rest(key, run, now)

    def _told_in_vain(self, key: Key, run: Run, now: float) -> None:
        """The registry does not want to hear of it."""
        if run.step is Step.TELLING:
            self.submitting.drop(key, run)
        elif run.step is Step.SUBMITTING:
            self._give_up(key, run, now)
        else:
            self._heard(key, run, now)

    # --- submissions --------------------------------------------------------------------------

    def faulted(self, action: do.Action, now: float) -> None:
        """Nobody answers any more; a submission may have been made all the same."""
        if isinstance(action, do.Submit):
            self.submitting.answered(self.shared.runs[action.key])
            if self.end.settling:
                self.end.settle(now)

    def troubled(self, said: inputs.SubmitTroubled, now: float) -> None:
        """A try to submit has failed; the next one waits, if there is to be one."""
        run = self.shared.runs[said.key]
        if not said.words and self.submitting.goes_on(said.key, run):
            self.shared.desk.do(do.TryAgain(said.id))
        elif self.submitting.goes_on(said.key, run):
            self.shared.tell(said.key, run, do.News(SlotState.SUBMITTING, detail=said.words))
        else:
            self._give_up(said.key, run, now)

    def _give_up(self, key: Key, run: Run, now: float) -> None:
        self.submitting.give_up(key, run)
        self._ends_now(key, run, now)

    def _ends_now(self, key: Key, run: Run, now: float) -> bool:
        """Whether an end was waiting for what has come of its submission; that begins."""
        if self.end.settling:
            self.end.settle(now)
        elif run.end_after:
            self._end_answered(key, run, now)
        else:
            return False
        return True

    def submitted(self, said: inputs.Submitted, now: float) -> None:
        """An id is learnt at any time, also of what nobody waits for any more."""
        key, shared = said.key, self.shared
        run = shared.runs[key]
        run.handle, run.gone = said.handle, False
        shared.note(key, run)
        if run.step is Step.SUBMITTING:
            self.submitting.answered(run)
        if (end := shared.ends.ends.get(key)) is not None:
            end.handle = said.handle
        elif self.end.settling:
            self.end.settle(now)
        elif self.end.ending or run.end_after or not shared.is_newest(key):
            self._end_answered(key, run, now)
        else:
            run.step = Step.DESCRIBED
            self._say_start(key, run)
            shared.tell(key, run, do.News(SlotState.SUBMITTED, run.handle))

    def _submit_failed(self, key: Key, run: Run, said: inputs.SubmitFailed, now: float) -> None:
        if said.no_host and self.submitting.goes_anywhere(key, run, said.words):
            return
        self.submitting.answered(run)
        run.gone, run.hint = said.certain, said.hint
        if run.gone:
            self.shared.note(key, run)
        if not self._ends_now(key, run, now):
            news = do.News(SlotState.FAILED, detail=said.words, final=said.final)
            self.shared.tell(key, run, news)

    def _end_answered(self, key: Key, run: Run, now: float) -> None:
        run.end_after = False
        if run.gone:
            self.replacing.tell_over(key, run)
        self.shared.end(key, now)
        self.replacing.go_on(key.slot)

    def ended(self, one: Ended, now: float) -> None:
        """What came of an end."""
        run = self.shared.runs[one.key]
        run.handle, run.gone = one.handle, one.gone
        run.over, run.preempted = run.over or one.over, run.preempted or one.preempted
        run.host = run.host or one.host
        if one.gone:
            self.shared.note(one.key, run)
        if not self.end.ending:
            self.replacing.ended(one, now)
        elif not one.gone:
            self.end.left.append(one)
