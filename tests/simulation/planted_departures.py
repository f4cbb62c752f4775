# ruff: noqa: E501
"""Bugs in how nodes say that they will go, as in `planted`."""

from __future__ import annotations

# fmt: off
DEPARTURES: dict[str, list[tuple[str, str, str]]] = {
    "rendezvous/run/admission.py": [
        ("departures: drained now", "DepartReport(epoch=run.epoch, seconds=seconds, words=words,", "DepartReport(epoch=run.epoch, words=words,"),
    ],
    "rendezvous/run/departures.py": [
        ("departures: due at once", "return now + max(0.0, left)", "return now"),
        ("departures: at the deadline", "left = report.seconds - run.spec.limits.grace_seconds - MARGIN_SECONDS", "left = report.seconds"),
        ("departures: no margin", "run.spec.limits.grace_seconds - MARGIN_SECONDS", "run.spec.limits.grace_seconds"),
        ("departures: the latest counts", "stop_at < run.departure.stop_at", "stop_at > run.departure.stop_at"),
        ("departures: the first counts", "run.departure is None or stop_at < run.departure.stop_at", "run.departure is None"),
        ("departures: at the next sweep", "stop_at <= now and not run.stop:\n        _stop", "False:\n        _stop"),
        ("departures: said again", "return stop_at > before.stop_at - _SAME_SECONDS", "return False"),
        ("departures: sooner is known", "return stop_at > before.stop_at - _SAME_SECONDS", "return True"),
        ("departures: who goes later is forgotten", "min(filter(None, known), key=lambda one: one.stop_at, default=None)", "None"),
        ("departures: another one is named", 'slot = run.slots[departure.slot]\n    how =', 'slot = run.slots[0]\n    how ='),
        ("departures: a notice has no end", "max(0.0, departure.stop_at - now)", "departure.stop_at"),
    ],
    "rendezvous/run/protocol.py": [
        ("departures: never due", "not run.stop and now >= departure.stop_at", "False"),
    ],
    "rendezvous/run/restarts.py": [
        ("departures: a restart answers one", "says_so or node.departure is not None", "says_so"),
    ],
    "rendezvous/run/running.py": [
        ("departures: ok after one", "is_told and restarts.was_stopped(run)", "False"),
        ("departures: for who has ended well", "        departures.ended_well(run, slot)", "        pass"),
    ],
    "rendezvous/run/views.py": [
        ("departures: a notice is not told", "notice=notice_of(run, now)", "notice=None"),
    ],
    "rendezvous/talk/client.py": [
        ("departures: a notice does not age", "max(0.0, report.seconds - seconds)", "report.seconds"),
    ],
    "worker/agent/attempt.py": [
        ("node: a notice before the program is lost", "    departing.tell(turn)\n", ""),
        ("node: a notice with the go is lost", "    departing.tell(turn)\n    departing.show(turn, view)\n", "    departing.tell(turn)\n"),
    ],
    "worker/agent/departing.py": [
        ("node: a notice is not told", "        tell(turn)\n", "        pass\n"),
        ("node: a notice is told as a signal", "seconds = max(0.0, departure.at - turn.now)", "seconds = 0.0"),
        ("node: a notice is not shown", "turn.do(do.ShowDeparture(program.number, notice, turn.node.rules.notice_signal))", "pass"),
        ("node: a notice is shown each time", "before is not None and stop_at > before - _SAME_SECONDS", "False"),
        ("node: a signal is told for long", "limit=TELL_SECONDS", "limit=3.0"),
        ("node: a signal is not told", "reports.tell_once(turn, report, limit=TELL_SECONDS)", "pass"),
        ("node: a signal after a notice is not told", "if (program := _running(turn)) is None:", "if (program := _running(turn)) is None or program.departs:"),
    ],
    "worker/agent/leaving.py": [
        ("node: stops before it is told", "any(tell.is_last_word for tell in turn.under_way(do.Tell))", "False"),
    ],
}
# fmt: on
