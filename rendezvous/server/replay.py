"""What a journal holds, event by event, with the reasons: `python -m rendezvous.server.replay`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rendezvous import events
from rendezvous.errors import RdzvError
from rendezvous.events import load_event
from rendezvous.protocol import apply
from rendezvous.schema import EventLine
from rendezvous.server.journal import Record, read_journal
from rendezvous.state import Run, create


def replay(records: list[Record]) -> Iterator[tuple[str, EventLine]]:
    """Apply the records in their order; yields the run and what each event did."""
    runs: dict[str, Run] = {}
    for record in records:
        event = load_event(record.body)
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


def main() -> None:
    """Print a journal."""
    parser = argparse.ArgumentParser(prog="rdzv replay", description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    try:
        for run, line in replay(read_journal(arguments.journal)):
            if arguments.json:
                text = line.model_dump_json()
            else:
                place = f"{run} {line.phase} epoch {line.epoch}"
                text = f"{line.number:5d} {line.at_seconds:9.3f} s  {place}: {line.reason}"
            sys.stdout.write(text + "\n")
    except RdzvError as exc:
        sys.stderr.write(f"rdzv: {exc}\n")
        raise SystemExit(int(exc.exit_code)) from exc
    except BrokenPipeError:
        sys.stderr.close()


if __name__ == "__main__":
    main()
