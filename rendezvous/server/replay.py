"""What a journal holds, event by event, with the reasons: `python -m rendezvous.server.replay`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from rendezvous import events
from rendezvous.errors import RdzvError, UsageError
from rendezvous.events import Event, load_event
from rendezvous.protocol import apply
from rendezvous.schema import EventLine
from rendezvous.server.journal import Record, read_journal
from rendezvous.state import Run, create


def replay(records: list[Record]) -> Iterator[tuple[str, EventLine]]:
    """Apply the records in their order; yields the run and what each event did."""
    runs: dict[str, Run] = {}
    for record in records:
        event = _event(record)
        if isinstance(event, events.Created):
            runs[record.run] = create(record.run, event.spec, record.at)
        run = runs[record.run]
        outcome = apply(run, event, record.at)
        yield (
            record.run,
            EventLine(
                number=record.number,
                at_seconds=round(record.at - run.created_at, 3),
                kind=event.kind,
                reason=outcome.reason,
                phase=run.phase,
                epoch=run.epoch,
                slot=outcome.slot,
                usual=outcome.usual,
            ),
        )


def _event(record: Record) -> Event:
    try:
        return load_event(record.body)
    except ValidationError as exc:
        raise UsageError(
            f"event {record.number} of run '{record.run}' is not one that this rdzv knows",
            hint="use the version of rdzv that wrote the journal",
        ) from exc


def main() -> None:
    """Print a journal."""
    parser = argparse.ArgumentParser(prog="rdzv replay", description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    try:
        for run, line in replay(read_journal(arguments.journal)):
            sys.stdout.write(_text(run, line, as_json=arguments.json) + "\n")
        sys.stdout.flush()
    except RdzvError as exc:
        sys.stderr.write(f"rdzv: {exc}\n")
        raise SystemExit(int(exc.exit_code)) from exc
    except BrokenPipeError:  # the reader has seen enough; nothing is left to flush at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(run: str, line: EventLine, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"run": run, **line.model_dump(mode="json")})
    place = f"{run} {line.phase} epoch {line.epoch}"
    return f"{line.number:5d} {line.at_seconds:9.3f} s  {place}: {line.reason}"


if __name__ == "__main__":
    main()
