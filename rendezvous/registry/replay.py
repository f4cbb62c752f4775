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

from rendezvous.registry.journal import Record, applying
from rendezvous.registry.sqlite_journal import read_journal
from rendezvous.run import events
from rendezvous.run.decision import load_entry
from rendezvous.run.fold import apply
from rendezvous.run.leases import Leases
from rendezvous.run.state import Run, create
from rendezvous.run.views import event_line, run_status
from rendezvous.wire.errors import ExitCode, RdzvError
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
    runs = {} if runs is None else runs
    for record in records:
        with applying(record):
            event, decision = load_entry(record.body)
            if isinstance(event, events.Created):
                runs[record.run] = create(record.run, event.spec, record.at)
            run = runs[record.run]
            apply(run, event, decision)
        yield record.run, event_line(run, record.number, event, decision.outcome, record.at)


def main() -> None:
    """Print a journal."""
    parser = argparse.ArgumentParser(prog="rdzv replay", description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--status", action="store_true", help="then a line for each run's status")
    arguments = parser.parse_args()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
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
