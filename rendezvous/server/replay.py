"""What a journal holds, event by event, with the reasons: what `rdzv replay` runs."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from rendezvous.run import events
from rendezvous.run.events import Event, load_event
from rendezvous.run.leases import Leases
from rendezvous.run.moves import Outcome
from rendezvous.run.protocol import apply
from rendezvous.run.state import Run, create
from rendezvous.run.views import event_line, run_status
from rendezvous.server.journal import Record, applying
from rendezvous.server.spans import Parent, Spans
from rendezvous.server.sqlite_journal import log_of, read_journal
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import ExitCode, RdzvError, UsageError
from rendezvous.wire.run import EventLine
from rendezvous.wire.words import printable

_MAX_LINE = 10_000


def replay(
    records: list[Record], runs: dict[str, Run] | None = None
) -> Iterator[tuple[str, EventLine]]:
    """Apply the records in their order; yields the run and what each event did.

    `runs` gets the runs by name, as they stand after it.

    Raises UsageError for one of another version, or that does not follow from those before it.
    """
    for record, run, event, outcome in _applied(records, runs):
        yield record.run, event_line(run, record.number, event, outcome, record.at)


def _applied(
    records: list[Record], runs: dict[str, Run] | None = None
) -> Iterator[tuple[Record, Run, Event, Outcome]]:
    """Each record with its run as the event has left it."""
    runs = {} if runs is None else runs
    for record in records:
        with applying(record):
            event = load_event(record.body)
            if isinstance(event, events.Created):
                runs[record.run] = create(record.run, event.spec, record.at)
            run = runs[record.run]
            outcome = apply(run, event, record.at)
        yield record, run, event, outcome


def write_spans(journal: Path, to: Path, parent: Parent | None) -> None:
    """Write the phases of all runs and slots as OTLP's JSON, on one line. Raises UsageError.

    A journal has no time of day; its newest record is as old as what was written last.
    """
    records, spans = read_journal(journal), Spans(parent)
    for record, run, _, _ in _applied(records):
        spans.see(run, record.at)
    paths = filter(os.path.exists, (journal, log_of(journal)))
    written = max(path.stat().st_mtime for path in paths)
    newest = max((record.at for record in records), default=0.0)
    text = json.dumps(spans.document(written - newest, rdzv_version()))
    try:
        to.write_text(f"{text}\n", encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"{to} cannot be written: {exc.strerror}") from exc


def main() -> None:
    """Print a journal."""
    parser = argparse.ArgumentParser(prog="rdzv replay", description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--status", action="store_true", help="then a line for each run's status")
    parser.add_argument("--otlp", type=Path, help="write OpenTelemetry spans to this file")
    arguments = parser.parse_args()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        if arguments.otlp is not None:
            write_spans(
                arguments.journal, arguments.otlp, Parent.read(os.environ.get("TRACEPARENT", ""))
            )
            return
        records, runs = read_journal(arguments.journal), dict[str, Run]()
        happened = replay(records, runs)
        _print(_text(run, line, as_json=arguments.json) for run, line in happened)
        if arguments.status:
            _print(_status(run, records) for run in runs.values())
    except RdzvError as exc:
        sys.stderr.write(f"rdzv: {exc}\n")
        raise SystemExit(int(exc.exit_code)) from exc
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


def _print(lines: Iterable[str]) -> None:
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
        if isinstance(exc, BrokenPipeError):  # the reader has seen enough
            raise SystemExit(int(ExitCode.FAILED)) from None
        raise RdzvError(f"standard output cannot be written: {exc.strerror}") from exc


def _status(run: Run, records: list[Record]) -> str:
    """As its registry would have told it after the last of these records, as JSON."""
    last = max(record.at for record in records if record.run == run.id)
    return run_status(run, last, Leases(run.spec.limits.lease_seconds, 1.0)).model_dump_json()


def _text(run: str, line: EventLine, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"run": run, **asdict(line)})
    place = f"{run} {line.phase} epoch {line.epoch}"
    text = f"{line.number:5d} {line.at_seconds:9.3f} s  {place}: {line.reason}"
    return printable(text, _MAX_LINE)  # the journal may be somebody else's
